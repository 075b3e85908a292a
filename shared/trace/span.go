package trace

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	api "go.opentelemetry.io/otel/trace"
)

// Span is a sampled piece of work. A nil Span is one that is not sampled.
type Span struct {
	span  api.Span
	begun time.Time
	queue *queue
}

// Start returns the span of a request that a program serves, or nil if it is not sampled.
func (t *Tracer) Start(c *Context, begun time.Time) *Span {
	if !c.Sampled || t == nil {
		return nil
	}
	caller := api.SpanContextConfig{TraceFlags: api.TraceFlags(c.flags()), Remote: true}
	if c.Parent != (SpanID{}) {
		caller.TraceID = api.TraceID(c.Trace)
		caller.SpanID = api.SpanID(c.Parent)
	}
	place := *c // the SDK keeps what a context holds
	ctx := context.WithValue(context.Background(), placeKey{}, &place)
	ctx = api.ContextWithSpanContext(ctx, api.NewSpanContext(caller))
	_, span := t.spans.Start(ctx, "", api.WithTimestamp(begun), api.WithSpanKind(api.SpanKindServer))
	return &Span{span, begun, t.queue}
}

// Trace returns the ID of a sampled span's trace.
func (s *Span) Trace() TraceID { return TraceID(s.span.SpanContext().TraceID()) }

// Set adds an attribute. It must have no secret and no query.
func (s *Span) Set(key, value string) {
	if s != nil {
		s.span.SetAttributes(attribute.String(key, valid(value)))
	}
}

// Request is what the span of an HTTP request tells.
type Request struct {
	Method    string
	Route     string // the path, with names for what differs; empty: none
	Operation string // told with a route; empty: none
	ID        string
	Outcome   string
	Status    int
	Failure   string // the kind of a fault, if Outcome does not say it
}

// IsMethod reports whether spans name a method (OpenTelemetry's conventions for HTTP).
func IsMethod(method string) bool {
	return slices.Contains([]string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions, http.MethodTrace, http.MethodConnect,
	}, method)
}

// EndRequest names the span of a request, adds the attributes of OpenTelemetry's conventions for
// HTTP servers and some of the access log, and ends the span. A status from 500 marks it as failed.
func (s *Span) EndRequest(r Request, at time.Time) {
	if s == nil {
		return
	}
	name, method := "HTTP", "_OTHER"
	if IsMethod(r.Method) {
		name, method = r.Method, r.Method
	}
	s.Set("http.request.method", method)
	s.span.SetAttributes(attribute.Int("http.response.status_code", r.Status))
	if r.Route != "" {
		name += " " + r.Route
		s.Set("http.route", r.Route)
		if r.Operation != "" {
			s.Set("petgate.operation", r.Operation)
		}
	}
	s.span.SetName(valid(name))
	s.Set("petgate.request_id", r.ID)
	s.Set("petgate.outcome", r.Outcome)
	if r.Status >= http.StatusInternalServerError {
		s.Set("error.type", cmp.Or(r.Failure, r.Outcome))
		s.span.SetStatus(codes.Error, "")
	}
	s.End(at)
}

// End ends the span and queues it for export. It never waits. The span must not be used afterwards.
func (s *Span) End(at time.Time) {
	if s == nil {
		return
	}
	if s.queue.isClosed.Load() {
		s.queue.undelivered.Inc()
		return
	}
	if at.Before(s.begun) { // a wall clock was set back
		at = s.begun
	}
	s.span.End(api.WithTimestamp(at))
}

// valid replaces what is not UTF-8: protobuf has no other strings.
func valid(text string) string { return strings.ToValidUTF8(text, "�") }
