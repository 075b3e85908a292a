package edge

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/gateway/answers"
	"petgate/gateway/directory"
	"petgate/gateway/front"
	"petgate/gateway/http1"
	"petgate/gateway/portal"
	"petgate/gateway/quotas"
	"petgate/gateway/quotas/authfailures"
	"petgate/gateway/share"
	"petgate/gateway/strikes"
	"petgate/gateway/upstream"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/trace"
)

// Directory knows all keys. None of its methods does I/O.
type Directory interface {
	// Lookup finds a key by the hash of its token.
	Lookup(apikey.Hash) (directory.Entry, bool)
	// Fresh reports whether the directory is recent enough to be used at now.
	Fresh(now instant.Millis) bool
	// Ban bans a key until the given instant: here at once, on the other gateways soon after.
	Ban(key id.Key, until instant.Millis, reason string)
}

// Quotas decides whether a tenant may make one more request.
type Quotas interface {
	// Take decides on one request. An error means that no decision could be made.
	Take(quotas.Request) (quota.Verdict, error)
	// Known returns the last known figures, without I/O.
	Known(r quotas.Request) quota.Verdict
	// Current returns figures that are at most a second old and charges nothing. An error means that there are none.
	Current(quotas.Request) (quota.Verdict, error)
}

// Guard limits how many tokens an address may guess.
type Guard interface {
	// Fail counts an unknown token. allowed is false if there were too many from this address.
	Fail(netip.Addr) (state authfailures.State, allowed bool)
	// Known returns the state of an address, without I/O.
	Known(netip.Addr) authfailures.State
}

// Usage counts requests for statistics.
type Usage interface {
	Count(request directory.Usage)
}

// Deps are the dependencies of an edge. All but Pages, AccessLog and Tracer are required; Statements only if Operations has
// GET /v1/usage.
type Deps struct {
	Directory  Directory
	Quotas     Quotas
	Guard      Guard
	Usage      Usage
	Statements answers.Statements
	Operations []api.Operation
	Pages      []portal.Page // the documentation, for everybody; nil = none
	Log        *slog.Logger
	AccessLog  io.Writer     // nil = no access log
	Tracer     *trace.Tracer // nil = no traces
	Metrics    prometheus.Registerer
	Clock      func() time.Time // for everything in responses; I/O uses the machine's clock
}

// Edge is the public port. Its methods are safe for concurrent use.
type Edge struct {
	cfg       Config
	directory Directory
	quotas    Quotas
	guard     Guard
	usage     Usage
	log       *slog.Logger
	clock     func() time.Time

	front       *front.Server
	routes      *routes
	pages       *answers.Pages
	cors        *answers.CORS
	polls       answers.Polls
	statements  *answers.Usage
	upstreams   *upstream.Pool
	secretField string // X-Gateway-Secret as sent to upstreams; may be empty
	strikes     *strikes.Strikes
	bodies      *share.Shares // of the memory for bodies: how many large bodies a tenant sends at a time
	metrics     *metrics
	accessLog   *accessLog
	tracer      *trace.Tracer

	inFlight atomic.Int64
}

// New returns an edge that is ready to serve. The error lists everything that is wrong with cfg.
func New(cfg Config, deps Deps) (*Edge, error) {
	cfg.setDefaults()
	routes, routesErr := newRoutes(deps.Operations)
	upstreams, upstreamsErr := upstream.New(upstream.Config{
		URLs: cfg.Upstreams, Timeout: cfg.UpstreamTimeout, IdleTimeout: cfg.UpstreamIdleTimeout, ConnsMax: cfg.UpstreamConnsMax, TenantConnsMax: cfg.TenantConnsMax,
		HeaderBytesMax: cfg.UpstreamHeaderBytesMax, BodyBytesMax: cfg.UpstreamBodyBytesMax, Log: deps.Log,
		Check: upstream.Check{Path: cfg.UpstreamHealthPath, Every: cfg.UpstreamHealthEvery, Timeout: upstreamHealthTimeout, Secret: cfg.UpstreamSecret},
	})
	if err := errors.Join(cfg.check(), upstreamsErr, routesErr); err != nil {
		return nil, err
	}
	e := &Edge{
		cfg: cfg, directory: deps.Directory, quotas: deps.Quotas, guard: deps.Guard, usage: deps.Usage, log: deps.Log,
		tracer: deps.Tracer,
		clock:  deps.Clock, routes: routes, pages: answers.NewPages(deps.Pages), cors: answers.NewCORS(cfg.CORSOrigins, routes.methods),
		polls: answers.NewPolls(), statements: answers.NewUsage(deps.Statements, deps.Log),
		upstreams: upstreams, strikes: strikes.New(cfg.BanRule),
		bodies: share.New(max(1, cfg.BodiesBytesMax/http1.BodyMemory(cfg.BodyBytesMax)/bodiesPart)),
	}
	if cfg.UpstreamSecret != "" {
		e.secretField = "\r\nX-Gateway-Secret: " + cfg.UpstreamSecret
	}
	e.metrics = newMetrics(deps.Metrics, e)
	if deps.AccessLog != nil {
		e.accessLog = newAccessLog(deps.AccessLog, deps.Log, e.metrics.droppedLines)
	}
	e.front = front.New(front.Config{
		HTTP: cfg.http(), ConnectionsMax: cfg.ConnectionsMax, TLS: cfg.TLS, Handler: e.serve, Log: deps.Log, Metrics: deps.Metrics,
	})
	return e, nil
}

// serve is the life of a request. front calls it for each one.
func (e *Edge) serve(call *front.Call) {
	x, isKept := call.Own.(*exchange)
	if !isKept {
		x = &exchange{Call: call}
		call.Own = x
	}
	defer e.finish(x)
	x.now = instant.Of(e.clock())
	if x.refusal = e.decide(x); x.hasKey && x.verdict.At == 0 { // not metered
		x.verdict = e.quotas.Known(x.ask())
	}
}

// decide runs the stages. Their order is fixed: the results of the earlier stages decide what a stage may spend. The first
// refusal ends the request, and so does a page or a report.
func (e *Edge) decide(x *exchange) refusal {
	if r := e.accept(x); r.isRefused() {
		return r
	}
	if x.answer = e.publish(x); x.answer != nil {
		x.isPublic = true
		return refusal{}
	}
	if r := e.identify(x); r.isRefused() {
		return r
	}
	if r := e.authenticate(x); r.isRefused() {
		return r
	}
	x.mark(authenticated)
	if e.isReport(x) {
		return e.report(x)
	}
	if r := e.authorize(x); r.isRefused() {
		return r
	}
	if r := e.receive(x); r.isRefused() {
		return r
	}
	x.mark(received)
	if r := e.meter(x); r.isRefused() {
		return r
	}
	x.mark(metered)
	if r := e.route(x); r.isRefused() {
		return r
	}
	if x.route.ByGateway {
		return e.statement(x)
	}
	return e.forward(x)
}

// Serve serves ln until Shutdown, or until ln fails. It may be called for several listeners.
func (e *Edge) Serve(ln net.Listener) error { return e.front.Serve(ln) }

// Drain closes each connection after its next response. Listeners stay open, so that a load balancer can move away first.
func (e *Edge) Drain() { e.front.Drain() }

// Shutdown closes the listeners and unused connections, waits until every request has its response, and stops what New
// started. It stops waiting when ctx ends.
func (e *Edge) Shutdown(ctx context.Context) error {
	err := e.front.Shutdown(ctx)
	e.upstreams.CloseIdle()
	if e.accessLog != nil {
		e.accessLog.close()
	}
	return err
}

// Refusing returns the addresses of the upstreams whose last response said that they do not accept this gateway.
func (e *Edge) Refusing() []string { return e.upstreams.Refusing() }

// CheckUpstreams asks the upstreams for their health until ctx ends. It must be called at most once.
func (e *Edge) CheckUpstreams(ctx context.Context) { e.upstreams.Check(ctx) }

// Failing returns the upstreams whose checks fail.
func (e *Edge) Failing() []upstream.Failing { return e.upstreams.Failing() }
