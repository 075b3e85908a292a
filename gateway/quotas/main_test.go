package quotas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"petgate/gateway/quotas/redis"
	"petgate/gateway/quotas/store"
	"petgate/gateway/quotas/store/storetest"
	"petgate/shared/core/id"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeStore is a store that decides by a function of the test. It remembers the batches for which the function made results, even if
// the function then returned an error.
type fakeStore struct {
	batches storetest.Batches
	losses  func() int // how often Redis has lost its data; nil: never

	mu      sync.Mutex
	noticed int // the value of losses at the last batch

	onDecide func(ctx context.Context, demands []store.Demand, results []store.Result) error
}

func (f *fakeStore) DecideBatch(ctx context.Context, number int64, demands []store.Demand, results []store.Result) error {
	f.noticeLoss()
	return f.batches.Decide(number, demands, results, func(demands []store.Demand, results []store.Result) error {
		return f.onDecide(ctx, demands, results)
	})
}

func (f *fakeStore) noticeLoss() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.losses == nil {
		return
	}
	if n := f.losses(); n > f.noticed {
		f.batches.Forget()
		f.noticed = n
	}
}

// newFake returns quotas that use a fakeStore with this function. They are closed when the test ends.
func newFake(t testing.TB, cfg Config, onDecide func(context.Context, []store.Demand, []store.Result) error) *Shared {
	return newFakeOver(t, new(fakeStore), cfg, onDecide)
}

func newFakeOver(
	t testing.TB, fake *fakeStore, cfg Config, onDecide func(context.Context, []store.Demand, []store.Result) error,
) *Shared {
	fake.onDecide = onDecide
	s := newShared(cfg.withDefaults())
	s.start(background, redis.New(s.redisConfig(), fake, s))
	t.Cleanup(func() { _ = s.Close(background) })
	return s
}

// trips is a log of the batches that a store received.
type trips [][]store.Demand

func (r *trips) add(demands []store.Demand) { *r = append(*r, slices.Clone(demands)) }

// errTimeout is the error of a trip without an answer.
var errTimeout = fmt.Errorf("read: %w", context.DeadlineExceeded)

// errRefused is an error reply of Redis: it has executed nothing.
var errRefused = storetest.Reply("OOM command not allowed when used memory > 'maxmemory'")

func asking(n int, minute int64) Request {
	r := storetest.Call(tenant(n), minute, 100_000)
	r.Version = 1
	return r
}

// takeAll makes count requests at the same time and returns how many were admitted.
func takeAll(t testing.TB, l Quotas, a Request, count int) (admitted int) {
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

func mustTake(t testing.TB, l Quotas, a Request) quota.Verdict {
	t.Helper()
	v, err := l.Take(a)
	must.Do(t, err)
	return v
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

var errTest = errors.New("test")

func openQuotas(t testing.TB, cfg Config) Quotas {
	t.Helper()
	l, err := Open(background, cfg)
	must.Do(t, err)
	t.Cleanup(func() { _ = l.Close(background) })
	return l
}

// redisBudget is longer than a busy machine stops Redis.
const redisBudget = 10 * time.Second

// openShared returns quotas on the tests' common Redis, under a prefix of its own.
func openShared(t testing.TB, cfg Config) *Shared {
	t.Helper()
	cfg.RedisURL, cfg.Prefix = testkit.Redis(t)
	cfg.Budget = redisBudget
	return openQuotas(t, cfg).(*Shared)
}

var background = context.Background()

func tenant(n int) id.Tenant { return id.Tenant{8: byte(n >> 8), 9: byte(n)} }

// operator is a connection to the Redis of l.
func operator(t testing.TB, l Quotas) *goredis.Client {
	t.Helper()
	options, err := goredis.ParseURL(l.(*Shared).config.RedisURL)
	must.Do(t, err)
	client := goredis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
