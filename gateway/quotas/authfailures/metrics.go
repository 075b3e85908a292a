package authfailures

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are what a Guard counts.
type Metrics struct {
	local, shared prometheus.Counter
	addresses     prometheus.Gauge
}

// NewMetrics registers the metrics; a nil registerer registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	refused := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "petgate_gateway_limits_failed_attempts_refused_total",
		Help: "Failed authentications refused with 429, by the part that decided: " +
			"this gateway alone (local) or Redis (shared).",
	}, []string{"by"})
	return &Metrics{
		local: refused.WithLabelValues("local"), shared: refused.WithLabelValues("shared"),
		addresses: auto.NewGauge(prometheus.GaugeOpts{
			Name: "petgate_gateway_limits_failed_attempts_addresses",
			Help: "Addresses whose failed authentications are remembered.",
		}),
	}
}
