package main

import (
	"strings"
	"testing"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
)

// crowded fills a database with what makes tables wide, and returns a key.
func crowded(s *shell) (key string) {
	s.t.Helper()
	s.ok("tenant", "create", "acme")
	s.ok("tenant", "create", "a tenant with a long name and many words in it", "--plan", "enterprise", "--minute", "1000000", "--day", "1000000000")
	s.ok("key", "create", "acme", "--name", "ci", "--expires", "90d", "--allow", "203.0.113.0/24", "--allow", "2001:db8::/32")
	key = keyID(s, "acme")
	s.ok("key", "create", "a tenant with a long name and many words in it", "--name", "one-word-without-any-space-that-is-as-long-as-names-may-become")
	s.ok("key", "rotate", key, "--grace", "36h")
	s.ok("ban", "add", key, "--for", "1h", "--reason", "it scrapes all pets, and its owner does not answer", "--yes")
	k, err := id.ParseKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	store := s.store()
	if _, err := store.ReportLost(s.t.Context(), []keystore.LostRefusal{{Kind: keystore.LostRevocation, Tenant: tenantID(s, "acme"), Key: k, At: 1}}); err != nil {
		s.t.Fatal(err)
	}
	s.gateway(store, "gw-1.eu-central.example.com", "10.0.0.5:9090")
	// Its age in hours is as wide on a slow machine as on a fast one.
	if _, err := s.open().Exec(`UPDATE gateways SET seen_at = seen_at - 9000000`); err != nil {
		s.t.Fatal(err)
	}
	s.record.Reset()
	return key
}

func tenantID(s *shell, name string) id.Tenant {
	s.t.Helper()
	t, err := s.store().Tenant(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return t.ID
}

// Tables fit the terminal and break no words. Without a terminal they are the same at every width.
func TestWidths(t *testing.T) {
	s := newMigrated(t, testkit.SQLite(t))
	key := crowded(s)
	shows := [][]string{
		{"tenant", "list"},
		{"tenant", "show", "acme"},
		{"plan", "list"},
		{"key", "list"},
		{"key", "show", key},
		{"ban", "list"},
		{"usage", "show", "acme"},
		{"audit"},
		{"gateway", "list"},
		{"gateway", "lost"},
	}
	plain := map[string]string{}
	for _, args := range shows {
		s.env = s.env[:2:2]
		plain[quoted(args)] = s.keyadmin(args...).stdout
	}
	s.record.Reset()
	s.terminal, s.width = true, 60 // where every table has to be narrowed
	for _, args := range shows {
		s.keyadmin(args...)
	}
	s.golden("widths")
	s.widths = []int{80, 120}
	for _, args := range shows {
		s.keyadmin(args...)
	}
	s.widths = nil
	s.terminal = false
	for _, args := range shows {
		if got := s.keyadmin(args...).stdout; args[0] != "gateway" && got != plain[quoted(args)] {
			t.Errorf("keyadmin %s without a terminal depends on the width:\n%s", quoted(args), got)
		}
	}
	s.terminal, s.width = true, 200
	s.env = append(s.env[:2:2], "COLUMNS=60", "NO_COLOR=1")
	if got := s.keyadmin("tenant", "list").stdout; strings.Contains(got, "CREATED") {
		t.Errorf("COLUMNS=60 makes the table no narrower:\n%s", got)
	}
}

// Every command whose output is data prints RFC 4180 with a header, also if there are no rows.
func TestCSV(t *testing.T) {
	s := newMigrated(t, testkit.SQLite(t))
	for _, c := range []struct{ args, want string }{
		{"tenant list", "id,name,plan,limits.minute,limits.day,override.minute,override.day,suspended,createdAt\r\n"},
		{"gateway lost", "kind,tenantId,keyId,at,reportedBy,reportedAt\r\n"},
	} {
		if got := s.keyadmin(append(strings.Fields(c.args), "-o", "csv")...).stdout; got != c.want {
			t.Errorf("%s:\n%q, want\n%q", c.args, got, c.want)
		}
	}
	s.ok("tenant", "create", `a "b", c`, "-o", "csv")
	if got := s.keyadmin("tenant", "list", "-o", "csv").stdout; !strings.Contains(got, `,"a ""b"", c",free,60,1000,,,false,2026-03-01T12:00:0`) {
		t.Errorf("tenant list -o csv:\n%s", got)
	}
}

// A table goes through four steps until it fits: ages, broken cells, columns left out, words cut.
func TestFit(t *testing.T) {
	wide := table{
		head:  []string{"ID", "NOTE", "WHEN"},
		rows:  [][]string{{"key_0123456789abcdef", "two words", "2026-03-01T12:00:00Z"}},
		spare: []string{"WHEN"},
	}
	now := newShell(t, "").now.Add(90e9)
	for _, c := range []struct {
		width   int
		want    string
		omitted int
	}{
		{0, "key_0123456789abcdef|two words|2026-03-01T12:00:00Z", 0},
		{53, "key_0123456789abcdef|two words|2026-03-01T12:00:00Z", 0},
		{52, "key_0123456789abcdef|two words|90 s ago", 0},
		{41, "key_0123456789abcdef|two words|90 s ago", 0},
		{40, "key_0123456789abcdef|two words", 1},
		{27, "key_0123456789abcdef|two words", 1},
		{26, "key_0123456789abcdef|two wor…", 1},
	} {
		got, omitted := wide.fit(c.width, now)
		if line := strings.ReplaceAll(strings.Join(got.rows[0], "|"), hardSpace, " "); len(omitted) != c.omitted || line != c.want {
			t.Errorf("at %d columns: %s, without %v; want %s", c.width, line, omitted, c.want)
		}
	}
}
