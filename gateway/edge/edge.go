package edge

import (
	"cmp"
	"context"
	"errors"
	"net"

	"petgate/gateway/answers"
	"petgate/gateway/front"
	"petgate/gateway/http1"
	"petgate/gateway/share"
	"petgate/gateway/strikes"
	"petgate/gateway/upstream"
	"petgate/shared/api"
	"petgate/shared/core/instant"
)

// New returns an edge that is ready to serve.
func New(cfg Config, deps Deps) (*Edge, error) {
	cfg.setDefaults()
	routes, routesErr := newRoutes(deps.Operations, cfg.CORSOrigins)
	upstreams, upstreamsErr := upstream.New(upstream.Config{
		URLs: cfg.Upstreams, Timeout: cfg.UpstreamTimeout, IdleTimeout: cfg.UpstreamIdleTimeout, ConnsMax: cfg.UpstreamConnsMax, TenantConnsMax: cfg.TenantConnsMax,
		HeaderBytesMax: upstreamHeaderBytesMax, BodyBytesMax: cfg.UpstreamBodyBytesMax, Log: deps.Log,
		Check: upstream.Check{Path: cfg.UpstreamHealthPath, Every: cfg.UpstreamHealthEvery, Timeout: upstreamHealthTimeout, Secret: cfg.UpstreamSecret},
	})
	if err := errors.Join(upstreamsErr, routesErr); err != nil {
		return nil, err
	}
	e := &Edge{
		cfg: cfg, deps: deps, pages: cmp.Or(deps.Pages, new(answers.Pages)),
		polls: answers.NewPolls(), statements: answers.NewUsage(deps.Statements, deps.Log),
		upstreams: upstreams, strikes: strikes.New(cfg.BanRule),
		bodies: share.New(max(1, cfg.BodiesBytesMax/http1.BodyMemory(cfg.BodyBytesMax)/bodiesPart)),
	}
	if cfg.UpstreamSecret != "" {
		e.secretField = "\r\nX-Gateway-Secret: " + cfg.UpstreamSecret
	}
	e.metrics = newMetrics(deps.Metrics, e)
	e.use(routes)
	if deps.AccessLog != nil {
		e.accessLog = newAccessLog(deps.AccessLog, deps.Log, e.metrics.droppedLines)
	}
	e.front = front.New(front.Config{
		HTTP: cfg.http(), ConnectionsMax: cfg.ConnectionsMax, TLS: cfg.TLS, Handler: e.serve, Log: deps.Log, Metrics: deps.Metrics,
	})
	return e, nil
}

// SetOperations replaces the operations. Requests that have begun end as they were understood.
func (e *Edge) SetOperations(operations []api.Operation) error {
	routes, err := newRoutes(operations, e.cfg.CORSOrigins)
	if err == nil {
		e.use(routes)
	}
	return err
}

func (e *Edge) use(r *routes) {
	for _, one := range r.all {
		one.metrics = e.metrics.of(one.ID)
	}
	e.routes.Store(r)
}

// serve is the life of a request. front calls it for each one.
func (e *Edge) serve(call *front.Call) {
	x, isKept := call.Own.(*exchange)
	if !isKept {
		x = &exchange{Call: call}
		call.Own = x
	}
	defer e.finish(x)
	x.now = instant.Of(e.deps.Clock())
	if x.refusal = e.decide(x); x.hasKey && x.verdict.At == 0 { // not metered
		x.verdict = e.deps.Quotas.Known(x.ask())
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
	if e.isOpen(x) {
		return e.open(x)
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
