// Package access decides whether a key may call now, and if not, why.
//
// It is the only place that knows the order of the checks. The gateway uses it to refuse calls.
// keyadmin uses it to explain, show and rotate keys. Decide is pure: the time is an argument.
package access

import (
	"net/netip"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
)

// Reason says why a key may not call. The zero Reason is Allowed.
type Reason uint8

// The reasons, in the order in which Decide checks them.
const (
	Allowed Reason = iota
	OtherEnvironment
	Revoked
	Disabled
	Expired
	Replaced
	Banned
	AddressNotAllowed
	TenantSuspended
	QuotaNotSet
	reasons // the number of reasons
)

var names = [reasons]string{
	Allowed:           "allowed",
	OtherEnvironment:  "other environment",
	Revoked:           "revoked",
	Disabled:          "disabled",
	Expired:           "expired",
	Replaced:          "replaced",
	Banned:            "banned",
	AddressNotAllowed: "address not allowed",
	TenantSuspended:   "tenant suspended",
	QuotaNotSet:       "quota not set",
}

func (r Reason) String() string { return names[r] }

// IsOfKey reports whether the key itself is not valid. Then it does not matter what its tenant may
// do.
func (r Reason) IsOfKey() bool { return r >= OtherEnvironment && r <= Replaced }

// Key is what Decide needs to know of a key. Times are Unix milliseconds; 0 is never.
type Key struct {
	Environment apikey.Environment
	RevokedAt   instant.Millis
	DisabledAt  instant.Millis
	ExpiresAt   instant.Millis
	GraceEndsAt instant.Millis // set by a rotation; from this time on the new key has replaced this one
	BannedUntil instant.Millis
	Allow       []netip.Prefix // empty: every address is allowed
}

// Tenant is what Decide needs to know of a key's tenant.
type Tenant struct {
	Suspended bool
	Limits    plan.Limits // effective
}

// Call is one call with a key.
type Call struct {
	Environment apikey.Environment // of the gateway
	Client      netip.Addr
	Now         instant.Millis
}

// Decide returns Allowed, or the first reason to refuse the call.
func Decide(k Key, t Tenant, c Call) Reason {
	switch {
	case k.Environment != c.Environment:
		return OtherEnvironment
	case k.RevokedAt != 0: // not compared with Now: it is by another clock, and never in the future
		return Revoked
	case k.DisabledAt != 0:
		return Disabled
	case k.ExpiresAt != 0 && k.ExpiresAt <= c.Now:
		return Expired
	case k.GraceEndsAt != 0 && k.GraceEndsAt <= c.Now:
		return Replaced
	case k.BannedUntil > c.Now:
		return Banned
	case !Contains(k.Allow, c.Client):
		return AddressNotAllowed
	case t.Suspended:
		return TenantSuspended
	case !t.Limits.IsSet():
		return QuotaNotSet
	}
	return Allowed
}

// InUse reports whether a key can still be used and changed: it was not revoked and is not
// disabled, it has not expired, and no other key has replaced it or will replace it. A ban ends, so
// a banned key is in use.
func InUse(k Key, now instant.Millis) bool {
	return k.GraceEndsAt == 0 && !Decide(k, Tenant{}, Call{Environment: k.Environment, Now: now}).IsOfKey()
}

// Contains reports whether a prefix contains addr, which must not be an IPv4 address mapped into
// IPv6. A prefix of mapped addresses means the IPv4 addresses. An empty list contains every
// address.
func Contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	const mappedBits = 96 // of ::ffff:0:0/96
	for _, p := range prefixes {
		if p.Addr().Is4In6() && p.Bits() >= mappedBits {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mappedBits)
		}
		if p.Contains(addr) {
			return true
		}
	}
	return len(prefixes) == 0
}
