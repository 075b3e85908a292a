package edge

import (
	"bytes"
	"net/netip"
	"time"

	"petgate/gateway/directory"
	"petgate/shared/core/access"
	"petgate/shared/core/instant"
)

// refusals has the refusal for each result of access.Decide.
var refusals = [...]refusal{
	access.Allowed:           {},
	access.OtherEnvironment:  {reason: invalidKey, message: "the API key belongs to another environment"},
	access.Revoked:           {reason: invalidKey, message: "the API key was revoked"},
	access.Disabled:          {reason: invalidKey, message: "the API key is disabled: ask your contact to enable it"},
	access.Expired:           {reason: invalidKey, message: "the API key has expired"},
	access.Replaced:          {reason: invalidKey, message: "the API key was rotated and has ended: use its successor"},
	access.Banned:            {reason: keyBanned},
	access.AddressNotAllowed: {reason: addressNotAllowed},
	access.TenantSuspended:   {reason: tenantSuspended},
	access.QuotaNotSet:       {reason: quotaNotSet},
}

// authenticate finds the token's key and tenant, and refuses a key that is not valid. Everything is
// in memory, with one exception: unknown tokens are counted by the guard, which may ask Redis.
func (e *Edge) authenticate(x *exchange) refusal {
	if x.isPublic {
		return e.admitStranger(x)
	}
	isOurs := x.env == e.cfg.Environment
	if isOurs && !e.deps.Directory.Fresh(x.now) {
		return refusal{reason: directoryUnavailable}
	}
	// A key of another environment is looked up for the access log and the usage. The entry is
	// assigned straight to x: a copy on the stack would enlarge every idle connection.
	x.entry, x.hasEntry = e.deps.Directory.Lookup(x.hash)
	if !isOurs {
		x.access = access.OtherEnvironment
		return refusal{
			reason: invalidKey,
			message: "the API key is a " + x.env.String() + " key, and this gateway serves " +
				e.cfg.Environment.String() + " keys",
		}
	}
	if !x.hasEntry {
		return e.countFailure(x)
	}
	return e.judge(x)
}

// admitStranger lets a request for a public operation pass, unless its address has tried too many
// unknown keys. The client stays a stranger: its connection is among the first that are closed to
// make room for others, and all strangers together get the upstream's slots of one tenant.
func (e *Edge) admitStranger(x *exchange) refusal {
	x.guard = e.deps.Guard.Known(x.client)
	if x.guard.Limit > 0 && x.guard.Remaining == 0 {
		return refusal{reason: tooManyFailedAttempts}
	}
	return refusal{}
}

// countFailure counts an unknown token for its client's address, because unknown tokens may be
// guesses.
func (e *Edge) countFailure(x *exchange) refusal {
	state, isAllowed := e.deps.Guard.Fail(x.client)
	x.guard = state
	if !isAllowed {
		return refusal{reason: tooManyFailedAttempts}
	}
	if bytes.HasPrefix(x.token, []byte(e.keysBegin())) {
		return refusal{reason: invalidKey}
	}
	return refusal{
		reason:  invalidKey,
		message: "the API key is unknown, and keys of this API begin with " + e.keysBegin(),
	}
}

// judge refuses a key that is not valid here, and decides whether it may call now.
func (e *Edge) judge(x *exchange) refusal {
	x.access = e.accessOf(&x.entry, x.client, x.now)
	if x.access.IsOfKey() {
		return refusals[x.access]
	}
	x.isValid = true
	if !x.Conn.Admit(x.entry.Tenant, e.proxies.Has(x.Conn.Peer)) {
		return refusal{
			reason:  overloaded,
			message: "your account has too many connections: send more requests over fewer connections",
		}
	}
	return refusal{}
}

// accessOf decides whether a key may call.
func (e *Edge) accessOf(entry *directory.Entry, client netip.Addr, now instant.Millis) access.Reason {
	key := access.Key{
		Environment: entry.Environment,
		RevokedAt:   entry.RevokedAt,
		DisabledAt:  entry.DisabledAt,
		ExpiresAt:   entry.ExpiresAt,
		GraceEndsAt: entry.GraceEndsAt,
		BannedUntil: entry.BannedUntil,
		Allow:       entry.Allow,
	}
	tenant := access.Tenant{Suspended: entry.Suspended, Limits: entry.Limits}
	return access.Decide(key, tenant, access.Call{Environment: e.cfg.Environment, Client: client, Now: now})
}

// authenticateAgain refuses a key that ended, or lost the right to call, while its request waited:
// what an operator's command has confirmed holds also for requests that have begun.
func (e *Edge) authenticateAgain(x *exchange) refusal {
	if x.isPublic {
		return refusal{}
	}
	x.isValid = false
	x.now = instant.Of(e.deps.Clock())
	if !e.deps.Directory.Fresh(x.now) {
		return refusal{reason: directoryUnavailable}
	}
	entry, isThere := e.deps.Directory.Lookup(x.hash)
	if !isThere { // it was deleted; x.entry stays, because the request counts for its tenant
		return refusal{reason: invalidKey}
	}
	x.entry = entry
	if r := e.judge(x); r.isRefused() {
		return r
	}
	return e.authorize(x)
}

// authenticateAfter is how long a request waits for its quota before its key is looked up again.
const authenticateAfter = time.Second

// standing returns why the key of a request that is under way has lost the right to call. It is
// authenticateAgain for other goroutines: it changes nothing in x.
func (e *Edge) standing(x *exchange) refusal {
	if x.isPublic {
		return refusal{}
	}
	now := instant.Of(e.deps.Clock())
	if !e.deps.Directory.Fresh(now) {
		return refusal{reason: directoryUnavailable}
	}
	entry, isThere := e.deps.Directory.Lookup(x.hash)
	if !isThere {
		return refusal{reason: invalidKey}
	}
	return refusals[e.accessOf(&entry, x.client, now)]
}
