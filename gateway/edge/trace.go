package edge

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"petgate/shared/core/apikey"
)

// knownMethods are those that spans name (OpenTelemetry's conventions for HTTP).
var knownMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions, http.MethodTrace, http.MethodConnect,
}

// export ends the span of a sampled request. Its attributes are those of OpenTelemetry's conventions for HTTP servers, and some of
// the access log. The query is not among them, because clients sometimes put secrets there. A request that was refused before its
// operation was known has the name of the operation too.
func (e *Edge) export(x *exchange, took time.Duration) {
	span := e.deps.Tracer.Start(&x.trace, x.At)
	if span == nil {
		return
	}
	name, method := "HTTP", "_OTHER"
	if slices.Contains(knownMethods, string(x.Request.Method)) {
		method = string(x.Request.Method)
		name = method
	} else if !apikey.IsIn(x.Request.Method) {
		span.Set("http.request.method_original", string(x.Request.Method))
	}
	found := x.route
	if path := x.loggedPath(); len(path) > 0 {
		span.Set("url.path", string(path))
		if found == nil {
			found = e.find(x)
		}
	}
	if found != nil {
		name += " " + found.Path
		span.Set("http.route", found.Path)
	}
	if x.route != nil {
		span.Set("petgate.operation", x.route.ID)
	}
	span.Name(name)
	span.Set("http.request.method", method)
	span.Set("url.scheme", e.proxies.Protocol(x.Conn.Peer, x.Conn.IsTLS, &x.claims))
	status := x.Response.Status
	span.SetInt("http.response.status_code", status)
	span.Set("petgate.request_id", string(x.id))
	span.Set("petgate.outcome", x.outcome())
	if x.isKnown {
		span.Set("petgate.tenant", x.entry.Tenant.String())
		span.Set("petgate.key", x.entry.Key.String())
	}
	if status >= http.StatusInternalServerError {
		failure := x.outcome()
		if !x.refusal.isRefused() { // it is the service's
			failure = strconv.Itoa(status)
		}
		span.Set("error.type", failure)
		span.Fail()
	}
	span.End(x.At.Add(took))
}
