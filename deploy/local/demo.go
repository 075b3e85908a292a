package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

const (
	demo      = "demo" // the tenant's name, and its key's
	demoPlan  = "free"
	tokenPath = "var/demo.token"
)

// demoKey is the key for the user.
type demoKey struct {
	token  string
	plan   string // of the tenant; an earlier run may have changed it
	limits plan.Limits
}

// replaceDemoKey revokes the demo keys of earlier starts, because their tokens may still be on screens. It returns a new key and
// writes its token to a file. Keys with other names belong to the user and are kept.
func replaceDemoKey(ctx context.Context, store *keystore.Store) (demoKey, error) {
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
	keys, err := store.Keys(ctx, &tenant.ID)
	if err != nil {
		return demoKey{}, err
	}
	for _, k := range keys {
		if k.Name != demo || k.RevokedAt != 0 {
			continue
		}
		if _, _, err := store.RevokeKey(ctx, k.ID); err != nil {
			return demoKey{}, err
		}
	}
	_, token, _, err := store.CreateKey(ctx, keystore.KeySpec{Tenant: tenant.ID, Name: demo})
	if err != nil {
		return demoKey{}, err
	}
	key := demoKey{token: token, plan: tenant.Plan, limits: plan.Effective(terms.Limits, tenant.Override)}
	return key, writeToken(token)
}

// writeToken writes the token to a file that only the user can read, and replaces an earlier file.
func writeToken(token string) error {
	fresh := tokenPath + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(fresh, []byte(token+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, tokenPath)
}

// welcome is the text for the user. started is the user's directory: outside of the module's root, paths are absolute.
func welcome(public, admin string, key demoKey, started string) string {
	tokenFile, logFile, keyadmin := tokenPath, accessPath, "bin/keyadmin"
	if root, err := os.Getwd(); err == nil && root != started {
		tokenFile, logFile, keyadmin = filepath.Join(root, tokenPath), filepath.Join(root, accessPath), "cd "+root+" && bin/keyadmin"
	}
	curl := `curl -i -H "Authorization: Bearer $(cat ` + tokenFile + `)"`
	return fmt.Sprintf(`
Petgate is running on %[1]s (admin port: %[2]s). Ctrl-C stops it.

A new key of the tenant demo, on plan %[7]s (%[8]d requests per minute, %[9]d per day), is in %[3]s:

    %[4]s

List pets, add a pet, get a pet:

    %[5]s %[1]s/v1/pets
    %[5]s -H "Content-Type: application/json" -d '{"name":"Rex","categoryId":1}' %[1]s/v1/pets
    %[5]s %[1]s/v1/pets/1

Read the documentation and try it in a browser: %[1]s/docs
Every request is logged in %[10]s.

Raise the limit, in a second terminal:

    %[6]s tenant set-plan demo pro

`, public, admin, tokenFile, key.token, curl, keyadmin, key.plan, key.limits.Minute, key.limits.Day, logFile)
}
