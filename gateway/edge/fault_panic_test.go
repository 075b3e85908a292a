package edge_test

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/answers"
	"petgate/gateway/directory"
	"petgate/gateway/quotas"
	"petgate/gateway/quotas/authfailures"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// A stage that panics costs its own exchange: a 500 by the contract and one line in each log. Everyone else is served.
func TestPanic(t *testing.T) {
	unknown := rawKey("Authorization: Bearer " + unknownToken)
	for name, c := range map[string]struct {
		request string
		plant   func(s *setup, panics func())
	}{
		"directory": {rawGet(), func(s *setup, panics func()) {
			f := s.Directory.(fakeDirectory)
			lookup := f.lookup
			f.lookup = func(h apikey.Hash) (directory.Entry, bool) { panics(); return lookup(h) }
			s.Directory = f
		}},
		"freshness": {rawGet(), func(s *setup, panics func()) {
			f := s.Directory.(fakeDirectory)
			f.fresh = func(instant.Millis) bool { panics(); return true }
			s.Directory = f
		}},
		"guard": {unknown, func(s *setup, panics func()) {
			f := s.Guard.(fakeGuard)
			f.fail = func(netip.Addr) (authfailures.State, bool) { panics(); return guardState, true }
			s.Guard = f
		}},
		"quotas": {rawGet(), func(s *setup, panics func()) {
			f := s.Quotas.(fakeQuotas)
			take := f.take
			f.take = func(a quotas.Request) (quota.Verdict, error) { panics(); return take(a) }
			s.Quotas = f
		}},
		"known quotas": {rawKey("Authorization: Bearer " + suspendedToken), func(s *setup, panics func()) {
			f := s.Quotas.(fakeQuotas)
			f.known = func(_ id.Tenant, limits plan.Limits) quota.Verdict { panics(); return verdict(limits, 0) }
			s.Quotas = f
		}},
		"attempts known": {rawKey(), func(s *setup, panics func()) { // while the response is written
			f := s.Guard.(fakeGuard)
			f.known = func(netip.Addr) authfailures.State { panics(); return guardState }
			s.Guard = f
		}},
		"clock": {rawGet(), func(s *setup, panics func()) {
			clock := s.Clock
			s.Clock = func() time.Time { panics(); return clock() }
		}},
		"statements": {rawUsage(""), func(s *setup, panics func()) {
			s.Statements = fakeStatements(func() (answers.Statement, error) { panics(); return oneRow() })
		}},
		"usage": {rawGet(), func(s *setup, panics func()) {
			s.Usage = fakeUsage(func(directory.Usage) { panics() })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			broken.Store(true)
			r := newFaultRig(t, func(s *setup) {
				c.plant(s, func() {
					if broken.Load() {
						panic("planted")
					}
				})
			})
			got := r.dial(t).ask(t, c.request)
			if err := got.refusal(); name != "usage" && (err != nil || got.Status != 500 || got.Code != "internal") {
				t.Errorf("got %d %s %v", got.Status, got.Code, err)
			}
			r.awaitLines(t, 1)
			if !strings.Contains(r.log.String(), "planted") {
				t.Errorf("the log does not tell of it: %s", r.log)
			}
			broken.Store(false)
			for range 3 {
				if got := r.dial(t).ask(t, rawGet()); got.Status != 200 {
					t.Errorf("afterwards: %d %s", got.Status, got.Body)
				}
			}
		})
	}
}
