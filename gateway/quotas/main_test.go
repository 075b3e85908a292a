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
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store in this process.
type memory struct{ *store.Memory }

func newMemory(rule quota.Rule, clock func() time.Time) memory {
	return memory{store.NewMemory(rule, clock)}
}

func (m memory) Decide(_ context.Context, demands []store.Demand, results []store.Result) error {
	now := m.Now()
	for i := range demands {
		if d := &demands[i]; d.Joined {
			results[i].Verdict, results[i+1].Verdict = m.TakeBoth(now, d, &demands[i+1])
		} else if i == 0 || !demands[i-1].Joined {
			results[i].Verdict = m.Take(now, d)
		}
	}
	return nil
}

// reply is an error reply of Redis.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// fakeStore is a store that decides by a function of the test. It remembers which batches reported
// requests of a record, so that they are charged once, as take.lua does.
type fakeStore struct {
	losses   func() int // how often Redis has lost its data; nil: never
	onDecide func(ctx context.Context, demands []store.Demand, results []store.Result) error

	mu      sync.Mutex
	noticed int // the value of losses at the last batch
	reports map[report]bool
}

type report struct {
	record store.Name
	batch  int64
}

func (f *fakeStore) DecideBatch(
	ctx context.Context, number int64, demands []store.Demand, results []store.Result,
) error {
	asked := slices.Clone(demands)
	f.mu.Lock()
	if f.losses != nil {
		if n := f.losses(); n > f.noticed {
			f.reports, f.noticed = nil, n
		}
	}
	for i := range asked {
		if f.reports[report{asked[i].Name, number}] {
			asked[i].Unreported = quota.Use{}
		}
	}
	f.mu.Unlock()
	err := f.onDecide(ctx, asked, results)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, d := range asked {
		if results[i].Verdict.At != 0 && d.Unreported != (quota.Use{}) { // decided, even if there is an error
			if f.reports == nil {
				f.reports = map[report]bool{}
			}
			f.reports[report{d.Name, number}] = true
		}
	}
	return err
}

// newFake returns quotas that use a fakeStore with this function. They are closed when the test
// ends.
func newFake(t testing.TB, cfg Config, onDecide func(context.Context, []store.Demand, []store.Result) error) *Shared {
	return newFakeOver(t, new(fakeStore), cfg, onDecide)
}

func newFakeOver(
	t testing.TB, fake *fakeStore, cfg Config, onDecide func(context.Context, []store.Demand, []store.Result) error,
) *Shared {
	fake.onDecide = onDecide
	s := newShared(cfg.withDefaults())
	s.start(always, redis.New(s.redisConfig(), fake, s))
	t.Cleanup(func() { _ = s.Close(always) })
	return s
}

// trips is a log of the batches that a store received.
type trips [][]store.Demand

func (r *trips) add(demands []store.Demand) { *r = append(*r, slices.Clone(demands)) }

// errTimeout is the error of a trip without an answer.
var errTimeout = fmt.Errorf("read: %w", context.DeadlineExceeded)

// errRefused is an error reply of Redis: it has executed nothing.
var errRefused = reply("OOM command not allowed when used memory > 'maxmemory'")

func asking(n int, minute int64) Request {
	r := Request{
		Request: store.Request{
			Name:    store.Name{Tenant: tenant(n)},
			Version: 1,
			Limits:  plan.Limits{Minute: minute, Day: 100_000},
		},
	}
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
	return must.Get[quota.Verdict](t)(l.Take(a))
}

var errTest = errors.New("test")

func openQuotas(t testing.TB, cfg Config) Quotas {
	t.Helper()
	l := must.Get[Quotas](t)(Open(always, cfg))
	t.Cleanup(func() { _ = l.Close(always) })
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

var always = context.Background()

func tenant(n int) id.Tenant { return id.Tenant{8: byte(n >> 8), 9: byte(n)} }

// dial connects to one Redis server, as an operator does.
func dial(t testing.TB, url string) *goredis.Client {
	t.Helper()
	options := must.Get[*goredis.Options](t)(goredis.ParseURL(url))
	options.MaxRetries = -1
	client := goredis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
