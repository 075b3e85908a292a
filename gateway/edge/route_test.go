package edge_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/directory"
	"petgate/gateway/quotas"
	"petgate/gateway/quotas/authfailures"
	"petgate/shared/api"
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// sunsetAt changes a rig so that the operation getPet ends at end.
func sunsetAt(end time.Time) func(*setup) {
	return func(s *setup) {
		s.Operations = slices.Clone(operations)
		for i, o := range s.Operations {
			if o.ID == "getPet" {
				o.DeprecatedAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
				o.SunsetAt, o.Successor, o.Stability = end, "/v1/pets", "beta"
				s.Operations[i] = o
			}
		}
	}
}

// with adds operations to a rig.
func (s *setup) with(more ...api.Operation) { s.Operations = append(slices.Clone(operations), more...) }

// Allow names the methods of a path. One that an upstream may decode to another operation's has no operation and no methods.
func TestAllow(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.with(api.Operation{ID: "getBest", Method: "GET", Path: "/v1/pets/best", Scope: "pets:write"})
	})
	f := func(line, want, allow, message string) {
		t.Helper()
		got := r.ask(t, rawLine(line))
		if got.expect(t, line, want); got.field("allow") != allow || !strings.Contains(got.Body, message) {
			t.Errorf("%s: got Allow %q, want %q; %s", line, got.field("allow"), allow, got.Body)
		}
	}
	f("PUT /v1/pets HTTP/1.1", "405 method_not_allowed", "GET, HEAD, POST", "Its methods are GET, HEAD, POST")
	f("BREW /v1/pets/7 HTTP/1.1", "405 method_not_allowed", "GET, HEAD", "")
	f("GET /v1/pets/b%65st HTTP/1.1", "404 no_such_route", "", "without percent-encoding")
}

// A request costs what its operation says. What is not forwarded costs one. The cost is charged from the key's own limits too.
func TestCost(t *testing.T) {
	var asked quotas.Request
	r := newRig(t, func(s *setup) {
		s.with(api.Operation{ID: "search", Method: "GET", Path: "/v1/search", Scope: "pets:write", Cost: 5})
		s.changeEntries(func(e *directory.Entry) { e.KeyLimits, e.MonthStarts = plan.Limits{Minute: 9}, 15 })
		take := s.take
		s.take = func(a quotas.Request) (quota.Verdict, error) {
			asked = a
			return take(a)
		}
	})
	client := r.dial(t)
	for _, c := range []struct {
		key, target string
		status      int
		cost        int64
		told        string
	}{
		{token, "/v1/search", 200, 5, "5"},
		{token, "/v1/pets", 200, 1, ""},
		{token, "/v1/none", 404, 1, ""},
		{readerToken, "/v1/search", 403, 1, ""},
	} {
		got := client.ask(t, rawBare("GET "+c.target+" HTTP/1.1", "Host: a", "Authorization: Bearer "+c.key))
		if got.Status != c.status || asked.Cost != c.cost || got.field("x-request-cost") != c.told || asked.Cap.Minute != 9 || asked.Key == (id.Key{}) || asked.MonthStarts != 15 {
			t.Errorf("%+v: %d, asked %+v, told %q", c, got.Status, asked, got.field("x-request-cost"))
		}
	}
}

// An operation that needs no key is forwarded without a tenant and charged to nobody, with or without a key. Its neighbours need a key.
func TestPublicOperation(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.BodyBytesMax = len(long)
		s.with(
			api.Operation{ID: "health", Method: "GET", Path: "/health", IsPublic: true},
			api.Operation{ID: "report", Method: "POST", Path: "/reports/{id}", IsPublic: true},
			api.Operation{ID: "readReport", Method: "GET", Path: "/reports/{id}", Scope: "pets:read"})
	})
	f := func(request, want string) {
		t.Helper()
		before := r.admitted.Load()
		if r.ask(t, request).expect(t, clip(request), want); r.admitted.Load() != before {
			t.Errorf("%.40q: charged %d", request, r.admitted.Load()-before)
		}
	}
	f(keyless("GET /health HTTP/1.1"), "200")
	f(keyless("HEAD /health HTTP/1.1"), "200")
	f(keyless("POST /reports/7 HTTP/1.1", "Content-Length: 5")+"hello", "201")
	f(keyless("GET /reports/7 HTTP/1.1"), "401 missing_api_key")
	f(keyless("PUT /reports/7 HTTP/1.1", "Content-Length: 0"), "401 missing_api_key")
	f(strings.Replace(rawTarget("/health"), token, unknownToken, 1), "200")
	f(keyless("POST /reports/8 HTTP/1.1", "Content-Length: "+decimal(len(long)))+long, "201")
	forwarded := texts(r.upstream.Seen())
	for _, seen := range forwarded {
		if strings.Contains(strings.ToLower(seen), "x-tenant-id") || strings.Contains(seen, "ptg_") {
			t.Errorf("the upstream is told a tenant or a key: %s", seen)
		}
	}
	if n := len(forwarded); n != 5 {
		t.Errorf("the upstream saw %d requests, want 5", n)
	}
	r.upstream.Answer(saying(says("Content-Length: "+decimal(len(long))) + long))
	f(keyless("GET /health HTTP/1.1"), "200")
}

// All strangers together get the slots of one tenant, so a tenant still gets its own. A stranger who has tried too many keys is refused.
func TestPublicOperationIsBounded(t *testing.T) {
	var isGuessing atomic.Bool
	r := newRig(t, func(s *setup) {
		s.with(api.Operation{ID: "health", Method: "GET", Path: "/health", IsPublic: true})
		s.UpstreamConnsMax, s.TenantConnsMax, s.UpstreamTimeout = 2, 1, patience
		s.attempts = func() (authfailures.State, bool) {
			state := guardState
			if isGuessing.Load() {
				state.Remaining = 0
			}
			return state, true
		}
	})
	health, slow := keyless("GET /health HTTP/1.1"), r.hold(t)
	slow.send(t, r.dial(t), keyless("GET /health?slow HTTP/1.1"))
	r.ask(t, health).expect(t, "another stranger", "503 upstream_overloaded")
	r.ask(t, rawGet()).expect(t, "a tenant", "200")
	slow.end(t, 1)
	r.ask(t, health).expect(t, "a stranger", "200")
	isGuessing.Store(true)
	r.ask(t, health).expect(t, "a stranger who guesses", "429 too_many_failed_attempts")
	r.ask(t, rawGet()).expect(t, "a tenant at that address", "200")
}
