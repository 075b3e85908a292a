package edge

import (
	"strconv"
	"time"

	"petgate/gateway/quotas"
	"petgate/gateway/strikes"
	"petgate/gateway/upstream"
	"petgate/shared/api"
	"petgate/shared/core/quota"
)

// meter takes one request from both policies, or from neither. It comes before route, so that probing for paths is not
// free. The charge is never returned, whatever the response is. So it first takes a slot of the upstream: a request for which there is
// none is not charged.
func (e *Edge) meter(x *exchange) refusal {
	if x.found == nil {
		x.found = e.find(x)
	}
	if x.found != nil && !x.found.ByGateway {
		x.sending = upstream.Request{Tenant: x.entry.Tenant, At: x.At}
		if x.found.pool.Enter(&x.sending) != nil {
			return refusal{reason: upstreamOverloaded}
		}
	}
	x.isMetered = true
	var err error
	if x.verdict, err = e.deps.Quotas.Take(x.ask()); err != nil {
		return refusal{reason: limitsUnavailable}
	}
	if x.verdict.Granted > 0 {
		x.isTaken = true
		if time.Since(x.At) > againAfter {
			return e.again(x)
		}
		return refusal{}
	}
	if x.verdict.Degraded { // not the client's fault: no strike
		return refusal{reason: limitsDegraded}
	}
	return e.exceeded(x)
}

// ask is the tenant's question for the quotas.
func (x *exchange) ask() quotas.Request {
	k := &x.entry
	return quotas.Request{Tenant: k.Tenant, Since: k.UsedSince, Version: k.Version, Limits: k.Limits}
}

// exceeded refuses the request and passes the refusal to the ban rule.
func (e *Edge) exceeded(x *exchange) refusal {
	r := refusal{reason: minuteQuotaExceeded}
	if x.verdict.Violated() == quota.Day {
		r.reason = dayQuotaExceeded
	}
	if !e.strikes.AreCounted() {
		return r
	}
	promised := x.now + max(0, x.verdict.RetryAt()-x.verdict.At)
	out := e.strikes.Refused(strikes.Refusal{
		Key: x.entry.Key, Address: x.client, On: e.connection(x), Limit: x.entry.Limits.Minute, Now: x.now, Promised: promised,
	})
	x.limited.CountsStrikes, x.limited.StrikesUntilBan = true, out.StrikesUntilBan
	x.limited.Ban = api.Ban{EndsAt: out.BannedUntil, IsAutomatic: true}
	text := append(x.text, r.reason.row().message...)
	if out.BannedUntil != 0 {
		e.metrics.bans.Inc()
		e.deps.Directory.Ban(x.entry.Key, out.BannedUntil, banReason)
		text = append(text, ". The API key sent too many requests without waiting. It is banned until Retry-After has passed"...)
	} else {
		text = append(text, ". At most "...)
		text = strconv.AppendInt(text, int64(out.StrikesUntilBan), 10)
		if out.StrikesUntilBan == 1 {
			text = append(text, " more request before then leads to a ban of the API key"...)
		} else {
			text = append(text, " more requests before then lead to a ban of the API key"...)
		}
	}
	r.message = string(text)
	return r
}

// connection is what the request's connection was promised. It is nil if the connection is a proxy's.
func (e *Edge) connection(x *exchange) *strikes.Connection {
	if e.isTrusted(x.Conn.Peer) {
		return nil
	}
	c, ok := x.Conn.Own.(*strikes.Connection)
	if !ok {
		c = e.strikes.NewConnection()
		x.Conn.Own = c
	}
	return c
}

const banReason = "sent requests without waiting for Retry-After"
