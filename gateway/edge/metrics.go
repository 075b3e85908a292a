package edge

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"petgate/gateway/answers"
	"petgate/shared/core/access"
)

// metrics are the metrics of the edge. No label has a tenant, a key, a path or a client's address,
// because we cannot limit their number.
type metrics struct {
	requests [reasons]prometheus.Counter
	answers  map[string]prometheus.Counter // of what the gateway answers itself, by outcome
	noRoute  *routeMetrics                 // of requests that were answered before their operation was known
	seconds  *prometheus.HistogramVec
	of       func(operation string) *routeMetrics
	bans     atomic.Int64                      // that this gateway has imposed
	ended    [access.Banned]prometheus.Counter // requests with keys that are not valid, by why

	droppedLines prometheus.Counter
}

// routeMetrics are the metrics of one operation.
type routeMetrics struct {
	responses [6]prometheus.Counter // by the first digit of the status
	seconds   prometheus.Observer
}

// noOperation is the label of requests that were answered before their operation was known.
const noOperation = "none"

func newMetrics(reg prometheus.Registerer, e *Edge) *metrics {
	make := promauto.With(reg)
	requests := make.NewCounterVec(prometheus.CounterOpts{
		Name: "petgate_gateway_requests_total",
		Help: "Requests by outcome: ok, page (documentation), preflight (CORS), report (of the quota), " +
			"or the code of the refusal. Responses of the service count as ok, except 401.",
	}, []string{"outcome"})
	responses := make.NewCounterVec(prometheus.CounterOpts{
		Name: "petgate_gateway_responses_total",
		Help: "Responses by operation and class of status, such as 2xx. " +
			"The operation is none if the request was answered before it was known.",
	}, []string{"operation", "class"})
	seconds := make.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "petgate_gateway_request_seconds",
		Help:    "Time from a request's last byte to its response, by operation.",
		Buckets: latencies,
	}, []string{"operation"})
	m := &metrics{
		answers: map[string]prometheus.Counter{}, seconds: seconds,
		droppedLines: make.NewCounter(prometheus.CounterOpts{
			Name: "petgate_gateway_access_log_dropped_total",
			Help: "Lines of the access log that were dropped: its reader is too slow or has gone.",
		}),
	}
	ended := make.NewCounterVec(prometheus.CounterOpts{
		Name: "petgate_gateway_ended_key_requests_total",
		Help: "Requests with a known key that is revoked, disabled, expired, replaced or of another environment.",
	}, []string{"why"})
	for why := access.OtherEnvironment; why.IsOfKey(); why++ {
		m.ended[why] = ended.WithLabelValues(strings.ReplaceAll(why.String(), " ", "_"))
	}
	for _, outcome := range append([]string{none.row().Name}, answers.Outcomes...) {
		m.answers[outcome] = requests.WithLabelValues(outcome)
	}
	for r, row := range table {
		m.requests[r] = requests.WithLabelValues(row.Name)
	}
	m.of = func(operation string) *routeMetrics {
		of := &routeMetrics{seconds: seconds.WithLabelValues(operation)}
		for class := 2; class < len(of.responses); class++ {
			of.responses[class] = responses.WithLabelValues(operation, string('0'+rune(class))+"xx")
		}
		return of
	}
	m.noRoute = m.of(noOperation)
	reg.MustRegister(e.upstreams)
	make.NewCounterFunc(prometheus.CounterOpts{
		Name: "petgate_gateway_bans_total",
		Help: "Bans that this gateway imposed.",
	}, func() float64 { return float64(m.bans.Load()) })
	make.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "petgate_gateway_requests_in_flight",
		Help: "Requests being served.",
	}, func() float64 { return float64(e.slots.Used()) })
	return m
}

func (m *metrics) observe(x *exchange, took time.Duration) {
	if x.answer != nil {
		m.answers[x.outcome()].Inc()
	} else {
		m.requests[x.refusal.reason].Inc()
	}
	if x.hasEntry && x.access.IsOfKey() {
		m.ended[x.access].Inc()
	}
	of := m.noRoute
	if x.route != nil {
		of = x.route.metrics
	}
	if class := x.Response.Status / 100; class < len(of.responses) && of.responses[class] != nil {
		of.responses[class].Inc()
	}
	if x.trace.Sampled {
		of.seconds.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), x.trace.Trace.Exemplar())
		return
	}
	of.seconds.Observe(took.Seconds())
}

// Latencies returns how many requests since the start had a response within each of these times, in
// seconds. The last count is of all: it includes those that took longer.
func (e *Edge) Latencies() (within []float64, requests []uint64) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(e.metrics.seconds)
	families, err := reg.Gather()
	if err != nil {
		panic(fmt.Sprintf("bug: a metric cannot be read: %v", err))
	}
	last := len(latencies) - 1
	requests = make([]uint64, len(latencies))
	for _, m := range families[0].GetMetric() {
		// Not all buckets: with an exemplar above the last bound, an operation has one more.
		h := m.GetHistogram()
		for i := range last {
			requests[i] += h.GetBucket()[i].GetCumulativeCount()
		}
		requests[last] += h.GetSampleCount()
	}
	return latencies, requests
}

// latencies are the upper bounds of the buckets, in seconds.
var latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// Bans returns how many bans this gateway has imposed since the start.
func (e *Edge) Bans() int64 { return e.metrics.bans.Load() }
