package edge

import (
	"cmp"
	"net/http"

	"petgate/gateway/answers"
	"petgate/gateway/http1"
	"petgate/shared/api"
	"petgate/shared/core/quota"
)

// Names of response fields that the stages set. They are written unchanged.
var (
	nameRetryAfter  = []byte("Retry-After")
	nameRequestID   = []byte("X-Request-Id")
	nameKeyExpires  = []byte("X-Key-Expires")
	nameContentType = []byte("Content-Type")
	nameChallenge   = []byte("WWW-Authenticate")
	nameAllow       = []byte("Allow")

	valueJSON = []byte("application/json")
)

// writeResponse writes the page, the report, the refusal, the statement or the upstream's response,
// with the headers that every response has. Only what needs no key has no rate-limit headers.
func (e *Edge) writeResponse(x *exchange) {
	var wait int64
	if x.answer == nil || x.hasKey {
		wait = x.showLimits()
	}
	x.Response.Add(nameRequestID, x.id)
	x.Response.Fields = append(x.Response.Fields, e.routes.Load().cors.Fields(&x.Request)...)
	if x.hasKey && x.entry.GraceEndsAt != 0 {
		x.Response.AddText(nameKeyExpires, x.entry.GraceEndsAt.Time().AppendFormat(x.Response.Text, http.TimeFormat))
	}
	if x.route != nil {
		x.Response.Fields = append(x.Response.Fields, x.route.Fields...)
	}
	switch {
	case x.answer != nil:
		x.Response.Status, x.Response.Body = x.answer.Status, x.answer.Body
		x.Response.Fields = append(x.Response.Fields, x.answer.Fields...)
	case x.refusal.isRefused():
		x.writeRefusal(wait)
	default:
		x.copyResponse()
	}
	x.Response.Closes = x.refusal.reason.row().closes || x.sending.IsSending()
}

func (x *exchange) writeRefusal(wait int64) {
	row := x.refusal.reason.row()
	x.Response.Status = row.Status
	x.Response.Add(nameContentType, valueJSON)
	wait = cmp.Or(row.retryAfter, wait)
	if row.retryAfter != 0 || row.Status == http.StatusTooManyRequests {
		x.Response.AddInt(nameRetryAfter, wait)
	}
	if row.challenge != "" {
		x.Response.AddText(nameChallenge, append(x.Response.Text, row.challenge...))
	}
	if x.allow != "" {
		x.Response.AddText(nameAllow, append(x.Response.Text, x.allow...))
	}
	x.limited.RetryAfter = wait
	x.line = x.refusal.body(x.line[:0], x.details())
	x.Response.Body = x.line
}

// details returns the details of the refusal for programs; nil: none.
func (x *exchange) details() api.Details {
	switch status := x.refusal.reason.row().Status; {
	case status == http.StatusTooManyRequests:
		return &x.limited
	case status == http.StatusBadRequest && x.parameter != "":
		return api.Named{Kind: "parameter", Name: x.parameter}
	}
	return nil
}

// copyResponse writes the upstream's response.
func (x *exchange) copyResponse() {
	p := &x.response
	x.Response.Status, x.Response.Body, x.Response.Length = p.Status, p.Body.Bytes, p.Length()
	if !p.Body.IsComplete() {
		x.Response.Rest = x
	}
	var wait int64
	for _, f := range p.Fields {
		switch {
		case http1.EqualFold(f.Name, "retry-after"):
			wait = answers.RetryAfter(f.Value, x.now)
		case !f.IsNamed && !answers.IsOurs(f.Name):
			x.Response.Fields = append(x.Response.Fields, f)
		}
	}
	switch p.Status {
	case http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable: // the client may try again
		x.Response.AddInt(nameRetryAfter, max(1, wait))
	}
}

// showLimits writes the state of the tenant's quotas. Without a key it writes the state of the
// address's failed attempts. It returns the seconds after which a refused client may try again.
func (x *exchange) showLimits() (wait int64) {
	limits := answers.Limits{Now: x.now}
	if x.hasKey {
		limits.Verdict, limits.MonthStarts, limits.BanEndsAt, limits.Cost = &x.verdict, x.entry.MonthStarts, x.limited.Ban.EndsAt, x.cost
		x.limited.Plan = x.entry.Plan
	} else {
		s := &x.guard
		limits.Attempts = quota.Usage{
			Limit: int64(s.Limit), Used: int64(s.Limit - s.Remaining), Remaining: int64(s.Remaining), ResetAt: s.ResetAt, ReleaseAt: s.ReleaseAt,
		}
	}
	if x.refusal.reason == quotaPolling {
		limits.Polls = &x.polls
	}
	wait = limits.Add(&x.Response.FieldList, &x.limited)
	if x.refusal.reason == keyBanned { // nothing of a quota was exceeded
		x.limited.Policy, x.limited.Limit = "ban", 0
	}
	return wait
}
