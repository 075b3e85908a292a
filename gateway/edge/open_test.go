package edge_test

import (
	"slices"
	"strings"
	"testing"

	"petgate/shared/api"
)

// An operation that needs no key is forwarded without a tenant and charged to nobody, with or without a key. Its neighbours need a key.
func TestPublicOperation(t *testing.T) {
	r := newRig(t, func(s *setup) {
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
	forwarded := texts(r.upstream.Seen())
	for _, seen := range forwarded {
		if strings.Contains(strings.ToLower(seen), "x-tenant-id") || strings.Contains(seen, "ptg_") {
			t.Errorf("the upstream is told a tenant or a key: %s", seen)
		}
	}
	if n := len(forwarded); n != 4 {
		t.Errorf("the upstream saw %d requests, want 4", n)
	}
}

// Operations can be replaced while requests are served.
func TestSetOperations(t *testing.T) {
	r := newRig(t, nil)
	client := r.dial(t)
	if got := client.ask(t, rawTarget("/orders")); got.Status != 404 {
		t.Fatalf("before: %d", got.Status)
	}
	if err := r.edge.SetOperations([]api.Operation{{ID: "listOrders", Method: "GET", Path: "/orders", Scope: "pets:read"}}); err != nil {
		t.Fatal(err)
	}
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
