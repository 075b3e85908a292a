package edge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the metrics of the edge. No label has a tenant, a key, a path or an address, because we cannot limit their
// number.
type metrics struct {
	requests  [reasons]prometheus.Counter
	own       map[string]prometheus.Counter // by outcome
	responses [6]prometheus.Counter         // by the first digit of the status
	seconds   prometheus.Histogram
	bans      prometheus.Counter
	shed      prometheus.Counter

	acceptFailures prometheus.Counter
	droppedLines   prometheus.Counter
	evicted        prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, e *Edge) *metrics {
	make := promauto.With(reg)
	requests := make.NewCounterVec(prometheus.CounterOpts{
		Name: "petgate_gateway_requests_total",
		Help: "Requests by outcome: ok, page (documentation), preflight (CORS), report (of the quota), or the code of the refusal. Responses of the service count as ok, whatever their status, except 401.",
	}, []string{"outcome"})
	responses := make.NewCounterVec(prometheus.CounterOpts{
		Name: "petgate_gateway_responses_total",
		Help: "Responses by class of status: 2xx, 3xx, 4xx, 5xx.",
	}, []string{"class"})
	m := &metrics{
		seconds: make.NewHistogram(prometheus.HistogramOpts{
			Name:    "petgate_gateway_request_seconds",
			Help:    "Time from a request's last byte to its response, of all requests.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		bans: make.NewCounter(prometheus.CounterOpts{
			Name: "petgate_gateway_bans_total",
			Help: "Bans that this gateway imposed.",
		}),
		acceptFailures: make.NewCounter(prometheus.CounterOpts{
			Name: "petgate_gateway_accept_failures_total",
			Help: "Connections that could not be accepted, for example because the process has no file descriptors left.",
		}),
		evicted: make.NewCounter(prometheus.CounterOpts{
			Name: "petgate_gateway_connections_evicted_total",
			Help: "Connections that were closed to make room for others: first those without a valid key, then idle ones.",
		}),
		droppedLines: make.NewCounter(prometheus.CounterOpts{
			Name: "petgate_gateway_access_log_dropped_total",
			Help: "Lines of the access log that were dropped because the log's reader is too slow or has gone.",
		}),
		shed: make.NewCounter(prometheus.CounterOpts{
			Name: "petgate_gateway_connections_shed_total",
			Help: "Connections closed without a response, because there were too many to answer.",
		}),
	}
	m.own = map[string]prometheus.Counter{}
	for _, outcome := range ownOutcomes {
		m.own[outcome] = requests.WithLabelValues(outcome)
	}
	for r := range m.requests {
		m.requests[r] = requests.WithLabelValues(reason(r).outcome())
	}
	for class := 2; class < len(m.responses); class++ {
		m.responses[class] = responses.WithLabelValues(string('0'+rune(class)) + "xx")
	}
	make.NewCounterFunc(prometheus.CounterOpts{
		Name: "petgate_gateway_upstream_retries_total",
		Help: "Second attempts, after an upstream closed a connection that had served before.",
	}, func() float64 { return float64(e.upstreams.Retries()) })
	gauge := func(name, help string, value func() float64) {
		make.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	gauge("petgate_gateway_requests_in_flight", "Requests being served.", func() float64 { return float64(e.inFlight.Load()) })
	gauge("petgate_gateway_connections", "Connections held by clients.", func() float64 { return float64(e.connections.Load()) })
	gauge("petgate_gateway_head_bytes", "Memory in use for heads that are arriving and have more than 512 bytes, in bytes.", func() float64 {
		return float64(e.http.Limits.Heads.Used())
	})
	gauge("petgate_gateway_body_bytes", "Memory in use for the bodies of requests, in bytes.", func() float64 {
		return float64(e.http.Limits.Bodies.Used())
	})
	gauge("petgate_gateway_upstreams_ejected", "Upstreams that have failed and get no requests at the moment.", func() float64 {
		return float64(e.upstreams.Ejected(time.Now()))
	})
	return m
}

func (m *metrics) observe(x *exchange, took time.Duration) {
	if x.isPage() || x.isReport() {
		m.own[x.outcome()].Inc()
	} else {
		m.requests[x.refusal.reason].Inc()
	}
	if class := x.rc.Response.StatusCode() / 100; class < len(m.responses) && m.responses[class] != nil {
		m.responses[class].Inc()
	}
	m.seconds.Observe(took.Seconds())
}
