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
	upstreamOverloaded
	minuteQuotaExceeded
	dayQuotaExceeded
	monthQuotaExceeded
	keyQuotaExceeded
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
	upstreamCertificate
	upstreamFailed
	upstreamRefused
	upstreamTimeout
	internal
	reasons // the number of reasons
)

// refusal is the verdict of a stage. The zero value lets the request pass. A stage that cannot
// decide refuses too, with a reason whose status (5xx) says that the fault is ours.
type refusal struct {
	reason  reason
	message string // for the client; empty: the message in the table
}

func (r refusal) isRefused() bool { return r.reason != none }

// row describes a reason to clients and operators. The code's name is also the label in metrics and
// the outcome in the access log.
type row struct {
	code.Code
	stage      string
	message    string
	retryAfter int64  // seconds, if nothing better is known; 0: none
	challenge  string // WWW-Authenticate (RFC 6750, section 3); empty: none
	closes     bool   // the connection is closed, because it is unknown where the next request begins
}

// The challenges.
const (
	challenge        = `Bearer realm="petgate"`
	challengeInvalid = challenge + `, error="invalid_token"`
	challengeScope   = challenge + `, error="insufficient_scope"`
)

func (r reason) row() *row { return &table[r] }

// table has the row of each reason. A test writes docs/refusals.md from it.
var table = [reasons]row{
	none: {Code: code.OK},

	badRequest: {
		stage: "accept", Code: code.BadRequest, closes: true,
		message: "the request is not well-formed HTTP/1.1",
	},
	requestTimeout: {
		stage: "accept", Code: code.RequestTimeout, closes: true,
		message: "the request did not arrive in time",
	},
	bodyTooLarge: {
		stage: "accept", Code: code.BodyTooLarge, closes: true,
		message: "the body is too large",
	},
	uriTooLong: {
		stage: "accept", Code: code.URITooLong, closes: true,
		message: "the request target is too long",
	},
	expectationFailed: {
		stage: "accept", Code: code.ExpectationFailed, closes: true,
		message: "the only supported expectation is 100-continue",
	},
	headersTooLarge: {
		stage: "accept", Code: code.HeadersTooLarge, closes: true,
		message: "there are too many header fields, or they are too large",
	},
	overloaded: {
		stage: "accept", Code: code.Overloaded, retryAfter: 1, closes: true,
		message: "the gateway is overloaded: try again",
	},

	missingKey: {
		stage: "identify", Code: code.MissingKey, challenge: challenge,
		message: "send your API key as Authorization: Bearer <API_KEY>",
	},
	malformedKey: {
		stage: "identify", Code: code.MalformedKey, challenge: challengeInvalid,
		message: "the API key is malformed",
	},

	invalidKey: {
		stage: "authenticate", Code: code.InvalidKey, challenge: challengeInvalid,
		message: "the API key is unknown",
	},
	tooManyFailedAttempts: {
		stage: "authenticate", Code: code.TooManyFailedAttempts,
		message: "too many requests with unknown API keys came from your address: wait for Retry-After",
	},
	addressNotAllowed: {
		stage: "authorize", Code: code.AddressNotAllowed,
		message: "the API key may not be used from your address",
	},
	tenantSuspended: {
		stage: "authorize", Code: code.TenantSuspended,
		message: "the account that the API key belongs to is suspended",
	},
	quotaNotSet: {
		stage: "authorize", Code: code.QuotaNotSet,
		message: "no limits are set for your account: ask your contact to set them",
	},
	keyBanned: {
		stage: "authorize", Code: code.KeyBanned,
		message: "the API key is banned: wait for Retry-After",
	},
	directoryUnavailable: {
		stage: "authenticate", Code: code.DirectoryUnavailable, retryAfter: 5,
		message: "API keys cannot be checked at the moment: try again",
	},

	quotaPolling: {
		stage: "report", Code: code.QuotaPolling,
		message: "ask for the quota at most once a second: wait for Retry-After",
	},

	upstreamOverloaded: {
		stage: "meter", Code: code.UpstreamOverloaded, retryAfter: 1,
		message: "the service behind the gateway is busy and did not get the request: try again",
	},
	minuteQuotaExceeded: {
		stage: "meter", Code: code.MinuteQuotaExceeded,
		message: "the quota of this minute is used up: wait for Retry-After",
	},
	dayQuotaExceeded: {
		stage: "meter", Code: code.DayQuotaExceeded,
		message: "the quota of this day is used up: wait for Retry-After",
	},
	monthQuotaExceeded: {
		stage: "meter", Code: code.MonthQuotaExceeded,
		message: "the quota of this month is used up: wait for Retry-After",
	},
	keyQuotaExceeded: {
		stage: "meter", Code: code.KeyQuotaExceeded,
		message: "the quota that the API key has of its own is used up: " +
			"wait for Retry-After, or use another key of your account",
	},
	limitsDegraded: {
		stage: "meter", Code: code.LimitsDegraded,
		message: "the shared quota is unavailable, and this gateway's share of your limit is used up: " +
			"wait for Retry-After",
	},
	limitsUnavailable: {
		stage: "meter", Code: code.LimitsUnavailable, retryAfter: 1,
		message: "quotas cannot be checked at the moment: try again",
	},

	noSuchRoute: {
		stage: "route", Code: code.NoSuchRoute,
		message: "there is no such path",
	},
	methodNotAllowed: {
		stage: "route", Code: code.MethodNotAllowed,
		message: "the path does not have this method: see Allow",
	},
	insufficientScope: {
		stage: "route", Code: code.ScopeMissing, challenge: challengeScope,
		message: "the API key does not have the scope of this operation",
	},
	operationRemoved: {
		stage: "route", Code: code.OperationGone,
		message: "the operation was removed: see Link for its successor",
	},

	invalidParameter: {
		stage: "statement", Code: code.InvalidParameter,
		message: "a parameter has an invalid value",
	},
	usageOverloaded: {
		stage: "statement", Code: code.UsageOverloaded, retryAfter: 1,
		message: "too many requests for usage are being answered: try again",
	},
	usageUnavailable: {
		stage: "statement", Code: code.UsageUnavailable, retryAfter: 5,
		message: "the usage cannot be read at the moment: try again",
	},

	upstreamUnreachable: {
		stage: "forward", Code: code.UpstreamUnreachable,
		message: "the service behind the gateway cannot be reached, and did not get the request",
	},
	upstreamCertificate: {
		stage: "forward", Code: code.UpstreamCertificate,
		message: "the certificate of the service behind the gateway is not valid, " +
			"so the gateway did not send the request",
	},
	upstreamFailed: {
		stage: "forward", Code: code.UpstreamFailed,
		message: "the service behind the gateway got the request and sent no valid response: " +
			"it may have carried out the request",
	},
	upstreamRefused: {
		stage: "forward", Code: code.UpstreamRefused,
		message: "the service behind the gateway does not accept the gateway, and did not carry out the request: " +
			"this is not a fault of your API key",
	},
	upstreamTimeout: {
		stage: "forward", Code: code.UpstreamTimeout,
		message: "the service behind the gateway did not respond in time: it may have carried out the request",
	},

	internal: {
		stage: "finish", Code: code.Internal, closes: true,
		message: "internal error of the gateway: the request may have been carried out; report the X-Request-Id",
	},
}

// body appends the body of the refusal's response. details may be nil.
func (r refusal) body(dst []byte, details api.Details) []byte {
	row := r.reason.row()
	e := api.Error{Code: row.Name, Message: row.message, Status: row.Status, Details: details}
	if r.message != "" {
		e.Message = r.message
	}
	return e.AppendJSON(dst)
}
