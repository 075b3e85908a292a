package main

import (
	"encoding/json"
	"strings"
	"testing"

	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// A key may have the scopes that gateways report, and those that it has already. Without --scope it gets all but the gateway's own.
func TestScopesThatGatewaysReport(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "acme")
	s.ok("key", "create", "acme", "--scope", "future:read") // before the first gateway
	r := keystore.Registration{ID: "gw-1", Incarnation: "a"}
	store := s.store()
	if _, err := store.Register(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	document := keystore.Document{Hash: "0123456789ab", Title: "Orders", Version: "7", Scopes: []string{"read", "orders:write"}}
	must.Do(t, store.DescribeGateway(t.Context(), r, document))
	s.want(exitUsage, `no operation of the registered gateways needs the scope "pets:read": use orders:write, read, usage:read`,
		"key", "create", "acme", "--scope", "read", "--scope", "pets:read")
	create := func(args ...string) (key operate.KeyView) {
		t.Helper()
		made := s.keyadmin(append([]string{"key", "create", "acme", "--wait", "0", "-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(made.stdout), &key); err != nil {
			t.Fatalf("%v: %s%s", err, made.stdout, made.stderr)
		}
		return key
	}
	if got := strings.Join(create().Scopes, " "); got != "orders:write read" {
		t.Errorf("without --scope, a key has %s", got)
	}
	key := create("--scope", "usage:read", "--scope", "read")
	if got := strings.Join(key.Scopes, " "); got != "read usage:read" {
		t.Errorf("a key has %s", got)
	}
	s.want(exitUsage, `needs the scope "pets:write"`, "key", "update", key.ID, "--scope", "pets:write")
	s.keyadmin("key", "update", key.ID, "--scope", "orders:write", "--wait", "0")
	document.Scopes = nil
	must.Do(t, store.DescribeGateway(t.Context(), r, document))
	if got := s.keyadmin("key", "update", key.ID, "--name", "kept", "--wait", "0"); strings.Contains(got.stderr, "scope") {
		t.Errorf("a key cannot keep its scopes: %s", got.stderr)
	}
	if got := s.keyadmin("gateway", "list").stdout; !strings.Contains(got, "Orders 7 (0123456789ab)") {
		t.Errorf("gateway list does not name the document:\n%s", got)
	}
}
