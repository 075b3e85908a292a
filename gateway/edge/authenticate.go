package edge

import (
	"bytes"
	"net/netip"

	"petgate/shared/core/apikey"
)

// authenticate finds out whose token it is, and whether that key and tenant may call now, from this address. All that it
// asks is in memory.
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
	switch {
	case entry.Environment != e.cfg.Environment:
		return refusal{reason: invalidKey, message: "the API key is of another environment"}
	case entry.RevokedAt != 0: // whatever its date, which an operator's clock wrote: revoked is never later
		return refusal{reason: invalidKey, message: "the API key has been revoked"}
	case entry.ExpiresAt != 0 && entry.ExpiresAt <= x.now:
		return refusal{reason: invalidKey, message: "the API key has expired"}
	case entry.GraceEndsAt != 0 && entry.GraceEndsAt <= x.now:
		return refusal{reason: invalidKey, message: "the API key has been replaced by another one"}
	}
	x.entry, x.hasKey = entry, true
	switch {
	case entry.BannedUntil > x.now:
		x.bannedUntil = entry.BannedUntil
		e.strikes.banned(entry.Key, x.now, entry.BannedUntil)
		return refusal{reason: keyBanned}
	case !isAllowed(entry.Allow, x.client):
		return refusal{reason: addressNotAllowed}
	case entry.Suspended:
		return refusal{reason: tenantSuspended}
	case !entry.Limits.IsSet():
		return refusal{reason: quotaNotSet}
	}
	return refusal{}
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

func isAllowed(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return len(prefixes) == 0
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
	return len(e.cfg.TrustedProxies) > 0 && isAllowed(e.cfg.TrustedProxies, addr)
}
