package edge

import (
	"strconv"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/trace"
)

// export ends the span of a sampled request. The query is not among its attributes, because clients
// sometimes put secrets there. The route is, also if the request was refused before route.
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
	if path := x.loggedPath(); len(path) > 0 {
		span.Set("url.path", string(path))
		if found := x.find(); found != nil {
			r.Route = found.Path
		}
	}
	if x.route != nil { // known even if the path holds a token
		r.Route = x.route.Path
		r.Operation = x.route.ID
	}
	span.Set("url.scheme", e.proxies.Protocol(x.Conn.Peer, x.Conn.IsTLS, &x.claims))
	if x.hasEntry {
		span.Set("petgate.tenant", x.entry.Tenant.String())
		span.Set("petgate.key", x.entry.Key.String())
	}
	if !x.refusal.isRefused() { // a fault is the service's
		r.Failure = strconv.Itoa(r.Status)
	}
	span.EndRequest(r, x.At.Add(took))
}
