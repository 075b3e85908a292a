package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"petgate/gateway/app"
	"petgate/petsvc/pets"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/durable"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
)

const (
	demo      = "demo" // the tenant's name, and its key's
	demoPlan  = "free"
	tokenPath = "var/demo.token"
)

// sampleNames are more than a page of a list.
const sampleNames = "Rex Bella Luna Charlie Milo Daisy Oscar Lola Simba Nala Coco Rocky Ruby Leo Molly Max Zoe Toby " +
	"Lucy Felix Ginger Hazel Jasper Kiwi Mango Nero Olive Pepper Smokey Willow"

// seedPets creates the tables of pets, and stores the sample pets if there are no pets.
func seedPets(ctx context.Context, db *database.DB) error {
	if err := db.Migrate(ctx, pets.Migrations); err != nil {
		return err
	}
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	defer tx.Rollback() // does nothing after a commit
	var used bool
	if err := tx.GetContext(ctx, &used, `SELECT EXISTS (SELECT 1 FROM pets)`); err != nil || used {
		return err
	}
	for i, name := range strings.Fields(sampleNames) {
		status := []pets.Status{pets.Available, pets.Available, pets.Pending, pets.Available, pets.Sold}[i%5]
		_, err := tx.ExecContext(ctx, `INSERT INTO pets (name, category_id, status) VALUES ($1, $2, $3)`, name, i%4+1,
			string(status))
		if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
	}
	return tx.Commit()
}

// demoKey is the key for the user.
type demoKey struct {
	token  string
	plan   string // of the tenant; an earlier run may have changed it
	limits plan.Limits
}

// keepDemoKey returns the key of the last start, from the file with its token. If that key cannot
// be used any longer, keepDemoKey makes a new one.
func keepDemoKey(ctx context.Context, store *keystore.Store, cfg *app.Config) (demoKey, error) {
	scopes, err := apikey.ParseScopes(append(cfg.Document().Scopes(), apikey.UsageRead))
	if err != nil {
		return demoKey{}, err
	}
	tenant, err := store.Tenant(ctx, demo)
	if errors.Is(err, keystore.ErrNotFound) {
		tenant, _, err = store.CreateTenant(ctx, keystore.TenantSpec{Name: demo, Plan: demoPlan})
	}
	if err != nil {
		return demoKey{}, err
	}
	terms, err := store.Plan(ctx, tenant.Plan)
	if err != nil {
		return demoKey{}, err
	}
	key := demoKey{plan: tenant.Plan, limits: plan.Effective(terms.Limits, tenant.Override)}
	spec := keystore.KeySpec{
		Tenant:      tenant.ID,
		Name:        demo,
		Environment: cfg.Environment,
		Scopes:      scopes,
		Prefix:      cfg.KeyPrefix,
	}
	key.token = keptToken(ctx, store, spec)
	if key.token == "" {
		key.token, err = replaceDemoKey(ctx, store, spec)
	}
	return key, err
}

// keptToken returns the token in the file, or "" if it is not the token of such a key that this
// gateway admits.
func keptToken(ctx context.Context, store *keystore.Store, spec keystore.KeySpec) string {
	text, _ := os.ReadFile(tokenPath)
	token := strings.TrimSpace(string(text))
	k, err := store.KeyByToken(ctx, token)
	if err != nil || !k.InUse(instant.Of(time.Now())) {
		return ""
	}
	if k.Tenant != spec.Tenant || k.Environment != spec.Environment || k.Scopes != spec.Scopes {
		return ""
	}
	return token
}

// replaceDemoKey makes a new key and writes its token to the file. It revokes the earlier keys of
// that name, whose tokens are lost but may still be on screens. Keys with other names belong to the
// user and are kept.
func replaceDemoKey(ctx context.Context, store *keystore.Store, spec keystore.KeySpec) (token string, err error) {
	keys, err := keystore.Collect(lists.Of(store).Keys(ctx, spec.Tenant))
	if err != nil {
		return "", err
	}
	for _, k := range keys {
		if k.Name != spec.Name || !k.IsEnabled() || k.Environment != spec.Environment {
			continue
		}
		if _, _, err := store.RevokeKey(ctx, k.ID); err != nil {
			return "", err
		}
	}
	_, token, _, err = store.CreateKey(ctx, spec)
	if err != nil {
		return "", err
	}
	return token, durable.Write(tokenPath, []byte(token+"\n"))
}

// asks returns what the user can ask first of an API, in words and as commands that begin with
// curl.
func asks(a *api.API, curl, public string) (title, commands string) {
	var own, first string
	for _, o := range a.Operations {
		switch {
		case o.IsReport():
			own = "    " + curl + " " + public + o.Path
		case !o.ByGateway && !o.IsPublic && o.Method == http.MethodGet && strings.Count(first, "\n") < 2:
			first += "    " + curl + " '" + public + parameter.ReplaceAllString(o.Path, "1") + "'\n"
		}
	}
	if a.Hash == api.Pets().Hash {
		return "List pets, add a pet, see what is left of the limits:", "    " + curl + " " + public + "/v1/pets\n" +
			"    " + curl + ` -H "Content-Type: application/json"` +
			` -d '{"name":"Rex","categoryId":1}' ` + public + "/v1/pets\n" + own
	}
	return "First requests of " + a.Title + ", and what is left of the limits:", first + own
}

// parameter is one of a path.
var parameter = regexp.MustCompile(`\{[^}]*\}`)

// welcome is the text for the user. link opens the console.
func welcome(public, admin string, key demoKey, cfg app.Config, link string) string {
	docs := ""
	if cfg.Docs {
		docs = "Read the documentation and try it in a browser: " + public + cfg.OwnPrefix + "/docs\n"
	}
	curl := `curl -i -w '\n' -H "Authorization: Bearer $(cat ` + tokenPath + `)"`
	title, commands := asks(cfg.Document(), curl, public)
	return fmt.Sprintf(`
Petgate is running on %[1]s (admin port: %[2]s). Ctrl-C stops it.

The key of the tenant demo, on plan %[6]s (%[7]d requests per minute, %[8]d per day), is in %[3]s:

    %[4]s

%[12]s

%[5]s

%[10]sEvery request is logged in %[9]s.

Raise the limit, in a second terminal:

    bin/keyadmin tenant set-plan demo pro

Open the operators' console with this link, once and within a minute, or with a new one from bin/keyadmin console:

    %[11]s

`, public, admin, tokenPath, key.token, commands, key.plan, key.limits.Minute, key.limits.Day, accessPath, docs, link,
		title)
}
