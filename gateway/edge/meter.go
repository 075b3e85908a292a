package edge

import (
	"strconv"
	"time"

	"petgate/gateway/quotas"
	"petgate/gateway/strikes"
	"petgate/gateway/upstream"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/quota"
)

// meter takes the cost of the request from all policies, or from none. It comes before route, so
// that probing for paths is not free. The charge is never returned, whatever the response is. So it
// first takes a slot of the upstream: a request for which there is none is not charged.
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
	if x.cost = 1; x.found != nil && x.found.Cost > 1 && x.mayCall() {
		x.cost = x.found.Cost
	}
	var err error
	if x.verdict, err = e.deps.Quotas.Take(x.ask()); err != nil {
		return refusal{reason: limitsUnavailable}
	}
	if x.isTaken = x.verdict.Granted > 0; x.isTaken {
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

// ask is the question for the quotas.
func (x *exchange) ask() (q quotas.Request) {
	k := &x.entry
	q.Tenant, q.Since, q.Test = k.Tenant, k.UsedSince, k.Environment == apikey.Test
	q.Version, q.Limits, q.MonthStarts, q.Cost = k.Version, k.Limits, k.MonthStarts, max(1, x.cost)
	if q.Cap = k.KeyLimits; q.IsCapped() {
		q.Key = k.Key
	}
	return q
}

// exceedings has the refusal of each policy.
var exceedings = [quota.Policies + 1]reason{
	quota.Minute: minuteQuotaExceeded, quota.Day: dayQuotaExceeded, quota.Month: monthQuotaExceeded,
	quota.KeyMinute: keyQuotaExceeded, quota.KeyDay: keyQuotaExceeded,
	quota.None: minuteQuotaExceeded, // the tenant has just got more: another request was admitted before this one
}

// exceeded refuses the request and passes the refusal to the ban rule.
func (e *Edge) exceeded(x *exchange) refusal {
	r := refusal{reason: exceedings[x.verdict.Violated()]}
	if !e.strikes.AreCounted() {
		return r
	}
	promised := x.now + max(0, x.verdict.RetryAt()-x.verdict.At)
	out := e.strikes.Refused(strikes.Refusal{
		Key: x.entry.Key, Address: x.client, On: e.connection(x), Limit: x.entry.Limits.Minute, Now: x.now, Promised: promised,
	})
	x.limited.CountsStrikes, x.limited.StrikesUntilBan = true, out.StrikesUntilBan
	x.limited.Ban = api.Ban{EndsAt: out.BannedUntil, IsAutomatic: true}
	text := append(x.Response.Text, r.reason.row().message...)
	if out.BannedUntil != 0 {
		e.metrics.bans.Add(1)
		e.deps.Directory.Ban(x.entry.Key, out.BannedUntil, banReason)
		text = append(text,
			". The API key sent too many requests without waiting. It is banned until Retry-After has passed"...)
	} else {
		text = strconv.AppendInt(append(text, ". At most "...), int64(out.StrikesUntilBan), 10)
		if out.StrikesUntilBan == 1 {
			text = append(text, " more request before then leads to a ban of the API key"...)
		} else {
			text = append(text, " more requests before then lead to a ban of the API key"...)
		}
	}
	r.message = string(text)
	return r
}

// connection is what the request's connection was promised. It is nil if the connection is a
// proxy's.
func (e *Edge) connection(x *exchange) *strikes.Connection {
	if e.proxies.Has(x.Conn.Peer) {
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
