package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// fragmentLen is how much of a token's random part counts as a leak: more than its hint, and too much to be chance.
const fragmentLen = 8

// leaks reports whether text holds a piece of a token's random part.
func leaks(text, token string) bool {
	secret := token[len("ptg_live_"):]
	for i := 0; i+fragmentLen <= len(secret); i++ {
		if strings.Contains(text, secret[i:i+fragmentLen]) {
			return true
		}
	}
	return false
}

// dump writes out every row of every table.
func dump(t *testing.T, db *database.DB) string {
	t.Helper()
	names := `SELECT name FROM sqlite_master WHERE type = 'table'`
	if db.Dialect() == database.Postgres {
		names = `SELECT tablename FROM pg_tables WHERE schemaname = 'public'`
	}
	var tables []string
	must.Do(t, db.Select(&tables, names))
	for _, table := range []string{"tenant_keys", "events", "bans", "gateways"} {
		if !slices.Contains(tables, table) {
			t.Fatalf("there is no table %s, only %v", table, tables)
		}
	}
	var text strings.Builder
	for _, table := range tables {
		rows, err := db.Queryx("SELECT * FROM " + table)
		must.Do(t, err)
		for rows.Next() {
			values, err := rows.SliceScan()
			must.Do(t, err)
			for _, value := range values {
				fmt.Fprintf(&text, "%s\n", value)
			}
		}
		must.Do(t, rows.Err())
		rows.Close()
	}
	return text.String()
}

// A token is printed once, on standard output, by the command that creates it. After that, keyadmin neither prints nor stores
// the token or a part of it.
func TestTokensDoNotLeak(t *testing.T) {
	t.Parallel()
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newMigrated(t, url)
		s.ok("tenant", "create", "acme")
		planted := s.ok("key", "create", "acme")
		first := keyID(s, "acme")

		db := s.open()
		rename := func(name string) {
			t.Helper()
			if _, err := db.Exec(`UPDATE tenants SET name = $1`, name); err != nil {
				t.Fatal(err)
			}
			s.record.Reset()
			s.keyadmin("tenant", "list")
		}
		rename(planted)
		if !leaks(dump(t, db), planted) || !leaks(s.record.String(), planted) {
			t.Fatal("a planted token is not found")
		}
		rename("acme")

		var tokens []string
		mint := func(args ...string) {
			t.Helper()
			r := s.keyadmin(args...)
			token := strings.TrimSpace(stripStyle(r.stdout))
			if r.code != exitDone || len(token) != len(planted) || leaks(r.stderr, token) {
				t.Fatalf("keyadmin %s: exit %d, %q on standard output and on standard error:\n%s", quoted(args), r.code, r.stdout, r.stderr)
			}
			tokens = append(tokens, token)
		}
		for _, s.terminal = range []bool{false, true} {
			mint("key", "create", "acme", "--name", "ci", "-o", "table")
			mint("key", "create", "acme", "--test", "--expires", "1h")
			mint("key", "rotate", first, "--grace", "1h", "--yes")
			first = keyID(s, "acme")
		}
		s.record.Reset()

		wrong := unknownToken(s)
		tokens = append(tokens, wrong)
		for _, s.terminal = range []bool{false, true} {
			for _, s.stdin = range []string{tokens[0], tokens[3], wrong, wrong[:46], wrong + "x", strings.ToUpper(wrong)} {
				s.keyadmin("key", "whoami")
				s.keyadmin("usage", "explain", "-o", "json")
				s.keyadmin("key", "whoami", s.stdin)
			}
		}
		s.terminal = false
		s.keyadmin("key", "revoke", first)
		s.keyadmin("key", "rotate", first)
		for _, args := range []string{
			"tenant list", "tenant show acme", "key list", "key list acme -o json", "key show " + first, "ban add " + first + " --for 1h --reason x",
			"ban list", "usage show acme", "audit", "audit -o json", "gateway list", "plan list", "--help", "key --help",
		} {
			s.keyadmin(strings.Fields(args)...)
		}

		said, stored := s.record.String(), dump(t, db)
		if !strings.Contains(said, planted[len(planted)-4:]) || !strings.Contains(stored, planted[len(planted)-4:]) {
			t.Fatal("not even the hint of a token is found: this test looks in the wrong places")
		}
		for _, token := range tokens {
			// The record contains the command line. There the test itself gave a token as an argument.
			said = strings.ReplaceAll(strings.ReplaceAll(said, "whoami "+token, ""), "whoami "+strings.ToUpper(token), "")
		}
		said = strings.ReplaceAll(strings.ReplaceAll(said, "whoami "+wrong[:46]+"\n", ""), "whoami "+wrong+"x\n", "")
		for _, token := range append(tokens, planted) {
			for where, text := range map[string]string{"output": said, "database": stored} {
				if leaks(text, token) {
					t.Errorf("the %s holds token %s", where, token)
				}
			}
		}
	})
}
