package edge_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/gateway/directory"
	"petgate/gateway/quotas"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
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

func TestAllow(t *testing.T) {
	r := newRig(t, nil)
	f := func(request, want string) {
		t.Helper()
		if got := r.dial(t).ask(t, request); got.Status != 405 || got.field("allow") != want {
			t.Errorf("got %d with Allow %q, want %q", got.Status, got.field("allow"), want)
		}
	}
	f(rawStart("PUT /v1/pets HTTP/1.1"), "GET, HEAD, POST")
	f(rawStart("POST /v1/pets/7 HTTP/1.1"), "GET, HEAD")
	f(rawStart("BREW /v1/pets/7 HTTP/1.1"), "GET, HEAD")
}

// A path that an upstream may decode to another operation's has no operation and no methods.
func TestPathWithTwoMeanings(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.Operations = append(slices.Clone(operations), api.Operation{ID: "getBest", Method: "GET", Path: "/v1/pets/best", Scope: "pets:write"})
	})
	if got := r.dial(t).ask(t, rawTarget("/v1/pets/b%65st")); got.Status != 404 || codeOf(got) != "no_such_route" || !strings.Contains(string(got.Body), "without percent-encoding") {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}

// A request costs what its operation says. What is not forwarded costs one. The cost is charged from the key's own limits too.
func TestCost(t *testing.T) {
	var asked quotas.Request
	r := newRig(t, func(s *setup) {
		s.Operations = append(slices.Clone(operations), api.Operation{ID: "search", Method: "GET", Path: "/v1/search", Scope: "pets:write", Cost: 5})
		lookup := s.lookup
		s.lookup = func(h apikey.Hash) (directory.Entry, bool) {
			entry, ok := lookup(h)
			entry.KeyLimits, entry.MonthStarts = plan.Limits{Minute: 9}, 15
			return entry, ok
		}
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
