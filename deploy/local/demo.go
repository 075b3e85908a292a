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

// demoKey is what the user gets to try things with.
type demoKey struct {
	token  string
	plan   string // the tenant's: an earlier run may have changed it
	limits plan.Limits
}

// replaceDemoKey revokes the keys of earlier starts, whose tokens lie about in terminals, and returns a new one, whose token
// it writes down. Keys of other names are the user's own and stay.
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

// writeToken puts the token where only the user can read it, whatever was there.
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

// welcome is what the user reads first. started is where the user is: from elsewhere than the module's root, paths are
// given in full.
func welcome(public, admin string, key demoKey, started string) string {
	tokenFile, keyadmin := tokenPath, "bin/keyadmin"
	if root, err := os.Getwd(); err == nil && root != started {
		tokenFile, keyadmin = filepath.Join(root, tokenPath), "cd "+root+" && bin/keyadmin"
	}
	curl := `curl -i -H "Authorization: Bearer $(cat ` + tokenFile + `)"`
	return fmt.Sprintf(`
Petgate answers on %[1]s (admin port: %[2]s). Ctrl-C stops it.

A fresh key of the tenant demo, on plan %[7]s (%[8]d requests a minute, %[9]d a day), is in %[3]s:

    %[4]s

List pets, add one, get it:

    %[5]s %[1]s/v1/pets
    %[5]s -H "Content-Type: application/json" -d '{"name":"Rex","categoryId":1}' %[1]s/v1/pets
    %[5]s %[1]s/v1/pets/1

Lift the limit, in a second terminal:

    %[6]s tenant set-plan demo pro

`, public, admin, tokenFile, key.token, curl, keyadmin, key.plan, key.limits.Minute, key.limits.Day)
}
