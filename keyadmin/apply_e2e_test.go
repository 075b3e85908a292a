//go:build e2e

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
)

// Ten thousand tenants in one document take at most 30 s.
func TestApplyTenThousandTenants(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newMigrated(t, url)
		text := "version: 1\ntenants:\n"
		for n := range 10_000 {
			text += fmt.Sprintf("- {name: tenant-%05d, plan: enterprise, minute: %d, day: 100000}\n", n, n+1)
		}
		path := s.file(text)
		s.terminal, s.stdin = true, "y\n"
		begin := time.Now()
		r := s.want(exitDone, "", "apply", path)
		if took := time.Since(begin); took > 30*time.Second || !strings.Contains(r.stderr, "Applied 10,000 changes.") {
			t.Errorf("took %v:\n%s", took, r.stderr)
		} else {
			t.Logf("took %v", took)
		}
		begin = time.Now()
		s.want(exitDone, "There is nothing to change.", "diff", path)
		t.Logf("diff took %v", time.Since(begin))
	})
}
