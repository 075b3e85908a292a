package edge

import (
	"runtime/debug"
	"time"

	"petgate/gateway/strikes"
	"petgate/gateway/usage"
	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// finish ends an exchange: it writes metrics, access log and usage, each exactly once. serve defers
// it, so it also runs after a panic, and makes the response a refusal.
func (e *Edge) finish(x *exchange) {
	if panicked := recover(); panicked != nil {
		if x.id == nil { // accept was not reached
			x.now = instant.Of(x.At)
			x.setID()
		}
		e.logPanic(x, panicked)
		x.refusal = refusal{reason: internal}
		x.answer = nil
		x.isValid = false // its limits may not be known: the response shows zeros
		x.Response.Reset()
		e.writeResponse(x)
	}
	e.returnSlot(x)
	x.took = time.Since(x.At)
	x.MadeAt = x.At.Add(x.took)
	e.account(x)
	if x.Response.Rest == nil {
		e.release(x)
		e.conclude(x)
	}
}

// release gives back what the exchange holds until its response has arrived.
func (e *Edge) release(x *exchange) {
	x.sending.Leave()
	if x.hasBody {
		e.bodies.Return(x.entry.Tenant)
	}
}

// conclude records how the exchange ended, when the whole response has arrived. A panic here does
// not change the response.
func (e *Edge) conclude(x *exchange) {
	defer e.logged(x)
	e.metrics.observe(x, x.took)
	e.export(x, x.took)
	if e.accessLog != nil {
		e.accessLog.write(x, x.took)
	}
}

// logged logs a panic of its caller's.
func (e *Edge) logged(x *exchange) {
	if panicked := recover(); panicked != nil {
		e.logPanic(x, panicked)
	}
}

// account counts the request. A panic here does not change the response.
func (e *Edge) account(x *exchange) {
	defer e.logged(x)
	if x.isCharged {
		told, _ := x.Conn.Own.(*strikes.Connection)
		e.strikes.Served(x.entry.Key, x.client, told, x.now.Add(x.took))
	}
	if !x.hasEntry {
		return
	}
	counted := usage.Request{
		Tenant:  x.entry.Tenant,
		Key:     x.entry.Key,
		Outcome: x.outcome(),
		Charged: x.isCharged,
		Metered: x.cost != 0,
		Cost:    uint16(x.cost),
		IsTest:  x.entry.Environment == apikey.Test,
		At:      x.countedAt(),
	}
	if x.route != nil { // otherwise the request was refused before its operation was known
		counted.Operation = x.route.ID
	}
	e.deps.Usage.Count(counted)
}

// countedAt is when the request was made. For a charged request, it is the instant of the decision.
// If the deciding clock has just stepped back over midnight, the quota still charges the later day.
// countedAt is then the start of that day.
func (x *exchange) countedAt() instant.Millis {
	if !x.isCharged {
		return x.now
	}
	return max(x.verdict.At, x.verdict.Usages[quota.Day].ResetAt.Add(-24*time.Hour))
}

func (e *Edge) logPanic(x *exchange, panicked any) {
	e.deps.Log.Error("panic", "requestId", string(x.id), "panic", panicked, "stack", string(debug.Stack()))
}
