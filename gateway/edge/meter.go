package edge

import (
	"strconv"
	"time"

	"petgate/gateway/strikes"
	"petgate/gateway/upstream"
	"petgate/shared/api"
	"petgate/shared/core/quota"
)

// meter takes the cost of the request from all policies, or from none. It comes before route, so
// that probing for paths is not free. The charge is never returned, whatever the response is. So
// meter first takes a slot of the upstream: a request for which there is none is not charged. A
// request for a public operation needs only the slot.
func (e *Edge) meter(x *exchange) refusal {
	x.find()
	if x.found != nil && !x.found.ByGateway {
		x.sending = upstream.Request{Tenant: x.entry.Tenant, At: x.At}
		if x.found.pool.Enter(&x.sending) != nil {
			return refusal{reason: upstreamOverloaded}
		}
	}
	if x.isPublic {
		return refusal{}
	}
	x.cost = 1
	if x.found != nil && x.found.Cost > 1 && x.mayCall() {
		x.cost = x.found.Cost
	}
	var err error
	x.verdict, err = e.deps.Quotas.Take(x.question())
	if err != nil {
		return refusal{reason: limitsUnavailable}
	}
	x.isCharged = x.verdict.Granted > 0
	switch {
	case x.isCharged && time.Since(x.At) > authenticateAfter:
		return e.authenticateAgain(x)
	case x.isCharged:
		return refusal{}
	case x.verdict.Degraded: // not the client's fault: no strike
		return refusal{reason: limitsDegraded}
	}
	return e.exceeded(x)
}

// exceedings has the refusal of each policy.
var exceedings = [quota.Policies + 1]reason{
	quota.Minute: minuteQuotaExceeded, quota.Day: dayQuotaExceeded, quota.Month: monthQuotaExceeded,
	quota.KeyMinute: keyQuotaExceeded, quota.KeyDay: keyQuotaExceeded,

	// The tenant has just got more: another request was admitted before this one.
	quota.None: minuteQuotaExceeded,
}

// exceeded refuses the request and passes the refusal to the ban rule. The message says how far the
// key is from a ban.
func (e *Edge) exceeded(x *exchange) refusal {
	r := refusal{reason: exceedings[x.verdict.Violated()]}
	if !e.strikes.AreCounted() {
		return r
	}
	out := e.strikes.Refused(strikes.Refusal{
		Key:      x.entry.Key,
		Address:  x.client,
		On:       e.connection(x),
		Limit:    x.entry.Limits.Minute,
		Now:      x.now,
		Promised: x.now + max(0, x.verdict.RetryAt()-x.verdict.At),
	})
	x.limited.CountsStrikes, x.limited.StrikesUntilBan = true, out.StrikesUntilBan
	message := r.reason.row().message
	switch {
	case out.BannedUntil != 0:
		x.limited.Ban = api.Ban{EndsAt: out.BannedUntil, IsAutomatic: true}
		e.metrics.bans.Add(1)
		e.deps.Directory.Ban(x.entry.Key, out.BannedUntil, banReason)
		r.message = message + banBegins
	case out.StrikesUntilBan == 1:
		r.message = message + ". At most 1" + oneUntilBan
	default:
		r.message = message + ". At most " + strconv.Itoa(out.StrikesUntilBan) + manyUntilBan
	}
	return r
}

// What the message of an exceeded quota ends with.
const (
	banBegins    = ". The API key sent too many requests without waiting. It is banned until Retry-After has passed"
	oneUntilBan  = " more request before then leads to a ban of the API key"
	manyUntilBan = " more requests before then lead to a ban of the API key"
)

// connection is what the request's connection was promised. It is nil if the connection is a
// proxy's.
func (e *Edge) connection(x *exchange) *strikes.Connection {
	if e.proxies.Has(x.Conn.Peer) {
		return nil
	}
	c, isThere := x.Conn.Own.(*strikes.Connection)
	if !isThere {
		c = e.strikes.NewConnection()
		x.Conn.Own = c
	}
	return c
}

const banReason = "sent requests without waiting for Retry-After"
