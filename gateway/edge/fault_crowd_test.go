package edge_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/gateway/directory"
	"petgate/shared/core/apikey"
	"petgate/shared/testkit"
)

// begin writes the beginning of a request and reads the response.
func begin(t *testing.T, r *rig, start string) answer {
	t.Helper()
	return r.dial(t).ask(t, start)
}

// A client without a key is refused when 16 KiB of its body are there, or when it waits for 100 (Continue): the rest of its body is
// never asked for, and nothing is charged.
func TestBodyWaitsForTheKey(t *testing.T) {
	r := newRig(t, func(s *setup) { s.ReadTimeout = patience })
	head := func(fields ...string) string {
		return rawBare(append([]string{"POST /v1/pets HTTP/1.1", "Host: a"}, fields...)...)
	}
	for name, start := range map[string]string{
		"length":   head("Content-Length: 60000") + repeat("a", 20_000),
		"chunks":   head("Transfer-Encoding: chunked") + "ea60\r\n" + repeat("a", 20_000),
		"continue": head("Content-Length: 5", "Expect: 100-continue"),
	} {
		if got := begin(t, r, start); got.Status != 401 || !got.Closes {
			t.Errorf("%s: got %d, closes: %t", name, got.Status, got.Closes)
		}
	}
	if n := r.takes.Load(); n != 0 {
		t.Errorf("%d requests were metered", n)
	}
	large := rawPost("Content-Length: 60000") + repeat("a", 60_000)
	if got := begin(t, r, large); got.Status != 201 || got.Closes {
		t.Errorf("with a key: got %d, closes: %t", got.Status, got.Closes)
	}
	if seen := r.upstream.Seen(); len(seen) != 1 || len(seen[0].Body) != 60_000 {
		t.Errorf("the upstream saw %q", texts(seen))
	}
}

// A request whose body is still to come leaves its slot to others, and needs one again when the body is there.
func TestBodyThatIsToComeHoldsNoSlot(t *testing.T) {
	r := newRig(t, func(s *setup) { s.ConcurrencyMax, s.ReadTimeout, s.UpstreamTimeout = 1, patience, patience })
	arrived, release := make(chan bool), make(chan bool)
	r.upstream.Answer(func(c net.Conn, q upstreamRequest) bool {
		if strings.HasSuffix(q.Target, "slow") {
			arrived <- true
			<-release
		}
		return plainAnswer(c, q)
	})
	slow, other := r.dial(t), r.dial(t)
	await := func() (sending *rawClient) {
		t.Helper()
		sending = r.dial(t)
		if got := sending.ask(t, rawGet()); got.Status != 200 {
			t.Fatalf("a request before it got %d %s", got.Status, codeOf(got))
		}
		if _, err := io.WriteString(sending.conn, rawPost("Content-Length: 2", "Expect: 100-continue")); err != nil {
			t.Fatal(err)
		}
		if _, err := sending.in.Discard(len("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		return sending
	}
	first, second := await(), await()
	if got := other.ask(t, rawGet()); got.Status != 200 {
		t.Errorf("while a body is to come, another request got %d %s", got.Status, codeOf(got))
	}
	served := make(chan answer)
	go func() {
		got, _ := slow.try(rawTarget("/v1/pets?slow"))
		served <- got
	}()
	<-arrived
	if got := first.ask(t, "{}"); codeOf(got) != "overloaded" {
		t.Errorf("while the only slot is taken, the body's request got %d %s", got.Status, codeOf(got))
	}
	close(release)
	if got := <-served; got.Status != 200 {
		t.Errorf("the slow request got %d", got.Status)
	}
	testkit.Eventually(t, patience, "the slot is free", func() bool { return other.ask(t, rawGet()).Status == 200 })
	if got := second.ask(t, "{}"); got.Status != 201 {
		t.Errorf("the second body's request got %d %s", got.Status, codeOf(got))
	}
}

// The bodies of all requests share one budget, which is given back.
func TestBodiesShareABudget(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRig(t, func(s *setup) { s.BodiesBytesMax, s.ReadTimeout, s.Metrics = 100_000, patience, registry })
	first := r.dial(t)
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	first.conn = conn
	if _, err := io.WriteString(conn, rawPost("Content-Length: 60001")+repeat("a", 60_000)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, "the first body holds its memory", func() bool {
		return gauges(t, registry, "petgate_gateway_body_bytes") > 60_000
	})
	request := rawPost("Content-Length: 60000") + repeat("a", 60_000)
	if got := begin(t, r, request); got.Status != 503 || got.refusal() != nil {
		t.Errorf("past the budget: %d, %v", got.Status, got.refusal())
	}
	if got := begin(t, r, rawGet()); got.Status != 200 {
		t.Errorf("a request without a body got %d", got.Status)
	}
	if got := first.ask(t, "a"); got.Status != 201 {
		t.Errorf("the first body: %d", got.Status)
	}
	if got := begin(t, r, request); got.Status != 201 {
		t.Errorf("afterwards: %d", got.Status)
	}
}

// Connections without a key do not keep out a client that has one: those that are silent for longest are closed, and none whose
// request is being served.
func TestStrangersMakeRoom(t *testing.T) {
	const most = 40
	r := newRig(t, func(s *setup) { s.ConnectionsMax, s.ReadTimeout, s.UpstreamTimeout = most, patience, patience })
	arrived, release := make(chan bool), make(chan bool)
	r.upstream.Answer(func(c net.Conn, q upstreamRequest) bool {
		if strings.HasSuffix(q.Target, "slow") {
			arrived <- true
			<-release
		}
		return plainAnswer(c, q)
	})
	busy, served := r.dial(t), make(chan answer, 1)
	go func() {
		got, _ := busy.try(rawTarget("/v1/pets?slow"))
		served <- got
	}()
	<-arrived
	known := r.dial(t)
	known.ask(t, rawGet())
	strangers := make([]*rawClient, most)
	for i := range strangers {
		strangers[i] = r.dial(t)
		for _, asking := range []*rawClient{strangers[i], strangers[0]} { // the first one is never silent for long
			if got := asking.ask(t, rawKey()); got.Status != 401 {
				t.Fatalf("stranger %d: %d", i, got.Status)
			}
		}
	}
	if got := r.dial(t).ask(t, rawGet()); got.Status != 200 {
		t.Errorf("a new client with a key got %d", got.Status)
	}
	if _, err := strangers[1].in.Peek(1); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the stranger that was silent for longest is still there: %v", err)
	}
	if got, err := known.try(rawGet()); err != nil || got.Status != 200 {
		t.Errorf("an old client with a key got %d %v", got.Status, err)
	}
	close(release)
	if got := <-served; got.Status != 200 {
		t.Errorf("the request that was being served got %d", got.Status)
	}
}

// Strangers that keep the connections in front of the queue busy do not protect those behind them.
func TestBusyStrangersProtectNoOthers(t *testing.T) {
	const most, busy = 200, 80
	r := newRig(t, func(s *setup) { s.ConnectionsMax, s.ReadTimeout = most, patience })
	for i := range most + 20 {
		c := r.dial(t)
		if got := c.ask(t, rawKey()); got.Status != 401 {
			t.Fatalf("stranger %d: %d", i, got.Status)
		}
		if i < busy {
			if _, err := io.WriteString(c.conn, "G"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := r.dial(t).ask(t, rawGet()); got.Status != 200 {
		t.Errorf("a new client with a key got %d", got.Status)
	}
}

// One tenant cannot take all of an upstream's slots.
func TestTenantHasAShare(t *testing.T) {
	const share = 3
	r := newRig(t, func(s *setup) {
		s.TenantConnsMax, s.UpstreamConnsMax, s.UpstreamTimeout = share, 2*share, patience
		d := s.Directory.(fakeDirectory)
		lookup := d.lookup
		d.lookup = func(h apikey.Hash) (directory.Entry, bool) {
			e, found := lookup(h)
			e.Limits.Minute, e.Limits.Day = 1000, 1000
			return e, found
		}
		s.Directory = d
	})
	release := make(chan struct{})
	r.upstream.Answer(func(c net.Conn, q upstreamRequest) bool {
		if strings.HasSuffix(q.Target, "slow") {
			<-release
		}
		return plainAnswer(c, q)
	})
	done := make(chan answer)
	for range share {
		go func() {
			got, _ := r.dial(t).try(rawTarget("/v1/pets?slow"))
			done <- got
		}()
	}
	testkit.Eventually(t, patience, "a full share", func() bool {
		r.upstream.mu.Lock()
		defer r.upstream.mu.Unlock()
		return len(r.upstream.seen) == share
	})
	got := r.dial(t).ask(t, rawGet())
	if err := got.refusal(); err != nil || got.Code != "upstream_overloaded" {
		t.Errorf("the tenant's next request got %d %s %v", got.Status, got.Code, err)
	}
	other := r.dial(t).ask(t, rawBare("GET /v1/pets HTTP/1.1", "Host: a", "Authorization: Bearer "+readerToken))
	if other.Status != 200 {
		t.Errorf("another tenant's request got %d %s", other.Status, other.Body)
	}
	close(release)
	for range share {
		if got := <-done; got.Status != 200 {
			t.Errorf("a slow request got %d", got.Status)
		}
	}
	if got := r.dial(t).ask(t, rawGet()); got.Status != 200 {
		t.Errorf("afterwards: %d", got.Status)
	}
}
