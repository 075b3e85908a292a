package quotas

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
)

// A Redis that comes back empty after an outage is charged with what this gateway saw before: for the day, and for the minute
// while that use is in the window.
func TestRedisComesBackEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &flaky{records: store.NewMemory(quota.Product, time.Now)}
		l := newFake(t, Config{}, server.Decide)
		a := asking(1, 60)
		for range 40 {
			mustTake(t, l, a)
		}
		server.fail(errRefused)
		mustTake(t, l, a)
		server.records = store.NewMemory(quota.Product, time.Now)
		server.fail(nil)
		time.Sleep(time.Second)
		if v := mustTake(t, l, a); v.Minute.Used != 42 || v.Day.Used != 42 {
			t.Errorf("after the outage: %+v, want 40 + 1 + 1 used", v)
		}

		time.Sleep(61 * time.Second)
		server.records = store.NewMemory(quota.Product, time.Now)
		if v := mustTake(t, l, a); v.Minute.Used != 1 || v.Day.Used != 43 {
			t.Errorf("a minute later: %+v, want 1 used in the minute and 43 in the day", v)
		}
	})
}

// A batch that carried a debt and was not answered may have charged it. The debt is not charged again.
func TestUnansweredDebtIsNotChargedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &flaky{records: store.NewMemory(quota.Product, time.Now)}
		var silent atomic.Bool
		l := newFake(t, Config{}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
			err := server.Decide(ctx, demands, results)
			if err == nil && silent.Load() {
				return errTimeout
			}
			return err
		})
		a := asking(1, 60)
		server.fail(errRefused)
		mustTake(t, l, a) // the debt
		server.fail(nil)
		time.Sleep(time.Second)
		silent.Store(true)
		mustTake(t, l, a) // carries it
		silent.Store(false)
		time.Sleep(time.Second)
		if v := mustTake(t, l, a); v.Minute.Used != 3 || v.Day.Used != 3 {
			t.Errorf("after three requests: %+v, want 3 used", v)
		}
	})
}

// Redis loses a tenant's record, but not the mark of the tenant's reset. A gateway that was started after the reset still tells
// Redis the use that it knows.
func TestKnownUseAfterAResetAndARestart(t *testing.T) {
	first := openShared(t, Config{})
	a := asking(1, 60)
	if err := first.Reset(background, Reset{Tenant: a.Tenant, UUID: "u"}); err != nil {
		t.Fatal(err)
	}
	again := openQuotas(t, Config{RedisURL: first.config.RedisURL, Prefix: first.config.Prefix})
	if n := takeAll(t, again, a, 40); n != 40 {
		t.Fatalf("%d admitted, want 40", n)
	}
	if err := operator(t, again).Del(background, first.config.Prefix+"{"+a.Tenant.String()+"}").Err(); err != nil {
		t.Fatal(err)
	}
	if n := takeAll(t, again, a, 60); n != 20 {
		t.Errorf("%d admitted after the loss, want the minute's last 20", n)
	}
}
