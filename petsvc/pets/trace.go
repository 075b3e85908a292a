package pets

import (
	"time"

	"github.com/valyala/fasthttp"

	"petgate/shared/trace"
)

// traceHeader carries the trace of a request (W3C Trace Context).
const traceHeader = "traceparent"

// routes are the paths of the operations, with names for what differs.
var routes = map[string]string{"listPets": listPath, "createPet": listPath, "getPet": petPrefix + "{petId}"}

// export ends the span of a request.
func (s *Service) export(rc *fasthttp.RequestCtx, span *trace.Span, operation, outcome string, ended time.Time) {
	if span == nil {
		return
	}
	method, status := string(rc.Method()), rc.Response.StatusCode()
	if route := routes[operation]; route != "" {
		span.Name(method + " " + route)
		span.Set("http.request.method", method)
		span.Set("http.route", route)
		span.Set("petgate.operation", operation)
	} else {
		span.Name("HTTP")
	}
	span.SetInt("http.response.status_code", status)
	span.Set("petgate.request_id", string(rc.Request.Header.Peek(requestIDHeader)))
	span.Set("petgate.outcome", outcome)
	if status >= fasthttp.StatusInternalServerError {
		span.Set("error.type", outcome)
		span.Fail()
	}
	span.End(ended)
}
