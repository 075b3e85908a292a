package edge

import (
	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
)

// refusals are what the client is told for each reason of package access.
var refusals = [...]refusal{
	access.Allowed:           {},
	access.OtherEnvironment:  {reason: invalidKey, message: "the API key is of another environment"},
	access.Revoked:           {reason: invalidKey, message: "the API key has been revoked"},
	access.Expired:           {reason: invalidKey, message: "the API key has expired"},
	access.Replaced:          {reason: invalidKey, message: "the API key has been replaced by another one"},
	access.Banned:            {reason: keyBanned},
	access.AddressNotAllowed: {reason: addressNotAllowed},
	access.TenantSuspended:   {reason: tenantSuspended},
	access.QuotaNotSet:       {reason: quotaNotSet},
}

// authenticate finds the token's key and tenant, and asks package access whether the key may call now. Everything that it
// needs is in memory, except for an unknown token: that one is counted by the guard, which may ask Redis.
func (e *Edge) authenticate(x *exchange) refusal {
	if x.env != e.cfg.Environment {
		return refusal{reason: invalidKey, message: "the API key is a " + x.env.String() + " key, and this gateway serves " +
			e.cfg.Environment.String() + " keys"}
	}
	if !e.directory.Fresh(x.now) {
		return refusal{reason: directoryUnavailable}
	}
	entry, found := e.directory.Lookup(apikey.Sum(x.token))
	if !found {
		return e.failed(x)
	}
	key := access.Key{
		Environment: entry.Environment, RevokedAt: entry.RevokedAt, ExpiresAt: entry.ExpiresAt, GraceEndsAt: entry.GraceEndsAt,
		BannedUntil: entry.BannedUntil, Allow: entry.Allow,
	}
	why := access.Decide(key, access.Tenant{Suspended: entry.Suspended, Limits: entry.Limits},
		access.Call{Environment: e.cfg.Environment, Client: x.client, Now: x.now})
	if !why.IsOfKey() {
		x.entry, x.hasKey = entry, true
	}
	if why == access.Banned {
		x.bannedUntil = entry.BannedUntil
		e.strikes.banned(entry.Key, x.now, entry.BannedUntil)
	}
	return refusals[why]
}

// failed counts a token that nobody knows against its address: tokens are tried by guessing, and nothing else is.
func (e *Edge) failed(x *exchange) refusal {
	state, allowed := e.guard.Fail(x.client)
	x.guard = state
	if !allowed {
		return refusal{reason: tooManyFailedAttempts}
	}
	return refusal{reason: invalidKey}
}
