package quotas

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	admitted, refused, remembered  prometheus.Counter
	localAdmitted, localRefused    prometheus.Counter
	undecided                      prometheus.Counter
	tripOK, tripFailed, tripUnsure prometheus.Counter
	tripSeconds, batchRequests     prometheus.Histogram
	batchTenants                   prometheus.Histogram
	timeouts, recordErrors         prometheus.Counter
	unsaved                        prometheus.Counter
	mode                           *prometheus.GaugeVec
	breakersOpen                   prometheus.Gauge
	guardLocal, guardShared        prometheus.Counter
	guardAddresses                 prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	decisions := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "gateway_limits_decisions_total",
		Help: "Quota decisions: admitted and refused by the store, refused from memory of a refusal (remembered), " +
			"decided by this gateway's share of the limits (local_), or not at all (undecided).",
	}, []string{"outcome"})
	trips := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "gateway_limits_trips_total",
		Help: "Batches sent to Redis: ok, failed (not executed), or unsure (no answer in time: may have been executed).",
	}, []string{"result"})
	guard := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "gateway_limits_failed_attempts_refused_total",
		Help: "Failed authentications refused with 429, by who knew: this gateway (local) or Redis (shared).",
	}, []string{"by"})
	powers := prometheus.ExponentialBuckets(1, 2, 11)
	return &metrics{
		admitted:      decisions.WithLabelValues("admitted"),
		refused:       decisions.WithLabelValues("refused"),
		remembered:    decisions.WithLabelValues("remembered"),
		localAdmitted: decisions.WithLabelValues("local_admitted"),
		localRefused:  decisions.WithLabelValues("local_refused"),
		undecided:     decisions.WithLabelValues("undecided"),
		tripOK:        trips.WithLabelValues("ok"),
		tripFailed:    trips.WithLabelValues("failed"),
		tripUnsure:    trips.WithLabelValues("unsure"),
		tripSeconds: histogram("gateway_limits_trip_seconds", "Duration of a trip to Redis.",
			prometheus.ExponentialBuckets(0.0001, 2, 11)),
		batchRequests: histogram("gateway_limits_batch_requests", "Requests decided by one trip to Redis.", powers),
		batchTenants:  histogram("gateway_limits_batch_tenants", "Tenants decided by one trip to Redis.", powers),
		timeouts: counter("gateway_limits_timeouts_total",
			"Requests whose budget ended before Redis had decided them."),
		recordErrors: counter("gateway_limits_record_errors_total",
			"Decisions for which a tenant's record in Redis was unusable."),
		unsaved: counter("gateway_limits_saves_failed_total",
			"Times in-process quotas could not be saved; the next time saves them too."),
		mode: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gateway_limits_mode",
			Help: "1 for the mode in force: shared (Redis decides), outage (it does not answer), memory (in-process quotas).",
		}, []string{"mode"}),
		breakersOpen: auto.NewGauge(prometheus.GaugeOpts{
			Name: "gateway_limits_breakers_open",
			Help: "Redis servers that are not asked because they did not answer.",
		}),
		guardLocal:  guard.WithLabelValues("local"),
		guardShared: guard.WithLabelValues("shared"),
		guardAddresses: auto.NewGauge(prometheus.GaugeOpts{
			Name: "gateway_limits_failed_attempts_addresses",
			Help: "Addresses whose failed authentications are remembered.",
		}),
	}
}

// setMode shows exactly one mode.
func (m *metrics) setMode(mode string) {
	for _, each := range [...]string{modeShared, modeOutage, modeMemory} {
		value := 0.0
		if each == mode {
			value = 1
		}
		m.mode.WithLabelValues(each).Set(value)
	}
}

// count counts one decision.
func (m *metrics) count(granted int64, admitted, refused prometheus.Counter) {
	if granted > 0 {
		admitted.Inc()
	} else {
		refused.Inc()
	}
}
