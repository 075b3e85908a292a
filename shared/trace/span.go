package trace

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
)

// Span is a sampled piece of work. A nil Span is one that is not sampled.
type Span struct {
	tracer *Tracer
	record *tracepb.Span
}

// Flags that an exported span has beside those of its trace: that it knows whether its parent is in
// another program, and that it is.
const (
	flagKnowsRemote = 0x100
	flagRemote      = 0x200
)

// Start returns the span of a request that a program serves, or nil if it is not sampled.
func (t *Tracer) Start(c *Context, begun time.Time) *Span {
	if !c.Sampled || t == nil {
		return nil
	}
	s := &Span{tracer: t, record: &tracepb.Span{
		TraceId: bytes.Clone(c.Trace[:]), SpanId: bytes.Clone(c.Span[:]), Kind: tracepb.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: nanos(begun), Flags: uint32(c.flags()) | flagKnowsRemote,
	}}
	if (c.Parent != SpanID{}) {
		s.record.ParentSpanId = bytes.Clone(c.Parent[:])
		s.record.Flags |= flagRemote
	}
	return s
}

// Trace returns the ID of a sampled span's trace.
func (s *Span) Trace() TraceID { return TraceID(s.record.TraceId) }

// Set adds an attribute. It must have no secret and no query.
func (s *Span) Set(key, value string) {
	if s != nil {
		s.record.Attributes = append(s.record.Attributes, attribute(key, value))
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
	s.record.Attributes = append(s.record.Attributes, &commonpb.KeyValue{
		Key: "http.response.status_code", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: int64(r.Status)}},
	})
	if r.Route != "" {
		name += " " + r.Route
		s.Set("http.route", r.Route)
		if r.Operation != "" {
			s.Set("petgate.operation", r.Operation)
		}
	}
	s.record.Name = name
	s.Set("petgate.request_id", r.ID)
	s.Set("petgate.outcome", r.Outcome)
	if r.Status >= http.StatusInternalServerError {
		s.Set("error.type", cmp.Or(r.Failure, r.Outcome))
		s.record.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	}
	s.End(at)
}

// End ends the span and queues it for export. It never waits. The span must not be used afterwards.
func (s *Span) End(at time.Time) {
	if s == nil {
		return
	}
	// A wall clock that is set back must not end a span before it began.
	s.record.EndTimeUnixNano = max(nanos(at), s.record.StartTimeUnixNano)
	s.tracer.push(s.record)
}

func attribute(key, value string) *commonpb.KeyValue {
	value = strings.ToValidUTF8(value, "�") // protobuf has no other strings
	return &commonpb.KeyValue{
		Key:   key,
		Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}},
	}
}

func nanos(at time.Time) uint64 { return uint64(at.UnixNano()) }
