// Package answers makes the responses that the gateway makes itself, except refusals: pages of the
// documentation, answers to CORS preflights, reports of a quota and statements of usage. It also
// has the fields with which all responses show limits. It gets facts and returns values. It knows
// no connection and no stage.
package answers

import "petgate/gateway/http1"

// Answer is a response without the fields that every response has. Requests share answers, so
// nothing in it may be changed.
type Answer struct {
	Outcome string // in one word, for metrics and the access log
	Status  int
	Fields  []http1.Field
	Body    []byte
}

// The outcomes of answers. A statement is like a response of the service.
const (
	outcomeOK        = "ok"
	outcomePage      = "page"
	outcomePreflight = "preflight"
	outcomeReport    = "report"
)

// Outcomes are those that only answers of this package have.
var Outcomes = []string{outcomePage, outcomePreflight, outcomeReport}

// fieldsOf returns a list of names and values as fields.
func fieldsOf(list ...string) (fields []http1.Field) {
	for i := 0; i < len(list); i += 2 {
		fields = append(fields, http1.Field{Name: []byte(list[i]), Value: []byte(list[i+1])})
	}
	return fields
}

// IsOurs reports whether only the gateway sets a response field. The upstream's field of that name
// is not copied.
func IsOurs(name []byte) bool {
	return http1.EqualFold(name[:min(len(name), len(limitPrefix))], limitPrefix) ||
		http1.EqualFold(name[:min(len(name), len(corsPrefix))], corsPrefix) || ours.Of(name)
}

const (
	limitPrefix = "x-ratelimit"
	corsPrefix  = "access-control-" // only the gateway decides about origins: two answers would contradict each other
)

var ours = func() (n http1.Names[bool]) {
	n.Add(true, "x-gateway-secret") // of an upstream that returns what it gets: it is for upstreams only
	n.Add(true, "ratelimit", "ratelimit-policy", "x-request-id", "x-request-cost", "x-key-expires", "x-stability",
		"deprecation", "sunset", "date", "server")
	return n
}()
