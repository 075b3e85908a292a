package redis

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// outage counts the servers that are down.
type outage struct {
	down    atomic.Int32
	cause   atomic.Pointer[error] // of the last failure; nil: no server is down
	gauge   prometheus.Gauge
	changed func(isDown bool, cause error) // Config.Changed
}

// begin counts a server that goes down.
func (o *outage) begin(cause error) {
	o.cause.Store(&cause)
	o.gauge.Inc()
	if o.down.Add(1) == 1 {
		o.changed(true, cause)
	}
}

// goOn notes why a server is still down.
func (o *outage) goOn(cause error) { o.cause.Store(&cause) }

// end counts a server that is back.
func (o *outage) end() {
	o.gauge.Dec()
	if o.down.Add(-1) == 0 {
		o.cause.Store(nil)
		o.changed(false, nil)
	}
}

// why returns the cause of the last failure, or nil if no server is down.
func (o *outage) why() error {
	if cause := o.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}
