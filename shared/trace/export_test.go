package trace

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// collector answers posts. Within a bubble of synctest, time passes only while everything waits.
type collector struct {
	t       *testing.T
	begun   time.Time
	answers []answer // one for each post, the last one also for all others
	posts   []post
}

// answer is a response; without a status, there is none.
type answer struct {
	status   int
	body     []byte
	isBroken bool // the connection breaks
	isCut    bool // the body breaks off
}

// post is what arrived, and when.
type post struct {
	at       time.Duration
	timeout  time.Duration
	header   http.Header
	url      string
	resource []*commonpb.KeyValue
	spans    []*tracepb.Span
}

func (c *collector) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent collectorpb.ExportTraceServiceRequest
	content := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		content = must.Get[*gzip.Reader](c.t)(gzip.NewReader(content))
	}
	body, err := io.ReadAll(content)
	if err := errors.Join(err, proto.Unmarshal(body, &sent)); err != nil {
		c.t.Errorf("post: %v", err)
	}
	of := sent.ResourceSpans[0]
	deadline, _ := r.Context().Deadline()
	c.posts = append(c.posts, post{
		at:       time.Since(c.begun),
		timeout:  time.Until(deadline),
		header:   r.Header,
		url:      r.URL.String(),
		resource: of.Resource.Attributes,
		spans:    of.ScopeSpans[0].Spans,
	})
	a := c.answers[min(len(c.posts), len(c.answers))-1]
	switch {
	case a.isBroken:
		return nil, errors.New("connection refused")
	case a.status == 0:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	rest := io.Reader(bytes.NewReader(a.body))
	if a.isCut {
		rest = iotest.ErrReader(io.ErrUnexpectedEOF)
	}
	header := http.Header{"Location": {"http://elsewhere/"}} // where no header for the collector may go
	return &http.Response{
		StatusCode: a.status,
		Status:     strings.Repeat("no ", 1<<20),
		Header:     header,
		Body:       io.NopCloser(rest),
	}, nil
}

// rig is a tracer that samples everything, with its collector.
type rig struct {
	*Tracer
	*collector
	log testkit.Output
}

func open(t *testing.T, answers ...answer) *rig {
	t.Helper()
	r := &rig{collector: &collector{t: t, begun: time.Now(), answers: answers}}
	var err error
	r.Tracer, err = Open(Config{
		Settings: Settings{
			Endpoint:   "http://collector:4318/base/",
			Ratio:      "1",
			Headers:    "X-Scope=team%20a,authorization=Basic%20eA%3D%3D",
			Attributes: "deployment.environment.name=live,service.name=overruled",
			Service:    "edge",
		},
		Program:   "gateway",
		Instance:  "gw-1",
		Log:       slog.New(slog.NewTextHandler(&r.log, nil)),
		Metrics:   prometheus.NewRegistry(),
		Transport: r.collector,
	})
	must.Do(t, err)
	return r
}

// span ends a new span at once.
func (r *rig) span() Context {
	c := r.Begin(nil, false)
	span := r.Start(&c, time.Now())
	span.End(time.Now())
	return c
}

// expect compares the counts of spans.
func (r *rig) expect(when string, exported, unqueued, undelivered float64) {
	r.t.Helper()
	got := [...]float64{
		testutil.ToFloat64(r.exporter.exported),
		testutil.ToFloat64(r.queue.unqueued),
		testutil.ToFloat64(r.queue.undelivered),
	}
	if want := [...]float64{exported, unqueued, undelivered}; got != want {
		r.t.Errorf("%s: exported, unqueued and undelivered: %v, want %v", when, got, want)
	}
}

// close closes the Tracer as programs do, and returns how long it took.
func (r *rig) close() time.Duration {
	begun := time.Now()
	r.Close(CloseMax)
	synctest.Wait() // for what Close has abandoned
	return time.Since(begun)
}

// The SDK's defaults.
const (
	queueMax  = 2048
	batchMax  = 512
	batchWait = 5 * time.Second
)

func TestExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, answer{status: 200})
		began := time.Now()
		c := r.Begin([]byte(sampledField), true)
		span := r.Start(&c, began)
		span.Set("url.path", "not UTF-8 \xff")
		setBack := began.Add(-time.Hour) // a clock that was set back
		span.EndRequest(Request{Method: "GET", Route: "/v1/pets", Status: 503}, setBack)
		root := r.span()
		r.close()
		if len(r.posts) != 1 || len(r.posts[0].spans) != 2 {
			t.Fatalf("%d posts: %+v", len(r.posts), r.posts)
		}

		got := r.posts[0]
		must.Equal(t, got.url, "http://collector:4318/base/v1/traces", "where it goes")
		for name, want := range map[string]string{
			"X-Scope": "team a", "Authorization": "Basic eA==", "Content-Type": "application/x-protobuf",
		} {
			must.Equal(t, got.header.Get(name), want, "%s", name)
		}
		resource := map[string]string{}
		for _, a := range got.resource {
			resource[a.Key] = a.Value.GetStringValue()
		}
		for name, want := range map[string]string{
			"service.name":                "edge",
			"service.instance.id":         "gw-1",
			"deployment.environment.name": "live",
			"service.version":             service.Version(),
			"telemetry.sdk.name":          "opentelemetry",
		} {
			must.Equal(t, resource[name], want, "%s", name)
		}

		trace := must.Get[[]byte](t)(hex.DecodeString(callersTrace))
		parent := must.Get[[]byte](t)(hex.DecodeString(callersSpan))
		start := uint64(began.UnixNano())
		want := &tracepb.Span{
			TraceId: trace, ParentSpanId: parent, SpanId: c.Span[:], Flags: flagSampled | flagKnowsRemote | flagRemote,
			Kind: tracepb.Span_SPAN_KIND_SERVER, Name: "GET /v1/pets", StartTimeUnixNano: start, EndTimeUnixNano: start,
			Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}, Attributes: got.spans[0].Attributes,
		}
		if !proto.Equal(got.spans[0], want) {
			t.Errorf("%v, want %v", got.spans[0], want)
		}
		must.Equal(t, got.spans[0].Attributes[0].Value.GetStringValue(), "not UTF-8 �", "an attribute")
		must.Equal(t, got.spans[0].Attributes[2].Value.GetIntValue(), 503, "the status")
		if s := got.spans[1]; !bytes.Equal(s.TraceId, root.Trace[:]) || !bytes.Equal(s.SpanId, root.Span[:]) ||
			s.ParentSpanId != nil || s.Flags != flagSampled|flagRandom|flagKnowsRemote || s.Status != nil {
			t.Errorf("a span without a caller: %v", s)
		}
		r.expect("at the end", 2, 0, 0)
	})
}

// What the collector answers decides whether a batch is sent again (OTLP, section "OTLP/HTTP
// Response"), a second later.
func TestAnswers(t *testing.T) {
	rejects := func(n int64) answer {
		body, err := proto.Marshal(
			&collectorpb.ExportTraceServiceResponse{
				PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: n},
			},
		)
		must.Do(t, err)
		return answer{status: 200, body: body}
	}
	f := func(
		name string, posts int, last time.Duration, exported, undelivered float64, logs string, answers ...answer,
	) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			r := open(t, answers...)
			r.span()
			r.span()
			time.Sleep(time.Minute)
			synctest.Wait()
			must.Equal(t, len(r.posts), posts, "%s: posts", name)
			must.Equal(t, r.posts[len(r.posts)-1].at, last, "%s: when the last one was", name)
			log := r.log.String()
			if !strings.Contains(log, logs) || logs == "" && log != "" || len(log) > 300 {
				t.Errorf("%s: logged %.300s", name, log)
			}
			r.expect(name, exported, 0, undelivered)
			r.close()
		})
	}
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "29500")
	good, again := answer{status: 200}, batchWait+postAgain
	f("taken", 1, batchWait, 2, 0, "", good)
	f("taken, with text", 1, batchWait, 2, 0, "", answer{status: 202, body: []byte("OK")})
	f("taken, and the response breaks off", 1, batchWait, 2, 0, "", answer{status: 200, isCut: true})
	f("one rejected", 1, batchWait, 1, 1, "", rejects(1))
	f("more rejected than sent", 1, batchWait, 0, 2, "", rejects(math.MaxInt64))
	f("less than none rejected", 1, batchWait, 2, 0, "", rejects(-1))
	for _, status := range []int{429, 502, 503, 504} {
		f("busy", 2, again, 2, 0, fmt.Sprint("responded with ", status), answer{status: status}, good)
	}
	f("broken", 2, again, 2, 0, "connection refused", answer{isBroken: true}, good)
	f("silent", 2, again+postTimeout, 2, 0, "deadline exceeded", answer{}, good)
	f("busy for ever", 30, batchWait+29*time.Second, 0, 2, "responded with 503", answer{status: 503})
	for _, status := range []int{301, 401, 500} {
		f("refused", 1, batchWait, 0, 2, fmt.Sprint("responded with ", status), answer{status: status})
	}
}

// A collector that does not answer costs spans and nothing else: ending a span never waits, and
// what does not fit is counted. A full batch is sent at once.
func TestSilentCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, answer{})
		for range batchMax {
			r.span()
		}
		begun := time.Now()
		synctest.Wait()
		if len(r.posts) != 1 || len(r.posts[0].spans) != batchMax {
			t.Fatalf("posts: %v", r.posts)
		}
		for range queueMax - batchMax + 100 {
			r.span()
		}
		must.Equal(t, time.Since(begun), 0, "how long ending spans has waited")
		r.expect("while it is silent", 0, 100, 0)
		must.Equal(t, r.close(), CloseMax, "how long Close took")
		r.expect("after Close", 0, 100, queueMax)
		must.Equal(t, strings.Count(r.log.String(), "does not take spans"), 1, "logged in %s", r.log.String())
	})
}

// Close exports what is queued, in full batches, also if the collector has just not taken it. There
// is room for new spans when a batch was taken.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy, good := answer{status: 429}, answer{status: 200}
		r := open(t, good, good, good, good, busy, good)
		for range 2 {
			for range queueMax / 2 {
				r.span()
			}
			synctest.Wait()
		}
		must.Equal(t, len(r.posts), 4, "posts before Close: full batches do not wait")
		r.span()
		must.Equal(t, r.close(), postAgain, "how long Close took")
		var sizes []int
		for _, p := range r.posts {
			sizes = append(sizes, len(p.spans))
		}
		if !slices.Equal(sizes, []int{batchMax, batchMax, batchMax, batchMax, 1, 1}) {
			t.Errorf("posts of %v", sizes)
		}
		r.expect("at the end", queueMax+1, 0, 0)
		r.span()
		r.expect("after Close", queueMax+1, 0, 1)
	})
}

// Only a batch that is sent again waits: what the collector refuses does not delay what is behind it.
func TestCloseDoesNotWaitAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, answer{status: 401})
		for range queueMax {
			r.span()
		}
		must.Equal(t, r.close(), 0, "how long Close took")
		r.expect("at the end", 0, 0, queueMax)
	})
}

// What people know of OpenTelemetry's SDKs is true here.
func TestVariables(t *testing.T) {
	f := func(look func(t *testing.T, first post), variables ...string) {
		t.Helper()
		t.Run(strings.Join(variables, " "), func(t *testing.T) {
			for _, one := range variables {
				name, value, _ := strings.Cut(one, "=")
				t.Setenv("OTEL_"+name, value)
			}
			synctest.Test(t, func(t *testing.T) {
				r := open(t, answer{status: 200})
				r.span()
				r.span()
				time.Sleep(time.Minute)
				synctest.Wait()
				look(t, r.posts[0])
				r.close()
			})
		})
	}
	f(func(t *testing.T, p post) { must.Equal(t, p.url, "https://other/own", "where it goes") },
		"EXPORTER_OTLP_TRACES_ENDPOINT=https://other/own")
	f(func(t *testing.T, p post) { must.Equal(t, p.header.Get("A")+p.header.Get("X-Scope"), "b", "headers") },
		"EXPORTER_OTLP_TRACES_HEADERS=a=b")
	f(func(t *testing.T, p post) { must.Equal(t, p.timeout, 2*time.Second, "timeout") },
		"EXPORTER_OTLP_TIMEOUT=2000")
	f(func(t *testing.T, p post) { must.Equal(t, p.timeout, 3*time.Second, "timeout") },
		"EXPORTER_OTLP_TIMEOUT=2000", "EXPORTER_OTLP_TRACES_TIMEOUT=3000")
	f(func(t *testing.T, p post) { must.Equal(t, p.header.Get("Content-Encoding"), "gzip", "compression") },
		"EXPORTER_OTLP_COMPRESSION=gzip")
	f(func(t *testing.T, p post) { must.Equal(t, p.at, time.Second/2, "when it is sent") },
		"BSP_SCHEDULE_DELAY=500")
	f(func(t *testing.T, p post) { must.Equal(t, len(p.spans), 1, "spans in a batch") },
		"BSP_MAX_EXPORT_BATCH_SIZE=1")
	f(func(t *testing.T, p post) { must.Equal(t, len(p.spans), 2, "spans") },
		"TRACES_SAMPLER=always_on", "PROPAGATORS=tracecontext,baggage", "EXPORTER_OTLP_PROTOCOL=http/protobuf")
}

// Without an endpoint, and if a variable says so, there are no traces.
func TestNoTraces(t *testing.T) {
	f := func(endpoint, name, value string) {
		t.Helper()
		t.Setenv(name, value)
		off, err := Open(Config{Settings: Settings{Endpoint: endpoint, Ratio: "not used"}})
		t.Setenv(name, "")
		if off.Close(CloseMax); off != nil || err != nil {
			t.Errorf("endpoint %q, %s=%s: %v, %v", endpoint, name, value, off, err)
		}
	}
	f("", "OTEL_TRACES_EXPORTER", "otlp")
	f("http://collector", "OTEL_TRACES_EXPORTER", "none")
	f("http://collector", "OTEL_SDK_DISABLED", "true")
}
