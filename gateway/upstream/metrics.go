package upstream

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The labels are from the settings; the service is empty for upstreams without a name.
var (
	labels          = []string{"service", "upstream"}
	connectionsDesc = prometheus.NewDesc("petgate_gateway_upstream_connections",
		"Open connections to an upstream, in use or idle.", labels, nil)
	idleDesc = prometheus.NewDesc("petgate_gateway_upstream_idle_connections",
		"Open connections to an upstream that carry no request.", labels, nil)
	failuresDesc = prometheus.NewDesc("petgate_gateway_upstream_failures_total",
		"Attempts that failed at an upstream: it could not be connected, its response was late, invalid or missing, "+
			"or it responded with 401. A connection that closed is not counted if its request was sent a second time.",
		labels, nil)
	ejectionsDesc = prometheus.NewDesc("petgate_gateway_upstream_ejections_total",
		"How often an upstream was ejected.", labels, nil)
	ejectedDesc = prometheus.NewDesc("petgate_gateway_upstream_ejected",
		"1 while an upstream is ejected: others are preferred, because it or its check has failed, "+
			"or it is about to stop.",
		labels, nil)
	checkFailuresDesc = prometheus.NewDesc("petgate_gateway_upstream_check_failures_total",
		"Checks of an upstream (--upstream-health-path) that failed.", labels, nil)
	retriesDesc = prometheus.NewDesc("petgate_gateway_upstream_retries_total",
		"Second attempts, after an upstream closed a connection that had served before.", nil, nil)
)

// Describe implements prometheus.Collector.
func (p Pools) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, to) }

// Collect implements prometheus.Collector. The figures are read when they are asked for.
func (p Pools) Collect(to chan<- prometheus.Metric) {
	send := func(desc *prometheus.Desc, kind prometheus.ValueType, value int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, kind, float64(value), labels...)
	}
	retries := int64(0)
	for service, pool := range p {
		retries += pool.retries.Load()
		for _, s := range pool.Stats(time.Now()) {
			send(connectionsDesc, prometheus.GaugeValue, s.Open, service, s.Address)
			send(idleDesc, prometheus.GaugeValue, s.Idle, service, s.Address)
			send(failuresDesc, prometheus.CounterValue, s.Failures, service, s.Address)
			send(ejectionsDesc, prometheus.CounterValue, s.Ejections, service, s.Address)
			send(checkFailuresDesc, prometheus.CounterValue, s.CheckFailures, service, s.Address)
			ejected := int64(0)
			if s.IsEjected {
				ejected = 1
			}
			send(ejectedDesc, prometheus.GaugeValue, ejected, service, s.Address)
		}
	}
	send(retriesDesc, prometheus.CounterValue, retries)
}
