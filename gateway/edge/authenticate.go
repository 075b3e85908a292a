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
	isOurs := x.env == e.cfg.Environment
	if isOurs && !e.deps.Directory.Fresh(x.now) {
		return refusal{reason: directoryUnavailable}
	}
	// A key of another environment is looked up for the access log and the usage. The entry is
	// assigned straight to x: a copy on the stack would enlarge every idle connection.
	x.entry, x.isKnown = e.deps.Directory.Lookup(x.hash)
	switch {
	case !isOurs:
		x.why = access.OtherEnvironment
		return refusal{
			reason:  invalidKey,
			message: "the API key is a " + x.env.String() + " key, and this gateway serves " + e.cfg.Environment.String() + " keys",
		}
	case !x.isKnown:
		return e.failed(x)
	}
	return e.judge(x)
}

// again refuses a key that ended, or lost the right to call, while its request waited: what an
// operator's command has confirmed holds also for requests that have begun.
func (e *Edge) again(x *exchange) refusal {
	x.hasKey = false
	if x.now = instant.Of(e.deps.Clock()); !e.deps.Directory.Fresh(x.now) {
		return refusal{reason: directoryUnavailable}
	}
	entry, isKnown := e.deps.Directory.Lookup(x.hash)
	if !isKnown { // it was deleted; x.entry stays, because the request counts for its tenant
		return refusal{reason: invalidKey}
	}
	x.entry = entry
	if r := e.judge(x); r.isRefused() {
		return r
	}
	return e.authorize(x)
}

// againAfter is how long a request waits for its quota before its key is looked up again.
const againAfter = time.Second

// judge refuses a key that is not valid here, and decides whether it may call now.
func (e *Edge) judge(x *exchange) refusal {
	if x.why = e.why(&x.entry, x.client, x.now); x.why.IsOfKey() {
		return refusals[x.why]
	}
	x.hasKey = true
	if !x.Conn.Admit(x.entry.Tenant, e.proxies.Has(x.Conn.Peer)) {
		return refusal{
			reason:  overloaded,
			message: "your account has too many connections: send more requests over fewer connections",
		}
	}
	return refusal{}
}

// why says whether a key may call.
func (e *Edge) why(entry *directory.Entry, client netip.Addr, now instant.Millis) access.Reason {
	key := access.Key{
		Environment: entry.Environment, RevokedAt: entry.RevokedAt, ExpiresAt: entry.ExpiresAt, GraceEndsAt: entry.GraceEndsAt,
		BannedUntil: entry.BannedUntil, Allow: entry.Allow,
	}
	return access.Decide(key, access.Tenant{Suspended: entry.Suspended, Limits: entry.Limits},
		access.Call{Environment: e.cfg.Environment, Client: client, Now: now})
}

// failed counts an unknown token for its client's address, because unknown tokens may be guesses.
func (e *Edge) failed(x *exchange) refusal {
	state, allowed := e.deps.Guard.Fail(x.client)
	x.guard = state
	if !allowed {
		return refusal{reason: tooManyFailedAttempts}
	}
	r := refusal{reason: invalidKey}
	if !bytes.HasPrefix(x.token, []byte(e.keysBegin())) {
		r.message = "the API key is unknown, and keys of this API begin with " + e.keysBegin()
	}
	return r
}
