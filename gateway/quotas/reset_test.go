package quotas

import (
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/keystore/usage"
	"petgate/shared/testkit/must"
)

// since returns the request as it is after a reset at this instant.
func resetAt(r Request, at instant.Millis) Request {
	r.Since = at
	return r
}

func wantUsed(t *testing.T, l Quotas, r Request, want int64) {
	t.Helper()
	if v, err := l.Peek(always, r); err != nil || v.Usages[quota.Minute].Used != want ||
		v.Usages[quota.Day].Used != want {
		t.Errorf("since %d: %+v, %v; want %d used", r.Since, v, err, want)
	}
	if v := l.Known(r); v.Usages[quota.Minute].Used != want || v.Usages[quota.Day].Used != want {
		t.Errorf("known since %d: %+v, want %d used", r.Since, v, want)
	}
}

// Every gateway takes up a reset at its own time. After it, it admits the whole limit once,
// together with the others. A gateway that has not taken it up charges what was used before, and
// its remembered refusals are not those of the new use.
func TestReset(t *testing.T) {
	late := openShared(t, Config{})
	first := openQuotas(t, Config{RedisURL: late.config.RedisURL, Prefix: late.config.Prefix, Budget: redisBudget})
	a := asking(1, 60)
	takeAll(t, late, a, 100)
	takeAll(t, first, a, 100)
	reset := resetAt(a, 7)
	must.Equal(t, takeAll(t, first, reset, 40), 40, "admitted after a reset")
	must.Equal(t, takeAll(t, late, a, 10), 0, "admitted by a gateway that has not taken it up")
	must.Equal(t, takeAll(t, late, reset, 40), 20, "admitted by a gateway that takes it up")
	wantUsed(t, first, resetAt(a, 8), 0) // another reset
}

// A reset while Redis is down holds at once, and over restarts and the recovery. Each record is
// charged with its own use.
func TestResetDuringAnOutage(t *testing.T) {
	files := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, r := newSiteWithFiles(t, 2, files), asking(1, 100)
		reset := resetAt(r, 7) // it counts apart from the tenant's other use, and so does its key
		reset.Test, reset.Key, reset.Cap = true, id.Key{1}, plan.Limits{Day: 101}
		for range 60 {
			mustTake(t, s.gateways[0], r)
		}
		s.server.fail(errRefused)
		before := s.use(r, s.gateways[0])
		after := s.use(reset, s.gateways[0])
		s.restart(0)
		if more := s.use(reset, s.gateways[0]); before != 20 || after != 50 || more != 0 {
			t.Errorf("in the outage %d of the 40 left were admitted, %d of 100 after the reset, and %d after a restart",
				before, after, more)
		}
		s.back()
		for _, g := range s.gateways {
			mustTake(t, g, r)
			mustTake(t, g, reset)
		}
		wantUsed(t, s.gateways[1], r, 60+20+2)
		wantUsed(t, s.gateways[1], reset, 50+2)
	})
}

// Records in the database have the instant of the reset too: a restart brings no earlier use back.
func TestResetOfSavedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saver := &savedRecords{byName: map[store.Name]usage.QuotaRecord{}}
		a := asking(1, 60)
		reset := resetAt(a, 7)
		l := openQuotas(t, Config{Saver: saver})
		for range 3 {
			mustTake(t, l, a)
		}
		mustTake(t, l, reset)
		time.Sleep(2 * saveEvery)
		again := openQuotas(t, Config{Saver: saver})
		wantUsed(t, again, reset, 1)
		wantUsed(t, again, resetAt(a, 8), 0)
	})
}
