package edge

import (
	"petgate/shared/api"
	"petgate/shared/api/code"
)

// reason is why a request is refused. The zero reason means that it is not refused.
type reason uint8

// The reasons, roughly in the order of the stages that refuse with them.
const (
	none reason = iota
	badRequest
	requestTimeout
	bodyTooLarge
	uriTooLong
	expectationFailed
	headersTooLarge
	overloaded
	missingKey
	malformedKey
	invalidKey
	tooManyFailedAttempts
	addressNotAllowed
	tenantSuspended
	quotaNotSet
	keyBanned
	directoryUnavailable
	quotaPolling
	minuteQuotaExceeded
	dayQuotaExceeded
	limitsDegraded
	limitsUnavailable
	noSuchRoute
	methodNotAllowed
	insufficientScope
	operationRemoved
	invalidParameter
	usageOverloaded
	usageUnavailable
	upstreamUnreachable
	upstreamFailed
	upstreamRefused
	upstreamOverloaded
	upstreamTimeout
	internal
	reasons // the number of reasons
)

// refusal is the verdict of a stage. The zero value lets the request pass. A stage that cannot decide refuses too, with a
// reason whose status (5xx) says that the fault is ours.
type refusal struct {
	reason  reason
	message string // for the client; empty: the message in the table
}

func (r refusal) isRefused() bool { return r.reason != none }

// row describes a reason to clients and operators. The code is also the label in metrics and the outcome in the access log.
type row struct {
	stage      string
	status     int
	code       string
	message    string
	retryAfter int64  // seconds, if nothing better is known; 0: none
	challenge  string // WWW-Authenticate (RFC 6750, section 3); empty: none
	closes     bool   // the connection is closed, because it is unknown where the next request begins
	charged    bool   // one request was taken from the tenant's quota
}

// The challenges.
const (
	challenge        = `Bearer realm="petgate"`
	challengeInvalid = challenge + `, error="invalid_token"`
	challengeScope   = challenge + `, error="insufficient_scope"`
)

func (r reason) row() *row { return &table[r] }

// outcome says in one word how an exchange ended: the code of a refusal, or "ok" if the response is the upstream's.
func (r reason) outcome() string { return table[r].code }

// table has the row of each reason. Codes that keyadmin uses too come from package code. A test writes docs/refusals.md from
// the table.
var table = [reasons]row{
	none: {code: "ok"},

	badRequest: {
		stage: "accept", status: 400, code: "bad_request",
		message: "the request is not well-formed HTTP/1.1",
		closes:  true,
	},
	requestTimeout: {
		stage: "accept", status: 408, code: "request_timeout",
		message: "the request did not arrive in time",
		closes:  true,
	},
	bodyTooLarge: {
		stage: "accept", status: 413, code: "body_too_large",
		message: "the body is too large",
		closes:  true,
	},
	uriTooLong: {
		stage: "accept", status: 414, code: "uri_too_long",
		message: "the request target is too long",
		closes:  true,
	},
	expectationFailed: {
		stage: "accept", status: 417, code: "expectation_failed",
		message: "the only supported expectation is 100-continue",
		closes:  true,
	},
	headersTooLarge: {
		stage: "accept", status: 431, code: "headers_too_large",
		message: "there are too many header fields, or they are too large",
		closes:  true,
	},
	overloaded: {
		stage: "accept", status: 503, code: "overloaded", retryAfter: 1,
		message: "the gateway is overloaded: try again",
		closes:  true,
	},

	missingKey: {
		stage: "identify", status: 401, code: "missing_api_key",
		message:   "send your API key as Authorization: Bearer <API_KEY>",
		challenge: challenge,
	},
	malformedKey: {
		stage: "identify", status: code.MalformedKey.Status, code: code.MalformedKey.Name,
		message:   "the API key is malformed",
		challenge: challengeInvalid,
	},

	invalidKey: {
		stage: "authenticate", status: code.InvalidKey.Status, code: code.InvalidKey.Name,
		message:   "the API key is unknown",
		challenge: challengeInvalid,
	},
	tooManyFailedAttempts: {
		stage: "authenticate", status: 429, code: "too_many_failed_attempts",
		message: "too many requests with unknown API keys came from your address: wait for Retry-After",
	},
	addressNotAllowed: {
		stage: "authorize", status: code.AddressNotAllowed.Status, code: code.AddressNotAllowed.Name,
		message: "the API key may not be used from your address",
	},
	tenantSuspended: {
		stage: "authorize", status: code.TenantSuspended.Status, code: code.TenantSuspended.Name,
		message: "the account that the API key belongs to is suspended",
	},
	quotaNotSet: {
		stage: "authorize", status: code.QuotaNotSet.Status, code: code.QuotaNotSet.Name,
		message: "no limits are set for your account: ask your contact to set them",
	},
	keyBanned: {
		stage: "authorize", status: code.KeyBanned.Status, code: code.KeyBanned.Name,
		message: "the API key is banned: wait for Retry-After",
	},
	directoryUnavailable: {
		stage: "authenticate", status: 503, code: "directory_unavailable", retryAfter: 5,
		message: "API keys cannot be checked at the moment: try again",
	},

	quotaPolling: {
		stage: "report", status: 429, code: "quota_polling", retryAfter: 1,
		message: "ask for the quota at most once a second: wait for Retry-After",
	},

	minuteQuotaExceeded: {
		stage: "meter", status: code.MinuteQuotaExceeded.Status, code: code.MinuteQuotaExceeded.Name,
		message: "the quota of this minute is used up: wait for Retry-After",
	},
	dayQuotaExceeded: {
		stage: "meter", status: code.DayQuotaExceeded.Status, code: code.DayQuotaExceeded.Name,
		message: "the quota of this day is used up: wait for Retry-After",
	},
	limitsDegraded: {
		stage: "meter", status: 429, code: "limits_degraded",
		message: "the shared quota is unavailable, and this gateway's share of your limit is used up: wait for Retry-After",
	},
	limitsUnavailable: {
		stage: "meter", status: 503, code: "limits_unavailable", retryAfter: 1,
		message: "quotas cannot be checked at the moment: try again",
	},

	noSuchRoute: {
		stage: "route", status: 404, code: "no_such_route",
		message: "there is no such path",
		charged: true,
	},
	methodNotAllowed: {
		stage: "route", status: 405, code: "method_not_allowed",
		message: "the path does not have this method: see Allow",
		charged: true,
	},
	insufficientScope: {
		stage: "route", status: 403, code: "insufficient_scope",
		message:   "the API key does not have the scope of this operation",
		challenge: challengeScope,
		charged:   true,
	},
	operationRemoved: {
		stage: "route", status: 410, code: "operation_removed",
		message: "the operation was removed: see Link for its successor",
		charged: true,
	},

	invalidParameter: {
		stage: "statement", status: 400, code: "invalid_parameter",
		message: "a parameter has an invalid value",
		charged: true,
	},
	usageOverloaded: {
		stage: "statement", status: 503, code: "usage_overloaded", retryAfter: 1,
		message: "too many requests for usage are being answered: try again",
		charged: true,
	},
	usageUnavailable: {
		stage: "statement", status: 503, code: "usage_unavailable", retryAfter: 5,
		message: "the usage cannot be read at the moment: try again",
		charged: true,
	},

	upstreamUnreachable: {
		stage: "forward", status: 502, code: "upstream_unreachable",
		message: "the service behind the gateway cannot be reached, and did not get the request",
		charged: true,
	},
	upstreamFailed: {
		stage: "forward", status: 502, code: "upstream_failed",
		message: "the service behind the gateway got the request and sent no valid response: it may have carried out the request",
		charged: true,
	},
	upstreamRefused: {
		stage: "forward", status: 502, code: "upstream_refused",
		message: "the service behind the gateway does not accept the gateway, and did not carry out the request: this is not a fault of your API key",
		charged: true,
	},
	upstreamOverloaded: {
		stage: "forward", status: 503, code: "upstream_overloaded", retryAfter: 1,
		message: "the service behind the gateway is busy and did not get the request: try again",
		charged: true,
	},
	upstreamTimeout: {
		stage: "forward", status: 504, code: "upstream_timeout",
		message: "the service behind the gateway did not respond in time: it may have carried out the request",
		charged: true,
	},

	internal: {
		stage: "finish", status: 500, code: "internal",
		message: "internal error of the gateway: the request may have been carried out; report the X-Request-Id",
		closes:  true,
	},
}

// body appends the body of the refusal's response. details may be nil.
func (r refusal) body(dst []byte, details api.Details) []byte {
	row := r.reason.row()
	e := api.Error{Code: row.code, Message: row.message, Status: row.status, Details: details}
	if r.message != "" {
		e.Message = r.message
	}
	return e.AppendJSON(dst)
}
