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

// lookUpLimits gets the limits that the response shows, if no stage has asked for them.
func (e *Edge) lookUpLimits(x *exchange) {
	switch {
	case x.isValid && x.verdict.At == 0:
		x.verdict = e.deps.Quotas.Known(x.question())
	case !x.isValid && x.answer == nil && x.guard.Limit == 0:
		x.guard = e.deps.Guard.Known(x.client)
	}
}

// writeResponse writes the page, the report, the refusal, the statement or the upstream's response,
// with the headers that every response has. Pages and CORS preflights have no rate-limit headers.
func (e *Edge) writeResponse(x *exchange) {
	var decisive answers.Decisive
	if x.answer == nil || x.isValid {
		limits := x.limits()
		decisive = limits.AddTo(&x.Response.FieldList)
	}
	x.Response.Add(nameRequestID, x.id)
	x.Response.Fields = append(x.Response.Fields, e.routes.Load().cors.Fields(&x.Request)...)
	if x.isValid && x.entry.GraceEndsAt != 0 {
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
		x.writeRefusal(&decisive)
	default:
		x.copyReceived()
	}
	x.Response.Closes = x.refusal.reason.row().closes || x.sending.IsSending()
}

// limits is what is known of the limits: of the tenant's quotas or, without a valid key, of the
// address's failed attempts.
func (x *exchange) limits() answers.Limits {
	l := answers.Limits{Now: x.now}
	if x.isValid {
		l.Verdict, l.MonthStarts = &x.verdict, x.entry.MonthStarts
		l.BanEndsAt, l.Cost = x.limited.Ban.EndsAt, x.cost
	} else {
		g := &x.guard
		l.Attempts = quota.Usage{
			Limit:     int64(g.Limit),
			Used:      int64(g.Limit - g.Remaining),
			Remaining: int64(g.Remaining),
			ResetAt:   g.ResetAt,
			ReleaseAt: g.ReleaseAt,
		}
	}
	if x.refusal.reason == quotaPolling {
		l.Polls = &x.polls
	}
	return l
}

// writeRefusal writes the refusal. decisive is the limit that refuses, if it is a 429.
func (x *exchange) writeRefusal(decisive *answers.Decisive) {
	row := x.refusal.reason.row()
	x.Response.Status = row.Status
	x.Response.Add(nameContentType, valueJSON)
	wait := cmp.Or(row.retryAfter, decisive.RetryAfter)
	if row.retryAfter != 0 || row.Status == http.StatusTooManyRequests {
		x.Response.AddInt(nameRetryAfter, wait)
	}
	if row.challenge != "" {
		x.Response.AddText(nameChallenge, append(x.Response.Text, row.challenge...))
	}
	if x.allow != "" {
		x.Response.AddText(nameAllow, append(x.Response.Text, x.allow...))
	}
	var details api.Details
	switch {
	case row.Status == http.StatusTooManyRequests:
		x.describeLimit(decisive, wait)
		details = &x.limited
	case row.Status == http.StatusBadRequest && x.parameter != "":
		details = api.Named{Kind: "parameter", Name: x.parameter}
	}
	x.line = x.refusal.body(x.line[:0], details)
	x.Response.Body = x.line
}

// describeLimit completes the details of a 429: what they say of a ban is there.
func (x *exchange) describeLimit(decisive *answers.Decisive, wait int64) {
	l := &x.limited
	l.Policy, l.Limit, l.Used = decisive.Policy, decisive.Limit, decisive.Used
	l.ResetAt, l.RetryAfter = decisive.ResetAt, wait
	if x.isValid {
		l.Plan = x.entry.Plan
	}
	if x.refusal.reason == keyBanned { // nothing of a quota was exceeded
		l.Policy, l.Limit = "ban", 0
	}
}

// copyReceived writes the upstream's response.
func (x *exchange) copyReceived() {
	r := &x.received
	x.Response.Status, x.Response.Body, x.Response.Length = r.Status, r.Body.Bytes, r.Length()
	if !r.Body.IsComplete() {
		x.Response.Rest = x
	}
	var wait int64
	for _, f := range r.Fields {
		switch {
		case http1.EqualFold(f.Name, "retry-after"):
			wait = answers.RetryAfter(f.Value, x.now)
		case !f.IsNamed && !answers.IsOurs(f.Name):
			x.Response.Fields = append(x.Response.Fields, f)
		}
	}
	switch r.Status {
	case http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable: // the client may try again
		x.Response.AddInt(nameRetryAfter, max(1, wait))
	}
}
