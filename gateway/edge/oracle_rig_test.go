package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/gateway/answers"
	"petgate/gateway/directory"
	"petgate/gateway/edge"
	"petgate/gateway/portal"
	"petgate/gateway/quotas"
	"petgate/gateway/quotas/authfailures"
	"petgate/gateway/usage"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	stored "petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// now is the time at which the clock of every rig starts.
var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// rig is one edge between a client that writes raw bytes and an upstream that reads raw bytes, with
// counts at both ends and in between. It serves on a TCP socket and on pipes in memory.
type rig struct {
	edge     *edge.Edge
	address  string
	pipes    pipeListener
	upstream *rawUpstream // nil when the test gave its own URLs

	takes, admitted, counted atomic.Int64
	last                     lastUsage
	banned                   atomic.Int64
	accessLog, log           *testkit.Output
	registry                 *prometheus.Registry
	setup                    *setup
}

// lastUsage is the last request that was counted; the zero Request: none since it was set.
type lastUsage struct {
	mu      sync.Mutex
	request usage.Request
}

func (l *lastUsage) set(u usage.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.request = u
}

func (l *lastUsage) get() usage.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.request
}

// fakes replace the dependencies of the edge. fails is called before each of them, with its name.
type fakes struct {
	lookup    func(apikey.Hash) (directory.Entry, bool)
	isStale   bool // the directory is
	current   error
	ban       func(k id.Key, until instant.Millis)
	take      func(quotas.Request) (quota.Verdict, error)
	attempts  func() (state authfailures.State, mayGoOn bool)
	count     func(usage.Request)
	statement func() (stored.Statement, error)
	fails     func(dependency string)
}

func (f *fakes) Lookup(h apikey.Hash) (directory.Entry, bool) { f.fails("lookup"); return f.lookup(h) }

func (f *fakes) Fresh(instant.Millis) bool                    { f.fails("fresh"); return !f.isStale }
func (f *fakes) Ban(k id.Key, until instant.Millis, _ string) { f.ban(k, until) }
func (f *fakes) Take(a quotas.Request) (quota.Verdict, error) { f.fails("take"); return f.take(a) }
func (f *fakes) Known(a quotas.Request) quota.Verdict         { f.fails("known"); return verdict(a.Limits, 0) }
func (f *fakes) Count(request usage.Request)                  { f.fails("count"); f.count(request) }

func (f *fakes) Current(a quotas.Request) (quota.Verdict, error) {
	return verdict(a.Limits, 0), f.current
}

func (f *fakes) Statement(
	_ context.Context, _ id.Tenant, _ instant.Millis, _ time.Duration, isTest bool, _ int,
) (stored.Statement, error) {
	if f.fails("statement"); isTest {
		return stored.Statement{}, nil
	}
	return f.statement()
}

// fakeGuard counts no failed attempts.
type fakeGuard struct{ *fakes }

func (g fakeGuard) Fail(netip.Addr) (authfailures.State, bool) { g.fails("fail"); return g.attempts() }

func (g fakeGuard) Known(netip.Addr) authfailures.State {
	g.fails("attempts")
	state, _ := g.attempts()
	return state
}

// operations are those of the contract, with only what these tests need.
var operations = []api.Operation{
	{ID: "listPets", Method: "GET", Path: "/v1/pets", Scope: "pets:read"},
	{ID: "createPet", Method: "POST", Path: "/v1/pets", Scope: "pets:write", TakesKey: true},
	{ID: "getPet", Method: "GET", Path: "/v1/pets/{petId}", Scope: "pets:read"},
	{ID: "getQuota", Method: "GET", Path: "/v1/quota", ByGateway: true, Stability: "beta"},
	{ID: "getUsage", Method: "GET", Path: "/v1/usage", Scope: "usage:read", ByGateway: true, Stability: "beta"},
}

// entries are the keys that every rig knows, by the hash of their token.
var entries = func() map[apikey.Hash]directory.Entry {
	all := map[apikey.Hash]directory.Entry{}
	for i, key := range []struct {
		token  string
		change func(*directory.Entry)
	}{
		{token, func(*directory.Entry) {}},
		{testToken, func(e *directory.Entry) { e.Environment = apikey.Test }},
		// Revoked by an operator whose clock is ahead.
		{revokedToken, func(e *directory.Entry) { e.RevokedAt = instant.Of(now) + 5000 }},
		{expiredToken, func(e *directory.Entry) { e.ExpiresAt = instant.Of(now) }},
		{bannedToken, func(e *directory.Entry) { e.BannedUntil, e.BanIsAutomatic = instant.Of(now)+60_000, true }},
		{suspendedToken, func(e *directory.Entry) { e.Suspended = true }},
		{limitlessToken, func(e *directory.Entry) { e.Limits = plan.Limits{} }},
		{elsewhereToken, func(e *directory.Entry) { e.Allow = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }},
		{usedUpToken, func(e *directory.Entry) { e.Limits.Minute = 1 }},
		{rotatedToken, func(e *directory.Entry) { e.GraceEndsAt, e.ReplacedBy = instant.Of(now)+3_600_000, id.Key{1} }},
		{readerToken, func(e *directory.Entry) { e.Scopes = "pets:read" }},
		{scraperToken, func(e *directory.Entry) { e.BannedUntil = instant.Of(now) + 60_000 }},
		{unpaidToken, func(e *directory.Entry) {
			e.BannedUntil, e.BanNotice = instant.Of(now)+60_000, "Invoice 77 is unpaid."
		}},
		{otherToken, func(*directory.Entry) {}},
		{renamedToken, func(*directory.Entry) {}},
	} {
		e := directory.Entry{
			Key: id.Key{byte(i + 1)}, Name: "ci", Tenant: id.Tenant{byte(i + 1)},
			Environment: apikey.Live, Scopes: "pets:read pets:write usage:read",
			Terms: directory.Terms{Plan: "free", Limits: plan.Limits{Minute: 60, Day: 1000}, Version: 1},
		}
		key.change(&e)
		all[apikey.Sum([]byte(key.token))] = e
	}
	return all
}()

// documentation replaces the portal's pages.
var documentation = published(
	page("/docs", "text/html", portal.Content{ETag: `W/"abc"`, Body: []byte("a page"), Gzip: []byte("compressed")}),
	page("/openapi.yaml", "application/yaml",
		portal.Content{ETag: `W/"def"`, Body: []byte("a document"), Gzip: []byte("compressed")}),
)

func page(path, contentType string, content portal.Content) portal.Page {
	return portal.Page{Path: path, Type: contentType, Content: func() portal.Content { return content }}
}

func published(all ...portal.Page) *answers.Pages {
	pages := new(answers.Pages)
	pages.Set(all)
	return pages
}

// setup has the settings of a rig. A test can change them before the rig serves.
type setup struct {
	edge.Config
	edge.Deps
	*fakes
	collector *testkit.Collector // of the spans; nil: none
}

// streams changes a rig so that long bodies pass through in parts.
func streams(s *setup) { s.BodyBytesMax, s.UpstreamTimeout = 4*streamed, patience }

// changeEntries changes each entry that is found.
func (f *fakes) changeEntries(change func(*directory.Entry)) {
	f.lookup = func(h apikey.Hash) (directory.Entry, bool) {
		e, found := entries[h]
		change(&e)
		return e, found
	}
}

// newRig serves until the test ends. Its settings are those below, with the changes, in this order.
func newRig(t testing.TB, changes ...func(*setup)) *rig {
	t.Helper()
	r := &rig{
		pipes:     newPipeListener(),
		accessLog: &testkit.Output{},
		log:       &testkit.Output{},
		registry:  prometheus.NewRegistry(),
	}
	f := &fakes{
		lookup:   func(h apikey.Hash) (directory.Entry, bool) { e, found := entries[h]; return e, found },
		ban:      func(id.Key, instant.Millis) { r.banned.Add(1) },
		take:     r.take,
		attempts: func() (authfailures.State, bool) { return guardState, true },
		count: func(u usage.Request) {
			r.counted.Add(1)
			r.last.set(u)
		},
		statement: oneRow,
		fails:     func(string) {},
	}
	s := setup{
		fakes: f,
		Config: edge.Config{
			Environment: apikey.Live, BodyBytesMax: bodyMax, TargetBytesMax: targetMax, HeaderBytesMax: fieldsMax,
			ReadTimeout: patience, UpstreamTimeout: noTimeout, UpstreamDialTimeout: patience,
			BodiesBytesMax: 256 << 20, UpstreamConnsPerTenant: 128, ConcurrencyMax: 4096, ConnectionsMax: 32768,
		},
		Deps: edge.Deps{
			Directory: f, Quotas: f, Guard: fakeGuard{f}, Usage: f, Statements: f,
			Operations: operations,
			Pages:      documentation,
			Log:        slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			AccessLog:  r.accessLog,
			Metrics:    r.registry,
			Clock:      clock(),
		},
	}
	for _, change := range changes {
		change(&s)
	}
	if s.Upstreams == nil {
		r.upstream = newRawUpstream(t)
		s.Upstreams = []string{r.upstream.URL()}
	}
	e := must.Get[*edge.Edge](t)(edge.New(s.Config, s.Deps))
	r.edge, r.setup = e, &s
	ln := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	r.address = ln.Addr().String()
	var serving sync.WaitGroup
	for _, l := range []net.Listener{ln, r.pipes} {
		serving.Go(func() {
			if err := e.Serve(l); err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = e.Shutdown(ctx)
		serving.Wait()
		// All is given back, however the requests ended.
		for _, name := range []string{"requests_in_flight", "connections", "body_bytes", "head_bytes"} {
			if n := r.metric(t, "petgate_gateway_"+name); n != 0 {
				t.Errorf("at the end, the gauge %s is %v", name, n)
			}
		}
		r.checkLogs(t)
	})
	return r
}

// metric returns the sum of a metric's series that have labels with these values.
func (r *rig) metric(t testing.TB, name string, labels ...string) (sum float64) {
	t.Helper()
	families, err := r.registry.Gather()
	must.Do(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			isOther := func(label string) bool { return !strings.Contains(m.String(), `"`+label+`"`) }
			if f.GetName() == name && !slices.ContainsFunc(labels, isOther) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// take decides for the quotas: it refuses a tenant whose limit is one, and admits every other one.
func (r *rig) take(a quotas.Request) (quota.Verdict, error) {
	r.takes.Add(1)
	if a.Limits.Minute == 1 {
		return verdict(a.Limits, 1), nil
	}
	r.admitted.Add(1)
	v := verdict(a.Limits, 1)
	v.Granted = 1
	return v, nil
}

// clock returns a clock that starts at now.
func clock() func() time.Time {
	started := time.Now()
	return func() time.Time { return now.Add(time.Since(started)) }
}

func verdict(limits plan.Limits, used int64) quota.Verdict {
	at := instant.Of(now)
	v := quota.Verdict{
		At: at,
		Usages: [quota.Policies]quota.Usage{
			quota.Minute: {Limit: limits.Minute, ResetAt: at + 60_250},
			quota.Day:    {Limit: limits.Day, ResetAt: at + 43_200_000},
			quota.Month:  {Limit: limits.Month, ResetAt: at + 43_200_000},
		},
	}
	for p := range v.Usages {
		if u := &v.Usages[p]; u.Limit != 0 {
			u.Used, u.Remaining, u.ReleaseAt = used, max(0, u.Limit-used), u.ResetAt
			if used >= u.Limit {
				u.RetryAt = u.ResetAt
			}
		}
	}
	return v
}

var guardState = authfailures.State{
	Limit:     120,
	Remaining: 119,
	ResetAt:   instant.Of(now) + 500,
	ReleaseAt: instant.Of(now) + 500,
}

// pipeListener accepts connections made in memory.
type pipeListener struct {
	conns chan net.Conn
	close func()
}

func newPipeListener() pipeListener {
	conns := make(chan net.Conn)
	return pipeListener{conns, sync.OnceFunc(func() { close(conns) })}
}

func (l pipeListener) Accept() (net.Conn, error) {
	if c, isOpen := <-l.conns; isOpen {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error   { l.close(); return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// wire is the server's end of a connection whose client sends everything at once, and then closes
// its half. The wire keeps what the server sends, and the server never waits for the client.
type wire struct {
	net.Conn // of the addresses and the deadlines
	in       io.Reader
	out      bytes.Buffer
	closed   context.Context
	close    context.CancelFunc
}

func (w *wire) Read(p []byte) (int, error)  { return w.in.Read(p) }
func (w *wire) Write(p []byte) (int, error) { return w.out.Write(p) }
func (w *wire) Close() error                { w.close(); return nil }

// play plays the pieces on a connection in memory, each of which is one read of the server, and
// returns all that was answered until the server closed it.
func (r *rig) play(pieces ...[]byte) ([]byte, error) {
	w := &wire{}
	w.Conn, _ = net.Pipe()
	w.closed, w.close = context.WithTimeout(context.Background(), patience)
	var readers []io.Reader
	for _, p := range pieces {
		readers = append(readers, bytes.NewReader(p))
	}
	w.in = io.MultiReader(readers...)
	r.pipes.conns <- w
	if <-w.closed.Done(); w.closed.Err() != context.Canceled {
		return nil, errors.New("the server neither read on nor closed")
	}
	return w.out.Bytes(), nil
}

// playAll is play for requests whose answers end with the connection.
func (r *rig) playAll(toHead func(*bufio.Reader) bool, pieces ...[]byte) (answers []answer, out []byte, err error) {
	if out, err = r.play(pieces...); err == nil {
		answers, err = readAll(out, toHead)
	}
	return answers, out, err
}
