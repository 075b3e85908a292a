// Package code lists the codes with which a request is refused because of its key or its quota, each with its HTTP status.
// The gateway answers with them, and keyadmin explains with them. This package is separate from package api, so that keyadmin
// needs no HTTP server.
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

// The codes.
var (
	MalformedKey        = Code{"malformed_api_key", http.StatusUnauthorized}
	InvalidKey          = Code{"invalid_api_key", http.StatusUnauthorized}
	KeyBanned           = Code{"key_banned", http.StatusTooManyRequests}
	AddressNotAllowed   = Code{"address_not_allowed", http.StatusForbidden}
	TenantSuspended     = Code{"tenant_suspended", http.StatusForbidden}
	QuotaNotSet         = Code{"quota_not_set", http.StatusForbidden}
	MinuteQuotaExceeded = Code{"minute_quota_exceeded", http.StatusTooManyRequests}
	DayQuotaExceeded    = Code{"day_quota_exceeded", http.StatusTooManyRequests}
	ScopeMissing        = Code{"insufficient_scope", http.StatusForbidden}
	OperationGone       = Code{"operation_removed", http.StatusGone}
)

// Of returns the code of a reason to refuse a key; the zero Code for access.Allowed.
func Of(r access.Reason) Code {
	switch r {
	case access.OtherEnvironment, access.Revoked, access.Expired, access.Replaced:
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
