package trace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"petgate/shared/service"
)

// The first three are the defaults that OpenTelemetry specifies for exporters, except that a batch
// waits less.
const (
	queueMax    = 2048             // spans, with those that are being sent
	batchMax    = 512              // spans
	postTimeout = 10 * time.Second // of one attempt

	batchWait = time.Second // how long a span waits for others, and a batch after a failed attempt

	answerBytesMax = 64 << 10 // of the header of a response, and of its body
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
	threshold uint64

	mu       sync.Mutex
	queue    []*tracepb.Span
	isClosed bool          // no more spans are queued
	isFull   chan struct{} // the queue has a batch

	values   values
	client   http.Client
	resource *resourcepb.Resource
	scope    *commonpb.InstrumentationScope
	log      *slog.Logger
	complain rate.Sometimes

	exported, unqueued, undelivered prometheus.Counter

	ctx    context.Context // of the posts
	cancel context.CancelFunc
	stop   chan struct{} // closed by Close
	done   chan struct{} // closed after the last post
}

// Open returns a Tracer that exports in the background until Close. Without an endpoint it returns
// nil. It does not connect yet.
func Open(cfg Config) (*Tracer, error) {
	if cfg.Endpoint == "" {
		return nil, nil
	}
	var bad service.BadSettings
	values := cfg.read(&bad)
	if len(bad) > 0 {
		return nil, fmt.Errorf("trace: %s: %s", bad[0].Flag, bad[0].Rule)
	}
	values.headers.Set("Content-Type", "application/x-protobuf")
	values.headers.Set("User-Agent", "petgate/"+service.Version())
	transport := cfg.Transport
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.MaxIdleConns, own.IdleConnTimeout, own.MaxResponseHeaderBytes = 1, time.Minute, answerBytesMax
		transport = own
	}
	t := &Tracer{
		threshold: thresholdOf(values.ratio), values: values, log: cfg.Log, resource: cfg.resource(values.attributes),
		client: http.Client{
			Transport: transport, Timeout: postTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		scope: &commonpb.InstrumentationScope{
			Name:    "petgate",
			Version: service.Version(),
		}, complain: rate.Sometimes{Interval: time.Minute},
		isFull: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	spans := promauto.With(cfg.Metrics).NewCounterVec(prometheus.CounterOpts{
		Name: "petgate_trace_spans_total",
		Help: "Spans of sampled requests: exported; unqueued (the queue was full); undelivered (the collector did not take them, or they ended after the export).",
	}, []string{"result"})
	t.exported, t.unqueued, t.undelivered = spans.WithLabelValues("exported"), spans.WithLabelValues(
		"unqueued",
	), spans.WithLabelValues("undelivered")
	t.ctx, t.cancel = context.WithCancel(context.Background())
	go t.run()
	return t, nil
}

// resource describes the program. What the operator says takes precedence.
func (c *Config) resource(attributes [][2]string) *resourcepb.Resource {
	names := map[string]string{
		"service.name":        c.Program,
		"service.version":     service.Version(),
		"service.instance.id": c.Instance,
	}
	for _, one := range attributes {
		names[one[0]] = one[1]
	}
	if c.Service != "" {
		names["service.name"] = c.Service
	}
	r := &resourcepb.Resource{}
	for name, value := range names {
		if value != "" {
			r.Attributes = append(r.Attributes, attribute(strings.ToValidUTF8(name, "�"), value))
		}
	}
	return r
}

// push queues a span, or drops it if the queue is full or the Tracer is closed.
func (t *Tracer) push(span *tracepb.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.isClosed:
		t.undelivered.Inc()
	case len(t.queue) == queueMax:
		t.unqueued.Inc()
	default:
		if t.queue = append(t.queue, span); len(t.queue) == batchMax {
			select {
			case t.isFull <- struct{}{}:
			default: // it is known already
			}
		}
	}
}

// Close exports what is queued, but takes at most the given time, and drops the rest. Spans that
// end later are dropped. A nil Tracer has nothing to close.
func (t *Tracer) Close(atMost time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.isClosed = true
	t.mu.Unlock()
	close(t.stop)
	select {
	case <-t.done:
	case <-time.After(atMost):
	}
	t.cancel()
	<-t.done
	t.client.CloseIdleConnections()
}

// run sends what is queued, until Close.
func (t *Tracer) run() {
	defer close(t.done)
	tick := time.NewTicker(batchWait)
	defer tick.Stop()
	for isLast := false; !isLast; {
		select {
		case <-tick.C:
		case <-t.isFull:
		case <-t.stop:
			isLast = true
		}
		for t.send() {
		}
	}
	t.undelivered.Add(float64(len(t.queue)))
}

// send sends the first spans of the queue. If the collector may take them later, they stay where
// they are. It reports whether it is to be called again at once: there is another full batch, or
// the Tracer is being closed.
func (t *Tracer) send() bool {
	t.mu.Lock()
	batch := t.queue[:min(len(t.queue), batchMax)]
	t.mu.Unlock()
	if len(batch) == 0 {
		return false
	}
	body, err := proto.Marshal(&collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: t.resource, ScopeSpans: []*tracepb.ScopeSpans{{Scope: t.scope, Spans: batch}},
	}}})
	if err != nil {
		panic("bug: trace: " + err.Error()) // it fails only for strings that are not UTF-8
	}
	all := int64(len(batch))
	rejected, isFinal, err := t.post(body)
	if err != nil {
		t.complain.Do(func() {
			t.log.Warn(
				"the collector does not take spans, which are dropped if the queue is full; see OTEL_EXPORTER_OTLP_ENDPOINT",
				"error",
				err.Error(),
			)
		})
		rejected = all
	}
	if !isFinal {
		return false
	}
	rejected = max(0, min(rejected, all)) // the collector may say anything
	t.exported.Add(float64(all - rejected))
	t.undelivered.Add(float64(rejected))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = slices.Delete(t.queue, 0, len(batch))
	return t.isClosed || len(t.queue) >= batchMax
}

// post makes one attempt (OTLP, section "OTLP/HTTP Response"). If its result is not final, the same
// spans may be sent again. A Retry-After is not obeyed: attempts are a second apart.
func (t *Tracer) post(body []byte) (rejected int64, isFinal bool, err error) {
	request, err := http.NewRequestWithContext(t.ctx, http.MethodPost, t.values.url, bytes.NewReader(body))
	if err != nil {
		return 0, true, err
	}
	request.Header = t.values.headers.Clone()
	response, err := t.client.Do(request)
	if err != nil {
		return 0, false, err
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(
		io.LimitReader(response.Body, answerBytesMax),
	) // with 2xx, the spans were taken, also if the rest breaks off
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
