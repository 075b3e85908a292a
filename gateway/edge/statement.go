package edge

import (
	"petgate/gateway/answers"
	"petgate/shared/core/apikey"
)

// statement answers a request for the tenant's usage. The request has passed all stages, and is
// charged like any other.
func (e *Edge) statement(x *exchange) refusal {
	ask := answers.Ask{
		Tenant:    x.entry.Tenant,
		IsTest:    x.entry.Environment == apikey.Test,
		Now:       x.now,
		RequestID: string(x.id),
	}
	problem := ask.Read(&x.Request)
	if problem.Kind == 0 {
		x.answer, problem = e.statements.Statement(ask)
	}
	x.parameter = problem.Parameter
	return refusal{reason: reasonOf[problem.Kind], message: problem.Message}
}

// reasonOf has the reason for each problem of a statement; none for no problem.
var reasonOf = [...]reason{
	answers.InvalidParameter: invalidParameter,
	answers.Overloaded:       usageOverloaded,
	answers.Unavailable:      usageUnavailable,
	answers.Internal:         internal,
}
