package contract_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/gateway/directory"
	"petgate/gateway/edge"
	"petgate/gateway/quotas"
	"petgate/gateway/quotas/authfailures"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

// everyone is a directory in which every token is a good key, with quotas that are never used up.
type everyone struct{}

func (everyone) Lookup(apikey.Hash) (directory.Entry, bool) {
	return directory.Entry{
		Environment: apikey.Live, Scopes: "pets:read pets:write usage:read",
		Terms: directory.Terms{Plan: "free", Limits: plan.Limits{Minute: 60, Day: 1000}},
	}, true
}
func (everyone) Fresh(instant.Millis) bool                            { return true }
func (everyone) Ban(id.Key, instant.Millis, string)                   {}
func (everyone) Count(directory.Usage)                                {}
func (everyone) Fail(netip.Addr) (s authfailures.State, allowed bool) { return s, true }
func (everyone) Take(ask quotas.Request) (quota.Verdict, error)       { return full(ask.Limits), nil }

func (everyone) Current(ask quotas.Request) (quota.Verdict, error) { return full(ask.Limits), nil }

func (everyone) Known(q quotas.Request) (verdict quota.Verdict) { return full(q.Limits) }

type noAttempts struct{ everyone }

func (noAttempts) Known(netip.Addr) (s authfailures.State) { return s }

func full(limits plan.Limits) quota.Verdict {
	return quota.Verdict{
		Granted: 1,
		Usages: [quota.Policies]quota.Usage{
			quota.Minute: {Limit: limits.Minute, Remaining: limits.Minute}, quota.Day: {Limit: limits.Day, Remaining: limits.Day},
		},
	}
}

// gone sends requests to an edge whose clock stands at a given instant, because the clock of a built program cannot be set to
// 2030. Just before its sunset, the deprecated operation is served and announces the sunset. At the sunset it is gone.
func gone(t *testing.T) []answer {
	t.Helper()
	sunset := time.Date(2030, 12, 5, 0, 0, 0, 0, time.UTC)
	alive, removed := operations[2], operations[2]
	before := askAt(t, sunset.Add(-time.Millisecond), alive)
	for name, want := range map[string]string{
		"Deprecation": "@1767225600", "Sunset": "Thu, 05 Dec 2030 00:00:00 GMT", "Link": `</v1/pets>; rel="successor-version"`,
	} {
		if got := before.header.Get(name); before.status != http.StatusOK || got != want {
			t.Errorf("one instant before the sunset: %d, %s is %q, want %q", before.status, name, got, want)
		}
	}
	at := askAt(t, sunset, removed)
	if at.status != http.StatusGone || codeOf(t, at) != "operation_removed" {
		t.Errorf("at the sunset: %d %s", at.status, at.body)
	}
	if list := askAt(t, sunset, operations[0]); list.status != http.StatusOK {
		t.Errorf("at the sunset, the list: %d %s", list.status, list.body)
	}
	return []answer{at}
}

func askAt(t *testing.T, instant time.Time, o operation) answer {
	t.Helper()
	described := api.Pets().Operations
	e, err := edge.New(edge.Config{
		Environment: apikey.Live, Upstreams: []string{faultyUpstream(t)}, UpstreamTimeout: time.Second, ReadTimeout: time.Second,
		BodyBytesMax: 64 << 10, BodiesBytesMax: 1 << 20, TenantConnsMax: 16, ConcurrencyMax: 16, ConnectionsMax: 16,
	}, edge.Deps{
		Directory: everyone{}, Quotas: everyone{}, Guard: noAttempts{}, Usage: everyone{}, Operations: described,
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Clock: func() time.Time { return instant },
	})
	must.Do(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	served := make(chan error, 1)
	go func() { served <- e.Serve(ln) }()
	t.Cleanup(func() {
		if err := e.Shutdown(context.Background()); err != nil {
			t.Log(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return send(t, "http://"+ln.Addr().String(), "at "+instant.Format(time.RFC3339Nano), o, request{token: unknownToken(t)})
}
