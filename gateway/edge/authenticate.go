package edge

import (
	"bytes"
	"net/netip"

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

// clientAddress is the peer's address, or, if the peer is a trusted proxy, the last one in X-Forwarded-For that is not: what
// stands before it was written by the client. An element that is no address ends the search, as nothing before it can be
// believed either.
func (e *Edge) clientAddress(x *exchange) netip.Addr {
	addr := x.wire.peer
	list := x.head.forwardedFor
	for len(list) > 0 && e.isTrusted(addr) {
		last := list
		if comma := bytes.LastIndexByte(list, ','); comma >= 0 {
			last, list = list[comma+1:], list[:comma]
		} else {
			list = nil
		}
		// The conversion does not allocate: ParseAddr keeps the string for a zone only, and an error is rare.
		next, err := netip.ParseAddr(string(trim(last)))
		if err != nil || next.Zone() != "" {
			return addr
		}
		addr = next.Unmap()
	}
	return addr
}

func (e *Edge) isTrusted(addr netip.Addr) bool {
	return len(e.cfg.TrustedProxies) > 0 && access.Contains(e.cfg.TrustedProxies, addr)
}
