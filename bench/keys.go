package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
)

// keyCount is the number of keys that the load draws from. Each belongs to its own tenant.
const keyCount = 1000

// createKeys stores the tenants and their keys. No run reaches their limits. Two further tenants
// have a limit of one request, so that all their later requests are refused.
func (l *lab) createKeys(ctx context.Context) error {
	db, err := database.Open(l.postgres.url)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.Migrate(ctx, schema.Migrations); err != nil {
		return err
	}
	store := keystore.New(db, time.Now, rand.Reader, "bench")
	var tokens []string
	for i := range keyCount {
		token, err := newKey(ctx, store, fmt.Sprintf("tenant-%d", i),
			plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax})
		if err != nil {
			return err
		}
		tokens = append(tokens, token)
	}
	small, err := newKey(ctx, store, "small", plan.Limits{Minute: 1, Day: 1})
	if err != nil {
		return err
	}
	banned, err := newKey(ctx, store, "banned", plan.Limits{Minute: 1, Day: 1})
	if err != nil {
		return err
	}
	keys := strings.Join(tokens, "\n") + "\n"
	return errors.Join(
		os.WriteFile(l.keysPath, []byte(keys), 0o600),
		os.WriteFile(l.keyMapPath, []byte(strings.ReplaceAll(keys, "\n", " 1\n")), 0o600),
		os.WriteFile(l.smallKeyPath, []byte(small+"\n"), 0o600),
		os.WriteFile(l.bannedPath, []byte(banned+"\n"), 0o600),
	)
}

func newKey(ctx context.Context, store *keystore.Store, name string, limits plan.Limits) (token string, err error) {
	tenant, _, err := store.CreateTenant(ctx, keystore.TenantSpec{Name: name, Plan: "enterprise", Override: limits})
	if err != nil {
		return "", err
	}
	_, token, _, err = store.CreateKey(ctx, keystore.KeySpec{
		Tenant: tenant.ID, Name: "bench", Environment: apikey.Live, Scopes: "pets:read pets:write",
	})
	return token, err
}
