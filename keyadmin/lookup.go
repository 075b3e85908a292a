package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
)

// open opens the database if the command line is valid. Otherwise it returns the usage error before anything is tried.
func (a *app) open(ctx context.Context) (*keystore.Store, error) {
	if err := a.openWith(database.Open); err != nil {
		return nil, err
	}
	return a.store, a.store.CheckSchema(ctx)
}

// openWith opens the database without a look at its tables.
func (a *app) openWith(open func(url string) (*database.DB, error)) error {
	url, err := a.databaseURL()
	if err != nil {
		return err
	}
	if a.db, err = open(url); err != nil {
		return explainOpen(url, err)
	}
	a.store = keystore.New(a.db, a.Clock, a.Random, a.actor())
	a.store.Seek(operate.Patience{}.Limit())
	a.operator = operate.Operator{Store: a.store, Clock: a.Clock}
	return nil
}

// explainOpen turns an invalid URL into a usage error, and adds the full path to the error of a missing file.
func explainOpen(url string, err error) error {
	if errors.Is(err, database.ErrURL) {
		return usageErrorf("%v", err)
	}
	_, path, _ := strings.Cut(url, ":")
	absolute, absErr := filepath.Abs(path)
	if errors.Is(err, database.ErrNoFile) && absErr == nil && !filepath.IsAbs(path) {
		return fmt.Errorf("%w\nThe path is relative to the current directory, so keyadmin looked for %s. "+
			"Set $DATABASE_URL to use another database", err, absolute)
	}
	return err
}

func (a *app) now() instant.Millis { return instant.Of(a.Clock()) }

// tenant finds a tenant by its ID or name. No name looks like an ID, so the argument is never ambiguous.
func (a *app) tenant(ctx context.Context, idOrName string) (keystore.Tenant, error) {
	t, err := a.store.Tenant(ctx, idOrName)
	if !errors.Is(err, keystore.ErrNotFound) {
		return t, err
	}
	var known []string
	for t, listErr := range a.store.Tenants(ctx) {
		if listErr != nil {
			return t, errors.Join(err, listErr)
		}
		known = append(known, t.Name)
		if strings.HasPrefix(idOrName, id.TenantPrefix) {
			known = append(known, t.ID.String())
		}
	}
	return t, fmt.Errorf("there is no tenant %q%s (`keyadmin tenant list` shows all)", idOrName, didYouMean(idOrName, known))
}

// anyTenant also finds a deleted tenant, by its ID.
func (a *app) anyTenant(ctx context.Context, idOrName string) (keystore.Tenant, error) {
	if tenant, err := id.ParseTenant(idOrName); err == nil {
		if t, err := a.store.DeletedTenant(ctx, tenant); !errors.Is(err, keystore.ErrNotFound) {
			return t, err
		}
	}
	return a.tenant(ctx, idOrName)
}

// ofTenant is the argument of commands about one tenant. Their Run asks for the tenant.
type ofTenant struct {
	Tenant string `arg:"" help:"ID or name."`
}

// ProvideTenant finds the tenant for Run.
func (c ofTenant) ProvideTenant(ctx context.Context, a *app, _ *keystore.Store) (keystore.Tenant, error) {
	return a.tenant(ctx, c.Tenant)
}

// ofKey is the argument of commands about one key. Their Run asks for the key.
type ofKey struct {
	Key keyArgument `arg:"" help:"The key's ID, key_…"`
}

// ownedKey is a key with its tenant.
type ownedKey struct {
	operate.Owner
	keystore.Key
}

// ProvideKey finds the key for Run.
func (c ofKey) ProvideKey(ctx context.Context, a *app, _ *keystore.Store) (ownedKey, error) {
	return a.key(ctx, c.Key.Key)
}

// key finds a key and its tenant.
func (a *app) key(ctx context.Context, key id.Key) (ownedKey, error) {
	k, err := a.store.Key(ctx, key)
	if errors.Is(err, keystore.ErrNotFound) {
		err = fmt.Errorf("there is no key %s (`keyadmin key list` shows all)", key)
	}
	if err != nil {
		return ownedKey{}, err
	}
	t, err := a.operator.OwnerOf(ctx, k)
	return ownedKey{t, k}, err
}

// explainPlan adds similar names to err if it says that the plan does not exist.
func (a *app) explainPlan(ctx context.Context, name string, err error) error {
	if !errors.Is(err, keystore.ErrNotFound) {
		return err
	}
	plans, listErr := a.operator.Plans(ctx)
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	if _, ok := plans[name]; ok {
		return err // something else was not found
	}
	return fmt.Errorf("there is no plan %q%s (`keyadmin plan list` shows all)", name, didYouMean(name, sortedKeys(plans)))
}

// suggestionsMax keeps a suggestion short.
const suggestionsMax = 3

// didYouMean suggests the known names most similar to name, or nothing.
func didYouMean(name string, known []string) string {
	limit := 2
	if len(name) < 4 {
		limit = 1 // two differences are too many for a short name
	}
	name = strings.ToLower(name)
	distances := map[string]int{}
	for _, k := range known {
		lower := strings.ToLower(k)
		d := service.Distance(name, lower)
		if d <= limit && d < len(name) || len(name) >= 3 && strings.HasPrefix(lower, name) {
			distances[k] = d
		}
	}
	if len(distances) == 0 {
		return ""
	}
	near := slices.SortedFunc(maps.Keys(distances), func(a, b string) int {
		return cmp.Or(cmp.Compare(distances[a], distances[b]), cmp.Compare(a, b))
	})
	return ": did you mean " + strings.Join(near[:min(len(near), suggestionsMax)], " or ") + "?"
}
