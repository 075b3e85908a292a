package edge

import (
	"context"
	"errors"
	"fmt"
	"net"

	"petgate/gateway/answers"
	"petgate/gateway/front"
	"petgate/gateway/http1"
	"petgate/gateway/routing"
	"petgate/gateway/share"
	"petgate/gateway/strikes"
	"petgate/gateway/upstream"
	"petgate/shared/api"
	"petgate/shared/core/instant"
)

// New returns an edge that is ready to serve.
func New(cfg Config, deps Deps) (*Edge, error) {
	cfg.setDefaults()
	upstreams, err := upstream.NewPools(upstream.Config{
		URLs:                   cfg.Upstreams,
		Host:                   cfg.upstreamHost(),
		TLS:                    cfg.UpstreamTLS,
		Timeout:                cfg.UpstreamTimeout,
		DialTimeout:            cfg.UpstreamDialTimeout,
		IdleTimeout:            cfg.UpstreamIdleTimeout,
		ConnsMax:               cfg.UpstreamConnsMax,
		UpstreamConnsPerTenant: cfg.UpstreamConnsPerTenant,
		HeaderBytesMax:         upstreamHeaderBytesMax,
		BodyBytesMax:           cfg.ResponseBytesMax,
		Log:                    deps.Log,
		Check: upstream.Check{
			Path:    cfg.UpstreamHealthPath,
			Timeout: upstreamHealthTimeout,
			Secret:  string(cfg.UpstreamSecret),
		},
	})
	if err != nil {
		return nil, err
	}
	e := &Edge{
		cfg:        cfg,
		deps:       deps,
		proxies:    cfg.TrustedProxies,
		upstreams:  upstreams,
		strikes:    strikes.New(cfg.BanRule),
		polls:      answers.NewPolls(),
		statements: answers.NewUsage(deps.Statements, deps.Log),
		bodies:     share.New(cfg.BodiesBytesMax / min(cfg.BodyBytesMax, http1.PartBytesMax)),
		slots:      http1.NewBudget(cfg.ConcurrencyMax),
	}
	if cfg.UpstreamSecret != "" {
		e.secretField = "\r\nX-Gateway-Secret: " + string(cfg.UpstreamSecret)
	}
	e.metrics = newMetrics(deps.Metrics, e)
	if err := e.SetOperations(deps.Operations); err != nil {
		return nil, err
	}
	if deps.AccessLog != nil {
		e.accessLog = newAccessLog(deps.AccessLog, deps.Log, e.metrics.droppedLines)
	}
	e.front = front.New(front.Config{
		HTTP:           cfg.http(),
		ConnectionsMax: cfg.ConnectionsMax,
		TLS:            cfg.TLS,
		Handler:        e.serve,
		Log:            deps.Log,
		Metrics:        deps.Metrics,
	})
	return e, nil
}

// SetOperations replaces the operations. Requests that have begun end as they were understood.
func (e *Edge) SetOperations(operations []api.Operation) error {
	table, err := routing.New(operations)
	if err != nil {
		return err
	}
	r := &routes{table: table, cors: answers.NewCORS(e.cfg.CORSOrigins, table.Methods)}
	var wrong []error
	for _, one := range table.Routes {
		added := &route{
			Route:      one,
			metrics:    e.metrics.of(one.ID),
			needsScope: "the API key needs the scope " + one.Scope + " for this operation",
		}
		if !one.ByGateway {
			var err error
			added.pool, err = e.upstreams.Of(one.Upstream)
			if err != nil {
				wrong = append(wrong, fmt.Errorf("operation %s: %w", one.ID, err))
			}
		}
		if one.IsReport() {
			r.report = added
		}
		if one.IsPublic {
			r.hasPublic = true
		}
		r.all = append(r.all, added)
	}
	if wrong == nil {
		e.routes.Store(r)
	}
	return errors.Join(wrong...)
}

// serve is the life of a request. front calls it for each one.
func (e *Edge) serve(call *front.Call) {
	x, isKept := call.Own.(*exchange)
	if !isKept {
		x = &exchange{Call: call, edge: e}
		call.Own = x
	}
	defer e.finish(x)
	x.now = instant.Of(e.deps.Clock())
	x.refusal = e.decide(x)
	e.lookUpLimits(x)
	e.writeResponse(x)
}

// decide runs the stages. Their order is fixed: the results of the earlier stages decide what a
// stage may spend. The first refusal ends the request, and so does an answer.
func (e *Edge) decide(x *exchange) refusal {
	if r := e.accept(x); r.isRefused() {
		return r
	}
	if e.publish(x) {
		return refusal{}
	}
	if r := e.identify(x); r.isRefused() {
		return r
	}
	if r := e.authenticate(x); r.isRefused() {
		return r
	}
	if e.isReport(x) {
		return e.report(x)
	}
	if r := e.authorize(x); r.isRefused() {
		return r
	}
	if r := e.receive(x); r.isRefused() {
		return r
	}
	if r := e.meter(x); r.isRefused() {
		return r
	}
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

// Drain closes each connection after its next response. Listeners stay open, so that a load
// balancer can move away first.
func (e *Edge) Drain() { e.front.Drain() }

// Shutdown closes the listeners and unused connections, waits until every request has its response,
// and stops what New started. It stops waiting when ctx ends.
func (e *Edge) Shutdown(ctx context.Context) error {
	err := e.front.Shutdown(ctx)
	e.upstreams.CloseIdle()
	if e.accessLog != nil {
		e.accessLog.close()
	}
	return err
}

// Upstreams returns the pools of the services.
func (e *Edge) Upstreams() upstream.Pools { return e.upstreams }
