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

// anyTenant also finds a deleted tenant, by its ID.
func (a *app) anyTenant(ctx context.Context, idOrName string) (operate.Owner, error) {
	if tenant, err := id.ParseTenant(idOrName); err == nil {
		if t, err := a.store.DeletedTenant(ctx, tenant); err == nil {
			return a.operator.Owner(ctx, t)
		} else if !errors.Is(err, keystore.ErrNotFound) {
			return operate.Owner{}, err
		}
	}
	return a.operator.Tenant(ctx, idOrName)
}

// explain adds to an error that something does not exist the names that are similar, and where all are.
func (a *app) explain(ctx context.Context, err error) error {
	var missing operate.NotFoundError
	if !errors.As(err, &missing) {
		return err
	}
	name, known := missing.Name, []string(nil)
	switch missing.Noun {
	case "refusal":
		return fmt.Errorf("no refusal of %s was lost (`keyadmin gateway lost` shows all)", name)
	case "key":
		return fmt.Errorf("there is no key %s (`keyadmin key list` shows all)", name)
	case "tenant":
		for t, listErr := range a.store.Tenants(ctx) {
			if listErr != nil {
				return errors.Join(err, listErr)
			}
			known = append(known, t.Name)
			if strings.HasPrefix(name, id.TenantPrefix) {
				known = append(known, t.ID.String())
			}
		}
	case "plan":
		plans, listErr := a.operator.Plans(ctx)
		if _, ok := plans[name]; ok || listErr != nil {
			return errors.Join(err, listErr) // something else was not found
		}
		known = sortedKeys(plans)
	case "gateway":
		gateways, listErr := a.store.Gateways(ctx)
		if listErr != nil {
			return errors.Join(err, listErr)
		}
		for _, g := range gateways {
			known = append(known, g.ID)
		}
	}
	return fmt.Errorf("there is no %s %q%s (`keyadmin %[1]s list` shows all)", missing.Noun, name, didYouMean(name, known))
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
