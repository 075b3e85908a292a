package edge

import (
	"net/http"

	"petgate/gateway/answers"
	"petgate/gateway/quotas"
	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
)

// isReport reports whether the request asks how much of the quota is left. The gateway answers it
// itself.
func (e *Edge) isReport(x *exchange) bool {
	r := e.routes.Load().report
	return r != nil && string(x.Request.Path) == r.Path &&
		(string(x.Request.Method) == http.MethodGet || string(x.Request.Method) == http.MethodHead)
}

// report answers a request for the quota. It comes before authorize, because a key that is banned
// or whose account is suspended may ask too, and learns that from the report. It charges nothing,
// so it has a limit of its own.
//
// A key that is used from an address outside its networks gets no report: it may be stolen.
func (e *Edge) report(x *exchange) refusal {
	x.route = e.routes.Load().report
	if !access.Contains(x.entry.Allow, x.client) {
		return refusal{reason: addressNotAllowed}
	}
	polls, isAllowed := e.polls.Allow(x.entry.Key, x.now)
	if !isAllowed {
		x.polls = polls
		return refusal{reason: quotaPolling}
	}
	var err error
	x.verdict, err = e.deps.Quotas.Current(x.question())
	if err != nil {
		x.verdict = quotas.Undecided(e.deps.Quotas.Known(x.question()))
	}
	facts := answers.Quota{
		Entry:       &x.entry,
		Hint:        apikey.Hint(string(x.token)),
		Verdict:     x.verdict,
		Ban:         x.entryBan(),
		StrikesLeft: e.strikes.Left(x.entry.Key, x.entry.Limits.Minute, x.now),
		Now:         x.now,
	}
	x.answer = facts.Report()
	return refusal{}
}
