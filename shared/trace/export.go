package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"petgate/shared/service"
)

// The first three are the defaults that OpenTelemetry specifies for exporters, except that a batch waits less.
const (
	queueMax    = 2048             // spans
	batchMax    = 512              // spans
	postTimeout = 10 * time.Second // of one attempt

	batchWait = time.Second // how long a span waits for others

	// A batch is sent again for at most retryMax, after pauses that double from pauseMin to pauseMax.
	retryMax = time.Minute
	pauseMin = time.Second
	pauseMax = 16 * time.Second

	// complainEvery is how often it is logged that spans cannot be delivered.
	complainEvery = time.Minute

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
	Transport http.RoundTripper // to the collector; nil: that of net/http
}

// Tracer samples requests and exports their spans.
type Tracer struct {
	threshold uint64
	queue     chan *tracepb.Span
	filled    chan struct{} // there are enough spans for a batch

	url      string
	headers  http.Header
	client   http.Client
	resource *resourcepb.Resource
	scope    *commonpb.InstrumentationScope
	log      *slog.Logger

	exported, unqueued, undelivered prometheus.Counter
	complainedAt                    time.Time

	ctx    context.Context // of the posts
	cancel context.CancelFunc
	stop   chan struct{} // closed when no more spans come
	done   chan struct{}
}

// Open returns a Tracer that exports in the background until Close. Without an endpoint it returns nil. It does not connect yet.
func Open(cfg Config) (*Tracer, error) {
	if cfg.Endpoint == "" {
		return nil, nil
	}
	url, urlErr := cfg.url()
	headers, headersErr := cfg.headers()
	attributes, attributesErr := pairs(cfg.Attributes)
	ratio, ratioErr := cfg.ratio()
	if err := errors.Join(urlErr, ratioErr, headersErr, attributesErr); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	headers.Set("Content-Type", "application/x-protobuf")
	headers.Set("User-Agent", "petgate/"+service.Version())
	transport := cfg.Transport
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.MaxIdleConns, own.IdleConnTimeout, own.MaxResponseHeaderBytes = 1, time.Minute, answerBytesMax
		transport = own
	}
	t := &Tracer{
		threshold: thresholdOf(ratio), queue: make(chan *tracepb.Span, queueMax), filled: make(chan struct{}, 1),
		url: url, headers: headers, log: cfg.Log, resource: cfg.resource(attributes),
		client: http.Client{
			Transport: transport, Timeout: postTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		scope: &commonpb.InstrumentationScope{Name: "petgate", Version: service.Version()},
		stop:  make(chan struct{}), done: make(chan struct{}),
	}
	spans := promauto.With(cfg.Metrics).NewCounterVec(prometheus.CounterOpts{
		Name: "petgate_trace_spans_total",
		Help: "Spans of sampled requests: exported; unqueued, dropped because the queue was full; undelivered, dropped because the collector did not take them or because they ended after the export. Without an endpoint there is no such metric.",
	}, []string{"result"})
	t.exported, t.unqueued, t.undelivered = spans.WithLabelValues("exported"), spans.WithLabelValues("unqueued"), spans.WithLabelValues("undelivered")
	t.ctx, t.cancel = context.WithCancel(context.Background())
	go t.run()
	return t, nil
}

// resource describes the program. What the operator says takes precedence.
func (c *Config) resource(attributes [][2]string) *resourcepb.Resource {
	names := map[string]string{"service.name": c.Program, "service.version": service.Version(), "service.instance.id": c.Instance}
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
	select {
	case <-t.done:
		t.undelivered.Inc()
		return
	default:
	}
	select {
	case t.queue <- span:
	default:
		t.unqueued.Inc()
		return
	}
	if len(t.queue) >= batchMax {
		select {
		case t.filled <- struct{}{}:
		default: // it is known already
		}
	}
}

// Close exports what is queued, but takes at most the given time, and drops the rest. Spans that end later are dropped. A nil Tracer has nothing
// to close.
func (t *Tracer) Close(atMost time.Duration) {
	if t == nil {
		return
	}
	close(t.stop)
	late := time.NewTimer(atMost)
	defer late.Stop()
	select {
	case <-t.done:
	case <-late.C:
	}
	t.cancel()
	<-t.done
	t.client.CloseIdleConnections()
}

// run sends batches. While there are no spans, it sets no timer.
func (t *Tracer) run() {
	defer close(t.done)
	for stopped := false; !stopped; {
		select {
		case first := <-t.queue:
			t.send(t.batch(first))
		case <-t.stop:
			stopped = true
		}
	}
	for len(t.queue) > 0 {
		t.send(t.gather(nil))
	}
}

// batch returns the first span, and those that come soon after it.
func (t *Tracer) batch(first *tracepb.Span) []*tracepb.Span {
	if len(t.queue)+1 < batchMax {
		late := time.NewTimer(batchWait)
		defer late.Stop()
		select {
		case <-late.C:
		case <-t.filled:
		case <-t.stop:
		}
	}
	return t.gather([]*tracepb.Span{first})
}

// gather adds what is queued.
func (t *Tracer) gather(batch []*tracepb.Span) []*tracepb.Span {
	for len(batch) < batchMax {
		select {
		case span := <-t.queue:
			batch = append(batch, span)
		default:
			return batch
		}
	}
	return batch
}

// send delivers a batch, if necessary in several attempts, or drops it.
func (t *Tracer) send(batch []*tracepb.Span) {
	body, err := proto.Marshal(&collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: t.resource, ScopeSpans: []*tracepb.ScopeSpans{{Scope: t.scope, Spans: batch}},
	}}})
	if err != nil {
		panic("bug: trace: " + err.Error()) // it fails only for strings that are not UTF-8
	}
	rejected, err := t.deliver(body)
	if err != nil {
		rejected = int64(len(batch))
	}
	rejected = max(0, min(rejected, int64(len(batch)))) // the collector may say anything
	t.exported.Add(float64(int64(len(batch)) - rejected))
	t.undelivered.Add(float64(rejected))
	if now := time.Now(); err != nil && now.Sub(t.complainedAt) >= complainEvery {
		t.complainedAt = now
		t.log.Warn("spans are dropped: the collector does not take them; see OTEL_EXPORTER_OTLP_ENDPOINT", "error", err.Error())
	}
}

// deliver sends a batch until the collector takes it, refuses it, or retryMax has passed. When the Tracer is being closed, it makes one
// more attempt. It returns how many spans the collector has rejected.
func (t *Tracer) deliver(body []byte) (rejected int64, err error) {
	begun, pause := time.Now(), pauseMin
	for {
		var wait time.Duration
		rejected, wait, err = t.post(body)
		if err == nil || wait < 0 {
			return rejected, err
		}
		// Not exactly the pause: collectors that come back would get all programs at once.
		wait = max(wait, pause/2+rand.N(pause))
		pause = min(2*pause, pauseMax)
		if t.isStopped() || wait > retryMax-time.Since(begun) { // not a sum: a wait may be the longest Duration
			return 0, err
		}
		again := time.NewTimer(wait)
		select {
		case <-again.C:
		case <-t.stop:
			again.Stop()
		}
	}
}

func (t *Tracer) isStopped() bool {
	select {
	case <-t.stop:
		return true
	default:
		return false
	}
}

// never is a wait after which a batch is not sent again.
const never = -1

// post makes one attempt (OTLP, section "OTLP/HTTP Response"). After an error, wait is the least time until the next attempt, or never.
func (t *Tracer) post(body []byte) (rejected int64, wait time.Duration, err error) {
	request, err := http.NewRequestWithContext(t.ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return 0, never, err
	}
	request.Header = t.headers.Clone()
	response, err := t.client.Do(request)
	if err != nil {
		return 0, 0, err
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
	_ = response.Body.Close()
	switch status := response.StatusCode; {
	case status == http.StatusTooManyRequests, status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return 0, retryAfter(response.Header, time.Now()), fmt.Errorf("it responded with %d", status)
	case status < 200 || status > 299:
		return 0, never, fmt.Errorf("it responded with %d", status)
	case err != nil:
		return 0, 0, err
	}
	var result collectorpb.ExportTraceServiceResponse
	if proto.Unmarshal(answer, &result) != nil {
		return 0, 0, nil // a success in another form, such as text
	}
	return result.GetPartialSuccess().GetRejectedSpans(), 0, nil
}

// retryAfter reads the field Retry-After (RFC 9110, section 10.2.3). It returns 0 if there is none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
