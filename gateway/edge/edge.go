package edge

import (
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"petgate/gateway/answers"
	"petgate/gateway/directory"
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
	"petgate/shared/socket"
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

	server      *fasthttp.Server
	routes      *routes
	pages       *answers.Pages
	cors        *answers.CORS
	polls       answers.Polls
	statements  *answers.Usage
	upstreams   *upstream.Pool
	secretField string // X-Gateway-Secret as sent to upstreams; may be empty
	strikes     *strikes.Strikes
	crowd       crowd
	bodies      *share.Shares // of the memory for bodies: how many large bodies a tenant sends at a time
	metrics     *metrics
	accessLog   *accessLog
	tracer      *trace.Tracer
	exchanges   exchangePool
	http        http1.Settings
	slack       time.Duration // how late a client connection's deadline may be

	inFlight    atomic.Int64
	connections atomic.Int64
	draining    atomic.Bool
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
		bodies: share.New(max(1, cfg.BodiesBytesMax/http1.BodyMemory(cfg.BodyBytesMax)/tenantPart)), http: cfg.http(), slack: socket.Slack(min(cfg.ReadTimeout, cfg.WriteTimeout, cfg.IdleTimeout)),
	}
	e.crowd.tenants = share.New(max(1, cfg.ConnectionsMax/tenantPart))
	e.http.MakeRoom = func() bool { return e.crowd.evict(&e.crowd.slow) }
	if cfg.UpstreamSecret != "" {
		e.secretField = "\r\nX-Gateway-Secret: " + cfg.UpstreamSecret
	}
	e.metrics = newMetrics(deps.Metrics, e)
	if deps.AccessLog != nil {
		e.accessLog = newAccessLog(deps.AccessLog, deps.Log, e.metrics.droppedLines)
	}
	e.server = e.newServer()
	return e, nil
}

// serve is the life of a request: fasthttp calls it for each one.
func (e *Edge) serve(rc *fasthttp.RequestCtx) {
	x := rc.Conn().(*clientConn).exchange
	x.rc, x.startedAt = rc, rc.Time()
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
