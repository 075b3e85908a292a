package trace

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"petgate/shared/service"
)

// CloseMax is how long programs give Close. Spans that have not been delivered then are dropped.
const CloseMax = 2 * time.Second

// Config configures a Tracer.
type Config struct {
	Settings
	Program   string // the default of Settings.Service
	Instance  string // distinguishes the instances of a program; empty: not stated
	Log       *slog.Logger
	Metrics   prometheus.Registerer
	Transport http.RoundTripper // to the collector; nil: a copy of http.DefaultTransport
}

// Tracer samples requests and exports their spans.
type Tracer struct {
	threshold      uint64
	ignoresCallers bool

	queue    *queue
	exporter *exporter
	provider *trace.TracerProvider
	spans    api.Tracer
}

// Open returns a Tracer that exports in the background until Close. It returns nil if the settings
// say that there are no traces. It does not connect yet.
func Open(cfg Config) (*Tracer, error) {
	if cfg.isOff() {
		return nil, nil
	}
	var bad service.BadSettings
	values := cfg.read(&bad)
	if len(bad) > 0 {
		return nil, fmt.Errorf("trace: %s: %s", bad[0].Flag, bad[0].Rule)
	}
	described, err := cfg.resource(values.attributes)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	counts := promauto.With(cfg.Metrics).NewCounterVec(prometheus.CounterOpts{
		Name: "petgate_trace_spans_total",
		Help: "Spans of sampled requests: exported; unqueued (the queue was full); undelivered " +
			"(the collector did not take them, or they ended after the export).",
	}, []string{"result"})
	t := &Tracer{threshold: thresholdOf(values.ratio), ignoresCallers: values.ignoresCallers}
	t.queue = &queue{unqueued: counts.WithLabelValues("unqueued"), undelivered: counts.WithLabelValues("undelivered")}
	t.exporter = newExporter(values, cfg.Transport, cfg.Log, t.queue, counts.WithLabelValues("exported"))
	t.queue.SpanProcessor = trace.NewBatchSpanProcessor(t.exporter, func(o *trace.BatchSpanProcessorOptions) {
		t.queue.most = int64(o.MaxQueueSize)
	})
	t.provider = trace.NewTracerProvider(
		trace.WithResource(described),
		trace.WithSampler(trace.AlwaysSample()), // Begin has decided
		trace.WithIDGenerator(places{}),
		trace.WithSpanProcessor(t.queue),
	)
	t.spans = t.provider.Tracer("petgate", api.WithInstrumentationVersion(service.Version()))
	return t, nil
}

// resource describes the program. What the operator says takes precedence.
func (c *Config) resource(attributes [][2]string) (*resource.Resource, error) {
	all := []attribute.KeyValue{
		attribute.String("service.name", c.Program),
		attribute.String("service.version", service.Version()),
	}
	if c.Instance != "" {
		all = append(all, attribute.String("service.instance.id", valid(c.Instance)))
	}
	for _, one := range attributes {
		all = append(all, attribute.String(valid(one[0]), valid(one[1])))
	}
	if c.Service != "" {
		all = append(all, attribute.String("service.name", valid(c.Service)))
	}
	return resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(all...))
}

// Close exports what is queued, but takes at most the given time, and drops the rest. Spans that
// end later are dropped. A nil Tracer has nothing to close.
func (t *Tracer) Close(atMost time.Duration) {
	if t == nil {
		return
	}
	t.queue.isClosed.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), atMost)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // fails if the time is up; the exporter counts what it drops
	t.exporter.abandon()
}

// queue is the SDK's queue, with a count of the spans that do not fit. A span is in it until it was
// exported or dropped.
type queue struct {
	trace.SpanProcessor
	most     int64
	length   atomic.Int64
	isClosed atomic.Bool // no span reaches the SDK

	unqueued, undelivered prometheus.Counter
}

// OnEnd queues a span. It never waits.
func (q *queue) OnEnd(span trace.ReadOnlySpan) {
	if q.length.Add(1) > q.most {
		q.length.Add(-1)
		q.unqueued.Inc()
		return
	}
	q.SpanProcessor.OnEnd(span)
}

// places gives the SDK the IDs that Begin has chosen: they are in the context of the span's start.
type places struct{}

type placeKey struct{}

func (places) NewIDs(ctx context.Context) (api.TraceID, api.SpanID) {
	c := ctx.Value(placeKey{}).(*Context)
	return api.TraceID(c.Trace), api.SpanID(c.Span)
}

func (places) NewSpanID(ctx context.Context, _ api.TraceID) api.SpanID {
	return api.SpanID(ctx.Value(placeKey{}).(*Context).Span)
}
