package edge_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"petgate/gateway/quotas/authfailures"
	"petgate/shared/api"
	"petgate/shared/testkit/must"
)

// An operation that needs no key is forwarded without a tenant and charged to nobody, with or without a key. Its neighbours need a key.
func TestPublicOperation(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.BodyBytesMax = len(long)
		s.Operations = append(slices.Clone(operations),
			api.Operation{ID: "health", Method: "GET", Path: "/health", IsPublic: true},
			api.Operation{ID: "report", Method: "POST", Path: "/reports/{id}", IsPublic: true},
			api.Operation{ID: "readReport", Method: "GET", Path: "/reports/{id}", Scope: "pets:read"})
	})
	f := func(request string, status int, code string) {
		t.Helper()
		before := r.admitted.Load()
		got := r.dial(t).ask(t, request)
		if got.Status != status || codeOf(got) != code || r.admitted.Load() != before {
			t.Errorf("%.40q: %d %s, charged %d; want %d %s", request, got.Status, codeOf(got), r.admitted.Load()-before, status, code)
		}
	}
	f(keyless("GET /health HTTP/1.1"), 200, "")
	f(keyless("HEAD /health HTTP/1.1"), 200, "")
	f(keyless("POST /reports/7 HTTP/1.1", "Content-Length: 5")+"hello", 201, "")
	f(keyless("GET /reports/7 HTTP/1.1"), 401, "missing_api_key")
	f(keyless("PUT /reports/7 HTTP/1.1", "Content-Length: 0"), 401, "missing_api_key")
	f(strings.Replace(rawTarget("/health"), token, unknownToken, 1), 200, "")
	f(keyless("POST /reports/8 HTTP/1.1", "Content-Length: "+decimal(len(long)))+long, 201, "")
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
	f(keyless("GET /health HTTP/1.1"), 200, "")
}

// All strangers together get the slots of one tenant, so a tenant still gets its own. A stranger who has tried too many keys is refused.
func TestPublicOperationIsBounded(t *testing.T) {
	var isGuessing atomic.Bool
	r := newRig(t, func(s *setup) {
		s.Operations = append(slices.Clone(operations), api.Operation{ID: "health", Method: "GET", Path: "/health", IsPublic: true})
		s.UpstreamConnsMax, s.TenantConnsMax, s.UpstreamTimeout = 2, 1, patience
		s.attempts = func() (authfailures.State, bool) {
			state := guardState
			if isGuessing.Load() {
				state.Remaining = 0
			}
			return state, true
		}
	})
	f := func(request string, status int, code string) {
		t.Helper()
		if got := r.dial(t).ask(t, request); got.Status != status || codeOf(got) != code || (status >= 429) != (got.field("retry-after") != "") {
			t.Errorf("%.40q: %d %s, Retry-After %q; want %d %s", request, got.Status, codeOf(got), got.field("retry-after"), status, code)
		}
	}
	health := keyless("GET /health HTTP/1.1")
	slow := r.hold(t)
	holding := r.dial(t)
	go func() {
		got, _ := holding.try(keyless("GET /health?slow HTTP/1.1"))
		slow.responses <- got
	}()
	receive(t, slow.arrived, "a stranger's slow request arrives at the upstream")
	f(health, 503, "upstream_overloaded")
	f(rawGet(), 200, "")
	slow.end(t, 1)
	f(health, 200, "")
	isGuessing.Store(true)
	f(health, 429, "too_many_failed_attempts")
	f(rawGet(), 200, "")
}

// Operations can be replaced while requests are served.
func TestSetOperations(t *testing.T) {
	r := newRig(t, nil)
	client := r.dial(t)
	if got := client.ask(t, rawTarget("/orders")); got.Status != 404 {
		t.Fatalf("before: %d", got.Status)
	}
	must.Do(t, r.edge.SetOperations([]api.Operation{{ID: "listOrders", Method: "GET", Path: "/orders", Scope: "pets:read"}}))
	if got := client.ask(t, rawTarget("/orders")); got.Status != 200 {
		t.Errorf("the new operation: %d %s", got.Status, codeOf(got))
	}
	if got := client.ask(t, rawTarget("/v1/pets")); got.Status != 404 {
		t.Errorf("the old operation: %d", got.Status)
	}
	if err := r.edge.SetOperations(nil); err == nil {
		t.Error("no operations are accepted")
	}
	if got := client.ask(t, rawTarget("/orders")); got.Status != 200 {
		t.Errorf("after a refused change: %d", got.Status)
	}
}
