package edge

import (
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"petgate/gateway/directory"
	"petgate/gateway/quotas"
	"petgate/gateway/quotas/authfailures"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// Directory knows all keys. Nothing in it does I/O.
type Directory interface {
	// Lookup finds a key by the hash of its token.
	Lookup(apikey.Hash) (directory.Entry, bool)
	// Fresh reports whether the directory may still be believed at now.
	Fresh(now instant.Millis) bool
	// Ban refuses a key until then: here at once, elsewhere soon.
	Ban(key id.Key, until instant.Millis, reason string)
}

// Quotas decides on a tenant's requests.
type Quotas interface {
	// Take asks for one request. An error means that it could not be decided.
	Take(quotas.Request) (quota.Verdict, error)
	// Known tells the last known figures without I/O.
	Known(id.Tenant, plan.Limits) quota.Verdict
}

// Guard limits the tokens that an address may guess.
type Guard interface {
	// Fail counts an unknown token; it is not allowed when there were too many.
	Fail(netip.Addr) (state authfailures.State, allowed bool)
	// Known tells how the address stands without I/O.
	Known(netip.Addr) authfailures.State
}

// Usage counts requests for statistics.
type Usage interface {
	Count(tenant id.Tenant, key id.Key, outcome string)
}

// Deps are what an edge works with. All but AccessLog are required.
type Deps struct {
	Directory  Directory
	Quotas     Quotas
	Guard      Guard
	Usage      Usage
	Operations []api.Operation
	Log        *slog.Logger
	AccessLog  io.Writer // nil = no access log
	Metrics    prometheus.Registerer
	Clock      func() time.Time // for all that clients are told; I/O has the machine's
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
	upstreams   []*upstream
	secretField string // as it stands in an upstream's request
	strikes     *strikes
	metrics     *metrics
	accessLog   *accessLog
	exchanges   exchangePool
	buffers     sync.Pool // of *[]byte, for heads that do not fit a wire

	inFlight    atomic.Int64
	connections atomic.Int64
	draining    atomic.Bool
}

// New returns an edge that is ready to serve. The error names everything that is wrong with cfg.
func New(cfg Config, deps Deps) (*Edge, error) {
	cfg, err := cfg.withDefaults()
	routes, routesErr := newRoutes(deps.Operations)
	if err := errors.Join(err, routesErr); err != nil {
		return nil, err
	}
	e := &Edge{
		cfg: cfg, directory: deps.Directory, quotas: deps.Quotas, guard: deps.Guard, usage: deps.Usage, log: deps.Log,
		clock: deps.Clock, routes: routes, strikes: newStrikes(cfg.BanRule),
	}
	if cfg.UpstreamSecret != "" {
		e.secretField = "\r\nX-Gateway-Secret: " + cfg.UpstreamSecret
	}
	for n, text := range cfg.Upstreams {
		u, err := newUpstream(text, n, &e.cfg)
		if err != nil {
			return nil, err
		}
		e.upstreams = append(e.upstreams, u)
	}
	e.buffers.New = func() any { b := make([]byte, e.cfg.headBytesMax()+1); return &b }
	e.metrics = newMetrics(deps.Metrics, e)
	if deps.AccessLog != nil {
		e.accessLog = newAccessLog(deps.AccessLog, deps.Log)
	}
	e.server = e.newServer()
	return e, nil
}

// serve is the life of a request.
func (e *Edge) serve(rc *fasthttp.RequestCtx) {
	x := rc.Conn().(*wire).exchange
	x.rc, x.startedAt, x.now = rc, time.Now(), instant.Of(e.clock())
	defer e.finish(x)
	if x.refusal = e.decide(x); x.hasKey && x.verdict.At == 0 { // not metered
		x.verdict = e.quotas.Known(x.entry.Tenant, x.entry.Limits)
	}
}

// decide takes a request through the stages, in the order in which they may spend: each relies on what is true after the ones
// before it, and the first refusal is the verdict.
func (e *Edge) decide(x *exchange) refusal {
	if r := e.accept(x); r.isRefused() {
		return r
	}
	if r := e.identify(x); r.isRefused() {
		return r
	}
	if r := e.authenticate(x); r.isRefused() {
		return r
	}
	if r := e.meter(x); r.isRefused() {
		return r
	}
	if r := e.route(x); r.isRefused() {
		return r
	}
	return e.forward(x)
}
