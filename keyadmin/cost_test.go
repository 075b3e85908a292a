package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// A limit below the cost of an operation is refused by every command that sets limits, with the names of the operation and the gateway.
func TestLimitsBelowACostAreRefused(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("plan", "create", "tiny", "--minute", "19", "--day", "100")
	s.ok("plan", "create", "probe", "--minute", "60", "--test-minute", "19")
	s.ok("tenant", "create", "acme")
	s.ok("key", "create", "acme", "--name", "ci")
	key, store := keyID(s, "acme"), s.store()
	must.Do(t, store.DescribeGateway(t.Context(), s.gateway(store, "gw-1", "127.0.0.1:1").Registration,
		keystore.Document{Costs: map[string]int64{"searchPets": 20}}))
	before := s.events()
	for _, c := range []struct{ args, limit string }{ // FILE holds what stands after "apply"
		{"plan create small --minute 19", "minute limit of 19"},
		{"plan create small --day 100 --test-minute 19", "minute limit of 19"},
		{"plan update free --minute 19", "minute limit of 19"},
		{"plan update free --test-minute 19", "minute limit of 19"},
		{"tenant create globex --minute 1 --day 19", "minute limit of 1"},
		{"tenant set-plan acme tiny", "minute limit of 19"},
		{"tenant set-plan acme probe", "minute limit of 19"},
		{"tenant set-plan acme free --minute 19", "minute limit of 19"},
		{"tenant set-quota acme --minute 5 --day 25", "minute limit of 5"},
		{"key create acme --minute 19", "minute limit of 19"},
		{"key create acme --day 19", "day limit of 19"},
		{"key update KEY --day 19 --yes", "day limit of 19"},
		{"apply plans: [{name: small, minute: 19}]", "minute limit of 19"},
		{"apply tenants: [{name: globex, plan: free, day: 19}]", "day limit of 19"},
		{"apply tenants: [{name: acme, plan: tiny}]", "minute limit of 19"},
		{"apply tenants: [{name: acme, plan: free, keys: [{id: KEY, name: ci, scopes: [usage:read], minute: 19}]}]", "minute limit of 19"},
	} {
		text := strings.ReplaceAll(c.args, "KEY", key)
		args := strings.Fields(text)
		if document, isDocument := strings.CutPrefix(text, "apply "); isDocument {
			file := filepath.Join(t.TempDir(), "document.yaml")
			must.Do(t, os.WriteFile(file, []byte("version: 1\n"+document), 0o600))
			args = []string{"apply", file}
		}
		if got := s.want(exitUsage, c.limit, append(args, "--wait", "0")...).stderr; !strings.Contains(got, "gateway gw-1: a request of operation searchPets costs 20") {
			t.Errorf("%s names no operation: %s", text, got)
		}
	}
	if after := s.events(); after != before {
		t.Errorf("refused changes made %d events", after-before)
	}
	for _, args := range []string{
		"key update KEY --minute 20 --yes", "tenant set-quota acme --minute 20 --yes", "tenant set-plan acme tiny --minute 20 --yes",
		"plan create enough --minute 20",
	} {
		s.want(exitUnconfirmed, "", append(strings.Fields(strings.ReplaceAll(args, "KEY", key)), "--wait", "0")...)
	}
}

// The limits in force after a change of a tenant's own limits admit no less in a longer period.
func TestOwnLimitsFitThoseOfThePlan(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "acme")
	for _, c := range []struct{ args, want string }{
		{"--month 999", "in force with plan free, a month limit of 999 is below the day limit of 1000"},
		{"--day 59", "in force with plan free, a day limit of 59 is below the minute limit of 60"},
		{"--minute 1001", "in force with plan free, a day limit of 1000 is below the minute limit of 1001"},
		{"--minute 9 --day 8", "a day limit of 8 is below the minute limit of 9"},
	} {
		s.want(exitUsage, c.want, append([]string{"tenant", "set-quota", "acme", "--yes"}, strings.Fields(c.args)...)...)
	}
	s.ok("tenant", "set-quota", "acme", "--minute", "1001", "--day", "1001", "--month", "1001", "--yes")
	s.ok("tenant", "set-quota", "acme", "--clear", "--yes")
}
