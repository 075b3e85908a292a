package quotas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeBackend decides as its functions say.
type fakeBackend struct {
	onDecide func(ctx context.Context, demands []demand, results []result) error
	onForget func(t id.Tenant) error
}

func (f *fakeBackend) decide(ctx context.Context, demands []demand, results []result) error {
	return f.onDecide(ctx, demands, results)
}

func (f *fakeBackend) forget(_ context.Context, t id.Tenant) error { return f.onForget(t) }

// newFake returns a Limiter over a backend of the test's own, which ends with the test.
func newFake(t testing.TB, cfg Config, onDecide func(context.Context, []demand, []result) error) *Limiter {
	l := newShared(cfg.withDefaults(), &fakeBackend{onDecide: onDecide, onForget: func(id.Tenant) error { return nil }})
	t.Cleanup(func() { _ = l.Close(background) })
	return l
}

// trips is a log of what a backend was asked for.
type trips [][]demand

func (r *trips) add(demands []demand) { *r = append(*r, slices.Clone(demands)) }

// errTimeout is what a trip ends with when nobody answers.
var errTimeout = fmt.Errorf("read: %w", context.DeadlineExceeded)

// errRefused is an answer that says that nothing was executed.
var errRefused = replyError("OOM command not allowed when used memory > 'maxmemory'")

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

func asking(n int, minute int64) Ask {
	return Ask{Tenant: tenant(n), Version: 1, Limits: plan.Limits{Minute: minute, Day: 100_000}}
}

// takeAll takes count at once, and returns how many were admitted.
func takeAll(t testing.TB, l *Limiter, a Ask, count int) (admitted int) {
	t.Helper()
	type answer struct {
		quota.Verdict
		error
	}
	answers := make(chan answer, count)
	for range count {
		go func() {
			v, err := l.Take(a)
			answers <- answer{v, err}
		}()
	}
	for range count {
		got := <-answers
		if got.error != nil {
			t.Errorf("Take: %v", got.error)
		}
		admitted += int(got.Granted)
	}
	return admitted
}

func mustTake(t testing.TB, l *Limiter, a Ask) quota.Verdict {
	t.Helper()
	v, err := l.Take(a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

var errTest = errors.New("test")

var generous = plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}

func openLimiter(t testing.TB, cfg Config) *Limiter {
	t.Helper()
	l, err := Open(background, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(background) })
	return l
}

// openShared returns a Limiter on the tests' common Redis, under a prefix of its own.
func openShared(t testing.TB, cfg Config) *Limiter {
	t.Helper()
	cfg.RedisURL, cfg.Prefix = testkit.Redis(t)
	return openLimiter(t, cfg)
}
