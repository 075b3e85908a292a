package main

import (
	"strings"
	"testing"

	"petgate/shared/testkit"
)

// audit --follow prints each change once, as it is made, under one head.
func TestAuditFollow(t *testing.T) {
	for _, c := range []struct {
		format string
		heads  string // occurs once
	}{{"table", "EVENT"}, {"csv", "id,at,actor"}, {"json", ""}} {
		s := newMigrated(t, testkit.SQLite(t))
		s.ok("tenant", "create", "before")
		other := newShell(t, strings.TrimPrefix(s.env[0], "DATABASE_URL="))
		other.random = s.random
		steps := []string{"one", "two", ""}
		s.onSleep = func() {
			if name := steps[0]; name != "" {
				other.now = s.now
				other.ok("tenant", "create", name)
			}
			steps = steps[1:]
			s.ended = len(steps) == 0
		}
		r := s.want(exitDone, "", "audit", "--follow", "--kind", "tenant", "-o", c.format)
		for _, name := range []string{"before", "one", "two"} {
			if n := strings.Count(r.stdout, `name "`+name+`",`) + strings.Count(r.stdout, `"name": "`+name+`"`) + strings.Count(r.stdout, `""name"":""`+name+`""`); n != 1 {
				t.Errorf("%s: %q occurs %d times in\n%s", c.format, name, n, r.stdout)
			}
		}
		if n := strings.Count(r.stdout, c.heads); c.heads != "" && n != 1 {
			t.Errorf("%s: %d heads in\n%s", c.format, n, r.stdout)
		}
	}
}
