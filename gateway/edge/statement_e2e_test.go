//go:build e2e

package edge_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"petgate/gateway/edge"
	"petgate/shared/testkit"
)

// A client waits for two seconds at most, even if the database driver ignores the end of the context. A read that hangs still counts
// among the two.
func TestStatementHangs(t *testing.T) {
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	r := newRig(t, func(s *setup) {
		s.statementWithin = 0
		s.Statements = fakeStatements(func(ctx context.Context, ask asked) (edge.Statement, error) {
			<-released
			return twoRows(ctx, ask)
		})
	})
	t.Cleanup(release)
	answers := make(chan answer, 2)
	began := time.Now()
	for _, key := range []string{token, otherToken} {
		waiting := r.dial(t)
		go func() {
			a, _ := waiting.try(rawUsageOf(key))
			answers <- a
		}()
	}
	for range 2 {
		if got := receive(t, answers, "a request is answered"); codeOf(got) != "usage_unavailable" {
			t.Errorf("%d %s", got.Status, got.Body)
		}
	}
	if took := time.Since(began); took < 2*time.Second || took > 10*time.Second {
		t.Errorf("the clients waited for %v", took)
	}
	client := r.dial(t)
	if got := client.ask(t, rawUsageOf(rotatedToken)); codeOf(got) != "usage_overloaded" {
		t.Errorf("a third one: %d %s", got.Status, got.Body)
	}
	release()
	testkit.Eventually(t, patience, "usage can be read again", func() bool { return client.ask(t, rawUsage("")).Status == 200 })
}
