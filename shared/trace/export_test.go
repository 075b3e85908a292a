package trace

import (
	"bytes"
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
	header   http.Header
	url      string
	resource []*commonpb.KeyValue
	spans    []*tracepb.Span
}

func (c *collector) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent collectorpb.ExportTraceServiceRequest
	body, err := io.ReadAll(r.Body)
	if err := errors.Join(err, proto.Unmarshal(body, &sent)); err != nil {
		c.t.Errorf("post: %v", err)
	}
	of := sent.ResourceSpans[0]
	c.posts = append(c.posts,
		post{time.Since(c.begun), r.Header, r.URL.String(), of.Resource.Attributes, of.ScopeSpans[0].Spans})
	a := c.answers[min(len(c.posts), len(c.answers))-1]
	switch {
	case a.isBroken:
		return nil, errors.New("connection refused")
	case a.status == 0:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	content := io.Reader(bytes.NewReader(a.body))
	if a.isCut {
		content = iotest.ErrReader(io.ErrUnexpectedEOF)
	}
	header := http.Header{"Location": {"http://elsewhere/"}} // where no header for the collector may go
	return &http.Response{
		StatusCode: a.status,
		Status:     strings.Repeat("no ", 1<<20),
		Header:     header,
		Body:       io.NopCloser(content),
	}, nil
}

// exporter is a tracer that samples everything, with its collector.
type exporter struct {
	*Tracer
	*collector
	log strings.Builder
}

func open(t *testing.T, answers ...answer) *exporter {
	t.Helper()
	e := &exporter{collector: &collector{t: t, begun: time.Now(), answers: answers}}
	var err error
	e.Tracer, err = Open(Config{
		Settings: Settings{
			Endpoint: "http://collector:4318/base/", Ratio: "1", Headers: "X-Scope=team%20a,authorization=Basic%20eA%3D%3D",
			Attributes: "deployment.environment.name=live,service.name=overruled", Service: "edge",
		},
		Program: "gateway", Instance: "gw-1", Log: slog.New(slog.NewTextHandler(&e.log, nil)), Metrics: prometheus.NewRegistry(), Transport: e.collector,
	})
	must.Do(t, err)
	return e
}

// span ends a new span at once.
func (e *exporter) span() Context {
	c := e.Begin(nil, false)
	span := e.Start(&c, time.Now())
	span.End(time.Now())
	return c
}

// expect compares the counts of spans.
func (e *exporter) expect(when string, exported, unqueued, undelivered float64) {
	e.t.Helper()
	got := [...]float64{
		testutil.ToFloat64(e.exported), testutil.ToFloat64(e.unqueued), testutil.ToFloat64(e.undelivered),
	}
	if want := [...]float64{exported, unqueued, undelivered}; got != want {
		e.t.Errorf("%s: exported, unqueued and undelivered: %v, want %v", when, got, want)
	}
}

// close closes the Tracer as programs do, and returns how long it took.
func (e *exporter) close() time.Duration {
	begun := time.Now()
	e.Close(CloseMax)
	return time.Since(begun)
}

func TestExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, answer{status: 200})
		began := time.Now()
		c := e.Begin([]byte(sampledField), true)
		span := e.Start(&c, began)
		span.Set("petgate.outcome", "not UTF-8 \xff")
		span.EndRequest(
			Request{Method: "GET", Route: "/v1/pets", Status: 503}, began.Add(-time.Hour),
		) // a clock that was set back
		e.close()
		if len(e.posts) != 1 || len(e.posts[0].spans) != 1 {
			t.Fatalf("%d posts: %+v", len(e.posts), e.posts)
		}
		got := e.posts[0]
		if got.url != "http://collector:4318/base/v1/traces" || got.header.Get("X-Scope") != "team a" ||
			got.header.Get("Authorization") != "Basic eA==" ||
			got.header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %v", got.url, got.header)
		}
		want := map[string]string{
			"service.name":                "edge",
			"service.instance.id":         "gw-1",
			"deployment.environment.name": "live",
			"service.version":             service.Version(),
		}
		for _, a := range got.resource {
			if a.Value.GetStringValue() != want[a.Key] || len(got.resource) != len(want) {
				t.Errorf("resource: %v", got.resource)
			}
		}
		if s := got.spans[0]; fmt.Sprintf("%x", s.TraceId) != callersTrace || fmt.Sprintf("%x", s.ParentSpanId) != callersSpan ||
			string(s.SpanId) != string(c.Span[:]) || s.Kind != tracepb.Span_SPAN_KIND_SERVER || s.Name != "GET /v1/pets" ||
			s.Flags != flagSampled|flagKnowsRemote|flagRemote || s.Status.Code != tracepb.Status_STATUS_CODE_ERROR ||
			s.StartTimeUnixNano != uint64(began.UnixNano()) ||
			s.EndTimeUnixNano != s.StartTimeUnixNano ||
			s.Attributes[0].Value.GetStringValue() != "not UTF-8 �" ||
			s.Attributes[2].Value.GetIntValue() != 503 {
			t.Errorf("%v", s)
		}
		e.expect("at the end", 1, 0, 0)
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
	f := func(name string, posts int, last time.Duration, exported, undelivered float64, logs string, answers ...answer) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			e := open(t, answers...)
			e.span()
			e.span()
			time.Sleep(30*time.Second + batchWait/2)
			synctest.Wait()
			at := e.posts[len(e.posts)-1].at
			if len(e.posts) != posts || at != last || !strings.Contains(e.log.String(), logs) ||
				logs == "" && e.log.Len() > 0 ||
				e.log.Len() > 300 {
				t.Errorf("%s: %d posts, the last after %v; %.300s", name, len(e.posts), at, e.log.String())
			}
			e.expect(name, exported, 0, undelivered)
			e.close()
		})
	}
	good := answer{status: 200}
	f("taken", 1, batchWait, 2, 0, "", good)
	f("taken, with text", 1, batchWait, 2, 0, "", answer{status: 202, body: []byte("OK")})
	f("taken, and the response breaks off", 1, batchWait, 2, 0, "", answer{status: 200, isCut: true})
	f("one rejected", 1, batchWait, 1, 1, "", rejects(1))
	f("more rejected than sent", 1, batchWait, 0, 2, "", rejects(math.MaxInt64))
	f("less than none rejected", 1, batchWait, 2, 0, "", rejects(-1))
	for _, status := range []int{429, 502, 503, 504} {
		f("busy", 2, 2*batchWait, 2, 0, fmt.Sprint("responded with ", status), answer{status: status}, good)
	}
	f("broken", 2, 2*batchWait, 2, 0, "connection refused", answer{isBroken: true}, good)
	f("silent", 2, batchWait+postTimeout, 2, 0, "deadline exceeded", answer{}, good)
	f("busy for ever", 30, 30*batchWait, 0, 0, "responded with 503", answer{status: 503})
	for _, status := range []int{301, 401, 500} {
		f("refused", 1, batchWait, 0, 2, fmt.Sprint("responded with ", status), answer{status: status})
	}
}

// A collector that does not answer costs spans and nothing else: ending a span never waits, and
// what does not fit is counted. A full batch is sent at once.
func TestSilentCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, answer{})
		for range batchMax {
			e.span()
		}
		begun := time.Now()
		synctest.Wait()
		if len(e.posts) != 1 || len(e.posts[0].spans) != batchMax {
			t.Fatalf("posts: %v", e.posts)
		}
		for range queueMax - batchMax + 100 {
			e.span()
		}
		must.Equal(t, time.Since(begun), 0, "how long ending spans has waited")
		e.expect("while it is silent", 0, 100, 0)
		must.Equal(t, e.close(), CloseMax, "how long Close took")
		e.expect("after Close", 0, 100, queueMax)
		must.Equal(t, strings.Count(e.log.String(), "does not take spans"), 1, "logged in %s", e.log.String())
	})
}

// Close exports what is queued, in full batches, also if the collector has just not taken it.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy, good := answer{status: 429}, answer{status: 200}
		e := open(t, busy, good, good, busy, good)
		e.span()
		time.Sleep(batchWait)
		for _, n := range []int{2*batchMax + 1, batchMax} {
			synctest.Wait()
			for range n {
				e.span()
			}
		}
		synctest.Wait()
		must.Equal(t, len(e.posts), 4, "posts before Close: full batches do not wait")
		must.Equal(t, e.close(), 0, "how long Close took")
		var sizes []int
		for _, p := range e.posts {
			sizes = append(sizes, len(p.spans))
		}
		if !slices.Equal(sizes, []int{1, batchMax, batchMax, batchMax, batchMax, 2}) {
			t.Errorf("posts of %v", sizes)
		}
		e.expect("at the end", 3*batchMax+2, 0, 0)
		e.span()
		e.expect("after Close", 3*batchMax+2, 0, 1)
	})
	off, err := Open(Config{Settings: Settings{Ratio: "not used"}})
	if off.Close(CloseMax); off != nil || err != nil {
		t.Errorf("without an endpoint: %v, %v", off, err)
	}
}
