package trace

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"petgate/shared/background"
	"petgate/shared/service"
)

const (
	postTimeout    = 10 * time.Second // of one attempt; the default that OpenTelemetry specifies
	postAgain      = time.Second      // after an attempt that another one may repeat
	answerBytesMax = 64 << 10         // of the header of a response, and of its body
)

// exporter sends the SDK's batches of spans. The SDK calls it for one batch after the other.
type exporter struct {
	values
	client   http.Client
	log      *slog.Logger
	complain rate.Sometimes
	queue    *queue
	exported prometheus.Counter

	ctx     context.Context // of the posts
	abandon context.CancelFunc
}

func newExporter(
	v values, transport http.RoundTripper, log *slog.Logger, q *queue, exported prometheus.Counter,
) *exporter {
	v.headers.Set("Content-Type", "application/x-protobuf")
	v.headers.Set("User-Agent", "petgate/"+service.Version())
	if v.isCompressed {
		v.headers.Set("Content-Encoding", "gzip")
	}
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.MaxIdleConns, own.IdleConnTimeout, own.MaxResponseHeaderBytes = 1, time.Minute, answerBytesMax
		own.TLSClientConfig = v.tls
		transport = own
	}
	e := &exporter{values: v, log: log, queue: q, exported: exported, complain: rate.Sometimes{Interval: time.Minute}}
	e.client = http.Client{
		Transport: transport, Timeout: v.timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	e.ctx, e.abandon = context.WithCancel(context.Background())
	return e
}

// ExportSpans sends a batch until the collector has answered for all of it, or ctx ends: after
// OTEL_BSP_EXPORT_TIMEOUT. It returns no error, because the SDK would write that to standard error.
func (e *exporter) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	rejected := int64(len(spans))
	body, err := e.encode(spans)
	for isFinal := err != nil; !isFinal; {
		rejected, isFinal, err = e.post(ctx, body)
		if err == nil {
			break
		}
		rejected = int64(len(spans))
		e.complain.Do(func() {
			e.log.Warn("the collector does not take spans: they are dropped if this goes on; see OTEL_EXPORTER_OTLP_ENDPOINT",
				"error", err.Error())
		})
		if !isFinal {
			isFinal = !background.Pause(ctx, postAgain)
		}
	}
	rejected = max(0, min(rejected, int64(len(spans)))) // the collector may say anything
	e.exported.Add(float64(int64(len(spans)) - rejected))
	e.queue.undelivered.Add(float64(rejected))
	e.queue.length.Add(-int64(len(spans)))
	return nil
}

// Shutdown is called by the SDK after the last batch.
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}

// post makes one attempt (OTLP, section "OTLP/HTTP Response"). If its result is not final, the same
// spans may be sent again. A Retry-After is not obeyed: attempts are a second apart.
func (e *exporter) post(ctx context.Context, body []byte) (rejected int64, isFinal bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return 0, true, err
	}
	request.Header = e.headers.Clone()
	response, err := e.client.Do(request)
	if err != nil {
		return 0, false, err
	}
	defer response.Body.Close()
	// With 2xx, the spans were taken, also if the rest breaks off.
	answer, _ := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
	switch status := response.StatusCode; {
	case status == http.StatusTooManyRequests,
		status == http.StatusBadGateway,
		status == http.StatusServiceUnavailable,
		status == http.StatusGatewayTimeout:
		return 0, false, fmt.Errorf("it responded with %d", status)
	case status/100 != 2:
		return 0, true, fmt.Errorf("it responded with %d", status)
	}
	var result collectorpb.ExportTraceServiceResponse
	if proto.Unmarshal(answer, &result) != nil {
		return 0, true, nil // a success in another form, such as text
	}
	return result.GetPartialSuccess().GetRejectedSpans(), true, nil
}

// encode returns the body of a post. All spans of a Tracer have one resource and one scope.
func (e *exporter) encode(spans []trace.ReadOnlySpan) ([]byte, error) {
	scope := spans[0].InstrumentationScope()
	of := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: scope.Name, Version: scope.Version}}
	for _, span := range spans {
		of.Spans = append(of.Spans, encodeSpan(span))
	}
	body, err := proto.Marshal(&collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: encodeAttributes(spans[0].Resource().Attributes())},
		ScopeSpans: []*tracepb.ScopeSpans{of},
	}}})
	if err != nil || !e.isCompressed {
		return body, err
	}
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	_, _ = w.Write(body) // a buffer takes everything
	_ = w.Close()
	return compressed.Bytes(), nil
}

// Flags that an exported span has beside those of its trace: that it knows whether its parent is in
// another program, and that it is.
const (
	flagKnowsRemote = 0x100
	flagRemote      = 0x200
)

func encodeSpan(span trace.ReadOnlySpan) *tracepb.Span {
	place, parent := span.SpanContext(), span.Parent()
	traceID, spanID := place.TraceID(), place.SpanID()
	encoded := &tracepb.Span{
		TraceId:           traceID[:],
		SpanId:            spanID[:],
		Flags:             uint32(place.TraceFlags()) | flagKnowsRemote,
		Name:              span.Name(),
		Kind:              tracepb.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: uint64(span.StartTime().UnixNano()),
		EndTimeUnixNano:   uint64(span.EndTime().UnixNano()),
		Attributes:        encodeAttributes(span.Attributes()),
	}
	encoded.DroppedAttributesCount = uint32(span.DroppedAttributes())
	if parent.SpanID().IsValid() {
		parentID := parent.SpanID()
		encoded.ParentSpanId = parentID[:]
		encoded.Flags |= flagRemote
	}
	if span.Status().Code == codes.Error {
		encoded.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	}
	return encoded
}

// encodeAttributes knows the values that a Span and a resource have: numbers and strings.
func encodeAttributes(attributes []attribute.KeyValue) (all []*commonpb.KeyValue) {
	for _, a := range attributes {
		value := &commonpb.AnyValue{}
		if a.Value.Type() == attribute.INT64 {
			value.Value = &commonpb.AnyValue_IntValue{IntValue: a.Value.AsInt64()}
		} else {
			value.Value = &commonpb.AnyValue_StringValue{StringValue: a.Value.AsString()}
		}
		all = append(all, &commonpb.KeyValue{Key: string(a.Key), Value: value})
	}
	return all
}
