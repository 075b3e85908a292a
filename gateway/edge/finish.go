package edge

import (
	"runtime/debug"
	"time"
)

// finish ends an exchange: response, metrics, access log and usage, each exactly once. serve defers it, so that it runs also
// after a panic, which it turns into a refusal: fasthttp would let it take the process down.
func (e *Edge) finish(x *exchange) {
	if panicked := recover(); panicked != nil {
		e.logPanic(x, panicked)
		x.refusal = refusal{reason: internal}
		x.rc.Response.Reset()
		if x.link != nil {
			_ = x.link.Close()
		}
	}
	if x.hasSlot {
		e.inFlight.Add(-1)
	}
	e.respond(x)
	took := time.Since(x.startedAt)
	e.account(x, took)
	x.wire.next(x.startedAt.Add(took))
	e.exchanges.put(x)
}

// account writes down how the exchange ended. The response stands: a panic here is no matter of the client's.
func (e *Edge) account(x *exchange, took time.Duration) {
	defer func() {
		if panicked := recover(); panicked != nil {
			e.logPanic(x, panicked)
		}
	}()
	e.metrics.observe(x, took)
	if e.accessLog != nil {
		e.accessLog.write(x, took)
	}
	if x.isTaken && e.cfg.BanRule.After > 0 {
		e.strikes.served(x.entry.Key, x.now.Add(took))
	}
	if x.hasKey {
		e.usage.Count(x.entry.Tenant, x.entry.Key, x.refusal.reason.outcome())
	}
}

func (e *Edge) logPanic(x *exchange, panicked any) {
	e.log.Error("panic", "requestId", string(x.id), "panic", panicked, "stack", string(debug.Stack()))
}
