package quotas

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"petgate/gateway/quotas/authfailures"
)

type metrics struct {
	admitted, refused, remembered prometheus.Counter
	localAdmitted, localRefused   prometheus.Counter
	undecided                     prometheus.Counter
	unsaved                       prometheus.Counter
	mode                          *prometheus.GaugeVec
	authFailures                  *authfailures.Metrics
}

func newMetrics(reg prometheus.Registerer, skew func() time.Duration) *metrics {
	auto := promauto.With(reg)
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "petgate_gateway_limits_clock_skew_seconds",
		Help: "Redis's clock minus this host's, by the last answer of Redis; " +
			"a difference smaller than the trip may be 0.",
	}, func() float64 { return skew().Seconds() })
	decisions := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "petgate_gateway_limits_decisions_total",
		Help: "Quota decisions. admitted, refused: by the store. " +
			"remembered: refused without asking, because the store has just refused. " +
			"local_admitted, local_refused: by this gateway's share of the limits. undecided: answered with 503.",
	}, []string{"outcome"})
	return &metrics{
		admitted:      decisions.WithLabelValues("admitted"),
		refused:       decisions.WithLabelValues("refused"),
		remembered:    decisions.WithLabelValues("remembered"),
		localAdmitted: decisions.WithLabelValues("local_admitted"),
		localRefused:  decisions.WithLabelValues("local_refused"),
		undecided:     decisions.WithLabelValues("undecided"),
		unsaved: auto.NewCounter(prometheus.CounterOpts{
			Name: "petgate_gateway_limits_saves_failed_total",
			Help: "Failed attempts to save the quotas that are kept in memory, " +
				"or what Redis has to get after an outage.",
		}),
		mode: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "petgate_gateway_limits_mode",
			Help: "1 for the mode in force: shared (Redis decides), outage (it does not answer), " +
				"memory (in-process quotas).",
		}, []string{"mode"}),
		authFailures: authfailures.NewMetrics(reg),
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
