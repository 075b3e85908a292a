package directory

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	loads         prometheus.Counter
	events        prometheus.Counter
	unreadable    prometheus.Counter
	unwrittenBans prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, d *Directory) *metrics {
	make := promauto.With(reg)
	gauge := func(name, help string, value func() float64) {
		make.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	gauge("petgate_gateway_directory_keys", "Keys in memory.", func() float64 {
		d.mu.Lock()
		defer d.mu.Unlock()
		return float64(d.state.Load().keys.len)
	})
	counter := func(name, help string) prometheus.Counter {
		return make.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	const age = "Time since the last contact with the database; -1 before the first load."
	gauge("petgate_gateway_directory_age_seconds", age, func() float64 {
		seen := d.seen.Load()
		if seen == nil {
			return -1
		}
		return d.cfg.Clock().Sub(*seen).Seconds()
	})
	gauge("petgate_gateway_directory_gateways", "Gateways registered when the database was last read.", func() float64 {
		return float64(d.gateways.Load())
	})
	const skew = "This host's clock minus the database's at the last heartbeat; " +
		"a difference smaller than half of the round trip is 0."
	gauge("petgate_gateway_directory_clock_skew_seconds", skew,
		func() float64 { return time.Duration(d.skew.Load()).Seconds() })
	const pending = "Bans that this gateway imposed and has not yet written to the database."
	gauge("petgate_gateway_bans_pending", pending, func() float64 {
		d.bansMu.Lock()
		defer d.bansMu.Unlock()
		return float64(len(d.pending))
	})
	return &metrics{
		loads:  counter("petgate_gateway_directory_loads_total", "Full loads from the database."),
		events: counter("petgate_gateway_directory_events_total", "Events applied."),
		unreadable: counter("petgate_gateway_directory_unreadable_events_total",
			"Events that could not be read. Everything was loaded instead."),
		unwrittenBans: counter("petgate_gateway_bans_unwritten_total",
			"Bans that were not written to the database, because too many were waiting: "+
				"they hold at this gateway only."),
	}
}
