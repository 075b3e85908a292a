package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"petgate/petsvc/pets"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/durable"
	"petgate/shared/keystore"
)

const (
	demo      = "demo" // the tenant's name, and its key's
	demoPlan  = "free"
	tokenPath = "var/demo.token"
)

// sampleNames are more than a page of a list.
const sampleNames = "Rex Bella Luna Charlie Milo Daisy Oscar Lola Simba Nala Coco Rocky Ruby Leo Molly Max Zoe Toby Lucy Felix Ginger " +
	"Hazel Jasper Kiwi Mango Nero Olive Pepper Smokey Willow"

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
		_, err := tx.ExecContext(ctx, `INSERT INTO pets (name, category_id, status) VALUES ($1, $2, $3)`, name, i%4+1, string(status))
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

// keepDemoKey returns the key of the last start, from the file with its token. If that key cannot be used any longer, keepDemoKey
// makes a new one.
func keepDemoKey(ctx context.Context, store *keystore.Store, environment apikey.Environment) (demoKey, error) {
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
	if key.token, err = keptToken(ctx, store, tenant.ID, environment); err != nil || key.token != "" {
		return key, err
	}
	key.token, err = replaceDemoKey(ctx, store, tenant.ID, environment)
	return key, err
}

// keptToken returns the token in the file, or "" if it is not the token of a key of the tenant that this gateway admits.
func keptToken(ctx context.Context, store *keystore.Store, tenant id.Tenant, environment apikey.Environment) (string, error) {
	text, err := os.ReadFile(tokenPath)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	k, err := store.KeyByToken(ctx, token)
	switch {
	case errors.Is(err, keystore.ErrNotFound), errors.Is(err, keystore.ErrInvalid):
		return "", nil
	case err != nil:
		return "", err
	}
	if k.Tenant != tenant || k.Environment != environment || !k.InUse(instant.Of(time.Now())) {
		return "", nil
	}
	return token, os.Chmod(tokenPath, 0o600)
}

// replaceDemoKey makes a new key and writes its token to the file. It revokes the earlier keys of that name, whose tokens are lost
// but may still be on screens. Keys with other names belong to the user and are kept.
func replaceDemoKey(ctx context.Context, store *keystore.Store, tenant id.Tenant, environment apikey.Environment) (token string, err error) {
	keys, err := keystore.Collect(store.Keys(ctx, tenant))
	if err != nil {
		return "", err
	}
	for _, k := range keys {
		if k.Name != demo || k.RevokedAt != 0 || k.Environment != environment {
			continue
		}
		if _, _, err := store.RevokeKey(ctx, k.ID); err != nil {
			return "", err
		}
	}
	_, token, _, err = store.CreateKey(ctx, keystore.KeySpec{Tenant: tenant, Name: demo, Environment: environment, Scopes: "pets:read pets:write usage:read"})
	if err != nil {
		return "", err
	}
	return token, durable.Write(tokenPath, []byte(token+"\n"))
}

// welcome is the text for the user. started is the user's directory: outside of the module's root, paths are absolute. hasDocs says
// that the documentation is served. link opens the console.
func welcome(public, admin string, key demoKey, started string, hasDocs bool, link string) string {
	tokenFile, logFile, keyadmin := tokenPath, accessPath, "bin/keyadmin"
	if root, err := os.Getwd(); err == nil && root != started {
		tokenFile, logFile, keyadmin = filepath.Join(root, tokenPath), filepath.Join(root, accessPath), "cd "+root+" && bin/keyadmin"
	}
	docs := ""
	if hasDocs {
		docs = "Read the documentation and try it in a browser: " + public + "/docs\n"
	}
	curl := `curl -i -w '\n' -H "Authorization: Bearer $(cat ` + tokenFile + `)"`
	return fmt.Sprintf(`
Petgate is running on %[1]s (admin port: %[2]s). Ctrl-C stops it.

The key of the tenant demo, on plan %[7]s (%[8]d requests per minute, %[9]d per day), is in %[3]s:

    %[4]s

List pets, add a pet, see what is left of the limits:

    %[5]s %[1]s/v1/pets
    %[5]s -H "Content-Type: application/json" -d '{"name":"Rex","categoryId":1}' %[1]s/v1/pets
    %[5]s %[1]s/v1/quota

%[11]sEvery request is logged in %[10]s.

Raise the limit, in a second terminal:

    %[6]s tenant set-plan demo pro

Open the operators' console with this link, once and within a minute, or with a new one from %[6]s console:

    %[12]s

`, public, admin, tokenFile, key.token, curl, keyadmin, key.plan, key.limits.Minute, key.limits.Day, logFile, docs, link)
}
