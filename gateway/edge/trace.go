package edge

import (
	"strconv"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/trace"
)

// export ends the span of a sampled request. The query is not among its attributes, because clients
// sometimes put secrets there. A request that was refused before its operation was known has the
// name of the operation too.
func (e *Edge) export(x *exchange, took time.Duration) {
	span := e.deps.Tracer.Start(&x.trace, x.At)
	if span == nil {
		return
	}
	r := trace.Request{
		Method:  string(x.Request.Method),
		ID:      string(x.id),
		Outcome: x.outcome(),
		Status:  x.Response.Status,
	}
	if !trace.IsMethod(r.Method) && !apikey.IsIn(x.Request.Method) {
		span.Set("http.request.method_original", r.Method)
	}
	found := x.route
	if path := x.loggedPath(); len(path) > 0 {
		span.Set("url.path", string(path))
		if found == nil {
			found = e.find(x)
		}
	}
	if found != nil {
		r.Route = found.Path
	}
	if x.route != nil {
		r.Operation = x.route.ID
	}
	span.Set("url.scheme", e.proxies.Protocol(x.Conn.Peer, x.Conn.IsTLS, &x.claims))
	if x.isKnown {
		span.Set("petgate.tenant", x.entry.Tenant.String())
		span.Set("petgate.key", x.entry.Key.String())
	}
	if !x.refusal.isRefused() { // a fault is the service's
		r.Failure = strconv.Itoa(r.Status)
	}
	span.EndRequest(r, x.At.Add(took))
}
