// Package code lists the codes of errors, each with its HTTP status. It is separate from package
// api, so that keyadmin needs no HTTP server.
package code

import (
	"net/http"

	"petgate/shared/core/access"
)

// Code is one of the codes of the OpenAPI document, with its HTTP status.
type Code struct {
	Name   string
	Status int
}

// statuses has the status of each code, by name.
var statuses = map[string]int{}

func is(name string, status int) Code {
	statuses[name] = status
	return Code{name, status}
}

// pets has the codes that only the pet service sends.
var pets = map[string]bool{}

func ofPets(name string, status int) Code {
	pets[name] = true
	return is(name, status)
}

// IsOfPets reports whether only the pet service sends the code.
func IsOfPets(name string) bool { return pets[name] }

// StatusOf returns the status of a code.
func StatusOf(name string) int { return statuses[name] }

// IsFailure reports whether the code says that the fault is not the client's.
func IsFailure(name string) bool { return statuses[name] >= http.StatusInternalServerError }

// OK is the outcome of a request that is not refused.
var OK = Code{Name: "ok"}

// The codes of the gateway.
var (
	BadRequest            = is("bad_request", http.StatusBadRequest)
	InvalidParameter      = is("invalid_parameter", http.StatusBadRequest)
	InvalidKey            = is("invalid_api_key", http.StatusUnauthorized)
	MalformedKey          = is("malformed_api_key", http.StatusUnauthorized)
	MissingKey            = is("missing_api_key", http.StatusUnauthorized)
	AddressNotAllowed     = is("address_not_allowed", http.StatusForbidden)
	ScopeMissing          = is("insufficient_scope", http.StatusForbidden)
	QuotaNotSet           = is("quota_not_set", http.StatusForbidden)
	TenantSuspended       = is("tenant_suspended", http.StatusForbidden)
	NoSuchRoute           = is("no_such_route", http.StatusNotFound)
	MethodNotAllowed      = is("method_not_allowed", http.StatusMethodNotAllowed)
	RequestTimeout        = is("request_timeout", http.StatusRequestTimeout)
	OperationGone         = is("operation_removed", http.StatusGone)
	BodyTooLarge          = is("body_too_large", http.StatusRequestEntityTooLarge)
	URITooLong            = is("uri_too_long", http.StatusRequestURITooLong)
	ExpectationFailed     = is("expectation_failed", http.StatusExpectationFailed)
	DayQuotaExceeded      = is("day_quota_exceeded", http.StatusTooManyRequests)
	KeyBanned             = is("key_banned", http.StatusTooManyRequests)
	KeyQuotaExceeded      = is("key_quota_exceeded", http.StatusTooManyRequests)
	LimitsDegraded        = is("limits_degraded", http.StatusTooManyRequests)
	MinuteQuotaExceeded   = is("minute_quota_exceeded", http.StatusTooManyRequests)
	MonthQuotaExceeded    = is("month_quota_exceeded", http.StatusTooManyRequests)
	QuotaPolling          = is("quota_polling", http.StatusTooManyRequests)
	TooManyFailedAttempts = is("too_many_failed_attempts", http.StatusTooManyRequests)
	HeadersTooLarge       = is("headers_too_large", http.StatusRequestHeaderFieldsTooLarge)
	Internal              = is("internal", http.StatusInternalServerError)
	UpstreamCertificate   = is("upstream_certificate", http.StatusBadGateway)
	UpstreamFailed        = is("upstream_failed", http.StatusBadGateway)
	UpstreamRefused       = is("upstream_refused", http.StatusBadGateway)
	UpstreamUnreachable   = is("upstream_unreachable", http.StatusBadGateway)
	DirectoryUnavailable  = is("directory_unavailable", http.StatusServiceUnavailable)
	LimitsUnavailable     = is("limits_unavailable", http.StatusServiceUnavailable)
	Overloaded            = is("overloaded", http.StatusServiceUnavailable)
	UpstreamOverloaded    = is("upstream_overloaded", http.StatusServiceUnavailable)
	UsageOverloaded       = is("usage_overloaded", http.StatusServiceUnavailable)
	UsageUnavailable      = is("usage_unavailable", http.StatusServiceUnavailable)
	UpstreamTimeout       = is("upstream_timeout", http.StatusGatewayTimeout)
)

// The codes that only the pet service sends.
var (
	InvalidRequest       = ofPets("invalid_request", http.StatusBadRequest)
	GatewayOnly          = ofPets("gateway_only", http.StatusUnauthorized)
	PetNotFound          = ofPets("pet_not_found", http.StatusNotFound)
	RequestInProgress    = ofPets("request_in_progress", http.StatusConflict)
	UnsupportedMediaType = ofPets("unsupported_media_type", http.StatusUnsupportedMediaType)
	IdempotencyKeyReused = ofPets("idempotency_key_reused", http.StatusUnprocessableEntity)
	DatabaseUnavailable  = ofPets("database_unavailable", http.StatusServiceUnavailable)
	DatabaseFull         = ofPets("database_full", http.StatusServiceUnavailable)
	OutcomeUnknown       = ofPets("outcome_unknown", http.StatusServiceUnavailable)
)

// Of returns the code of a reason to refuse a key; the zero Code for access.Allowed.
func Of(r access.Reason) Code {
	switch r {
	case access.OtherEnvironment, access.Revoked, access.Disabled, access.Expired, access.Replaced:
		return InvalidKey
	case access.Banned:
		return KeyBanned
	case access.AddressNotAllowed:
		return AddressNotAllowed
	case access.TenantSuspended:
		return TenantSuspended
	case access.QuotaNotSet:
		return QuotaNotSet
	}
	return Code{}
}
