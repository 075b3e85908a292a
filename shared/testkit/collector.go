package testkit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector takes the traces of programs, by OTLP over HTTP.
type Collector struct {
	URL string

	mu    sync.Mutex
	spans []ExportedSpan
}

// collectedWithin is how long a span may take until it has arrived.
const collectedWithin = 30 * time.Second

// ExportedSpan is a span with the name of its service.
type ExportedSpan struct {
	Service string
	*tracepb.Span
}

// StartCollector returns a collector that ends with the test.
func StartCollector(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var export collectorpb.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &export)
		}
		asked := r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type")
		if err != nil || asked != "POST /v1/traces application/x-protobuf" {
			t.Errorf("the collector got %s: %v", asked, err)
		}
		c.add(&export)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *Collector) add(export *collectorpb.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range export.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans = append(c.spans, ExportedSpan{attributes(of.Resource.Attributes)["service.name"], span})
			}
		}
	}
}

// Spans returns the spans that have arrived.
func (c *Collector) Spans() []ExportedSpan {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]ExportedSpan(nil), c.spans...)
}

// Await waits until n spans have arrived, and returns all.
func (c *Collector) Await(t testing.TB, n int) []ExportedSpan {
	t.Helper()
	Eventually(t, collectedWithin, "spans arrive at the collector", func() bool { return len(c.Spans()) >= n })
	return c.Spans()
}

// Texts returns the attributes that are strings.
func (s ExportedSpan) Texts() map[string]string { return attributes(s.Attributes) }

func attributes(list []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, one := range list {
		all[one.Key] = one.Value.GetStringValue()
	}
	return all
}
