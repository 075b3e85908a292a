package quotas

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/redis"
	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
)

// clusterStore decides each tenant of a batch alone, as Redis Cluster does. The test says which calls are executed, and which of the
// answers are lost.
type clusterStore struct {
	records memory
	mu      sync.Mutex
	reports reports
	fault   func(c clusterCall) (executed bool, err error)
}

// clusterCall is the call for one tenant.
type clusterCall struct {
	tenant byte // the last one of its ID; 0: a probe
	kind   string
}

// The kinds of calls.
const (
	takes = "takes" // requests
	tells = "tells" // unreported requests
)

func newOverCluster(t *testing.T, c *clusterStore) *Shared {
	c.records = newMemory(quota.Product, time.Now)
	c.fault = func(clusterCall) (bool, error) { return true, nil }
	s := newShared(Config{}.withDefaults())
	s.start(background, redis.New(s.redisConfig(), c, s))
	t.Cleanup(func() { _ = s.Close(background) })
	return s
}

func (c *clusterStore) DecideBatch(_ context.Context, number int64, demands []store.Demand, results []store.Result) error {
	time.Sleep(time.Millisecond) // other requests gather
	c.mu.Lock()
	defer c.mu.Unlock()
	failed, worst := 0, error(nil)
	for i := range demands {
		if err := c.decide(number, demands[i:i+1], results[i:i+1]); err != nil {
			failed++
			results[i] = store.Result{Err: err}
			if worst == nil || errors.Is(err, errTimeout) {
				worst = err
			}
		}
	}
	if failed == len(demands) {
		return worst
	}
	return nil
}

// decide makes the call for one tenant. The caller must hold mu.
func (c *clusterStore) decide(number int64, demand []store.Demand, result []store.Result) error {
	call := clusterCall{demand[0].Tenant[9], takes}
	if demand[0].Want == 0 {
		call.kind = tells
	}
	executed, lost := c.fault(call)
	if !executed {
		return lost
	}
	err := c.reports.decide(number, demand, result, func(demand []store.Demand, result []store.Result) error {
		return c.records.Decide(background, demand, result)
	})
	if lost != nil {
		return lost
	}
	return err
}

// setFault says what happens to the calls from now on. once happens only to the first call of that kind for tenant 2.
func (c *clusterStore) setFault(always func(clusterCall) (bool, error), kind string, once func() (executed bool, err error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	happened := false
	c.fault = func(call clusterCall) (bool, error) {
		if !happened && call == (clusterCall{2, kind}) {
			happened = true
			return once()
		}
		return always(call)
	}
}

func fine(clusterCall) (bool, error) { return true, nil }

// charged checks that Redis decides again, and how many requests it has charged to the tenants 1 and 2.
func charged(t *testing.T, l *Shared, want ...int64) {
	t.Helper()
	time.Sleep(2 * time.Second)
	for i, n := range want {
		if v := mustTake(t, l, asking(i+1, 60)); v.Degraded || v.Usages[quota.Minute].Used != n+1 || v.Usages[quota.Day].Used != n+1 {
			t.Errorf("tenant %d: %+v, want %d used before", i+1, v, n)
		}
	}
	if len(l.share.unreported) != 0 {
		t.Errorf("unreported: %+v", l.share.unreported)
	}
}

// whetherExecuted runs a test twice: Redis has executed a call that it does not answer, or not.
func whetherExecuted(t *testing.T, f func(t *testing.T, executed bool)) {
	for name, executed := range map[string]bool{"executed": true, "not executed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, executed) })
		})
	}
}

// asked is requests in the order of their arrival, and their verdicts.
type asked struct {
	all      sync.WaitGroup
	verdicts []*quota.Verdict
}

// ask sends a request of tenant n, and returns when it waits.
func (a *asked) ask(l *Shared, n int) {
	v := new(quota.Verdict)
	a.verdicts = append(a.verdicts, v)
	a.all.Go(func() { *v, _ = l.Take(asking(n, 60)) })
	synctest.Wait()
}

// used waits for all requests.
func (a *asked) used() { a.all.Wait() }

// Of a batch with two tenants, Redis does not answer for one. The server is then down, and the gateway decides that tenant's request. It
// is charged as one of the gateway, and once more if Redis has executed its call.
func TestAPartOfABatchIsLost(t *testing.T) {
	whetherExecuted(t, func(t *testing.T, executed bool) {
		var c clusterStore
		l := newOverCluster(t, &c)
		var a asked
		a.ask(l, 9)
		c.setFault(fine, takes, func() (bool, error) { return executed, errTimeout })
		a.ask(l, 1)
		a.ask(l, 2)
		a.used()
		twice := int64(1 + btoi(executed))
		if l.Mode() != modeOutage || a.verdicts[1].Degraded || !a.verdicts[2].Degraded {
			t.Errorf("mode %s, verdicts %+v, %+v", l.Mode(), a.verdicts[1], a.verdicts[2])
		}
		charged(t, l, 1, twice)
	})
}

// oweBoth lets both tenants be admitted in an outage.
func oweBoth(t *testing.T, c *clusterStore) *Shared {
	l := newOverCluster(t, c)
	mustTake(t, l, asking(9, 60))
	c.setFault(func(clusterCall) (bool, error) { return false, errRefused }, "", nil)
	for n := 1; n <= 2; n++ {
		if v := mustTake(t, l, asking(n, 60)); !v.Degraded {
			t.Errorf("tenant %d: %+v", n, v)
		}
	}
	return l
}

// A gateway reports to Redis the requests of two tenants, and Redis does not answer for one.
func TestAPartOfTheReportIsLost(t *testing.T) {
	whetherExecuted(t, func(t *testing.T, executed bool) {
		var c clusterStore
		l := oweBoth(t, &c)
		c.setFault(fine, tells, func() (bool, error) { return executed, errTimeout })
		charged(t, l, 1, 1)
	})
}

// Redis does not answer to the report of two tenants, and then to one of the same demands that are sent again. Nothing is charged twice.
func TestAPartOfTheAnswersIsLost(t *testing.T) {
	whetherExecuted(t, func(t *testing.T, executed bool) {
		for _, again := range []error{errTimeout, errRefused} {
			var c clusterStore
			l := oweBoth(t, &c)
			lost, failed := map[byte]bool{}, false
			c.setFault(func(call clusterCall) (bool, error) {
				switch {
				case call.kind == tells && !lost[call.tenant]:
					lost[call.tenant] = true
					return executed, errTimeout
				case call.kind == tells && call.tenant == 2 && !failed:
					failed = true
					return executed && again == errTimeout, again
				}
				return true, nil
			}, "", nil)
			charged(t, l, 1, 1)
			if !failed {
				t.Error("the demand was not sent again")
			}
		}
	})
}
