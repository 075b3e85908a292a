package edge

import (
	"net/http"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"petgate/shared/core/quota"
)

// Names of the fields that are set on responses. fasthttp copies them as they are.
var (
	nameLimit       = []byte("X-RateLimit-Limit")
	nameRemaining   = []byte("X-RateLimit-Remaining")
	nameReset       = []byte("X-RateLimit-Reset")
	namePolicies    = []byte("RateLimit-Policy")
	nameStates      = []byte("RateLimit")
	nameRetryAfter  = []byte("Retry-After")
	nameRequestID   = []byte("X-Request-Id")
	nameKeyExpires  = []byte("X-Key-Expires")
	nameStability   = []byte("X-Stability")
	nameDeprecation = []byte("Deprecation")
	nameSunset      = []byte("Sunset")
	nameLink        = []byte("Link")
)

const (
	challenge        = `Bearer realm="petgate"`
	challengeInvalid = challenge + `, error="invalid_token"`
	challengeScope   = challenge + `, error="insufficient_scope"`
	minuteSeconds    = 60
	daySeconds       = 86400
)

// respond writes the response: the upstream's answer or the refusal, with the headers that every response has.
func (e *Edge) respond(x *exchange) {
	response := &x.rc.Response
	h := &response.Header
	wait := e.describeLimits(x, h)
	h.AddBytesKV(nameRequestID, x.id)
	if x.hasKey && x.entry.GraceEndsAt != 0 {
		x.text = x.entry.GraceEndsAt.Time().AppendFormat(x.text[:0], http.TimeFormat)
		h.AddBytesKV(nameKeyExpires, x.text)
	}
	if x.route != nil {
		x.route.describe(h)
	}
	if x.refusal.isRefused() {
		e.refuse(x, h, wait)
	} else {
		e.copyAnswer(x, h)
	}
	if e.draining.Load() || x.refusal.reason.closes() {
		h.SetConnectionClose()
	}
}

// refuse writes the refusal.
func (e *Edge) refuse(x *exchange, h *fasthttp.ResponseHeader, wait int64) {
	row := x.refusal.reason.row()
	h.SetStatusCode(row.status)
	h.SetContentType("application/json")
	switch {
	case row.status == http.StatusTooManyRequests:
		x.setInt(h, nameRetryAfter, wait)
	case row.retryAfter != 0:
		x.setInt(h, nameRetryAfter, row.retryAfter)
	}
	switch x.refusal.reason {
	case missingKey:
		h.Set("WWW-Authenticate", challenge)
	case malformedKey, invalidKey:
		h.Set("WWW-Authenticate", challengeInvalid)
	case insufficientScope:
		h.Set("WWW-Authenticate", challengeScope)
	case methodNotAllowed:
		h.Set("Allow", x.allow)
	}
	x.limited.RetryAfter, x.limited.StrikesUntilBan = wait, x.strikesLeft
	x.line = x.refusal.body(x.line[:0], &x.limited)
	x.rc.Response.SetBody(x.line)
}

// copyAnswer writes the upstream's answer.
func (e *Edge) copyAnswer(x *exchange, h *fasthttp.ResponseHeader) {
	a := &x.answer
	h.SetStatusCode(a.status)
	for _, f := range a.fields {
		h.AddBytesKV(f.name, f.value)
	}
	if a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable {
		x.setInt(h, nameRetryAfter, max(1, a.retryAfter, seconds(a.retryAt.Sub(x.now))))
	}
	if x.rc.IsHead() {
		if a.length >= 0 { // Not 0 where it was not said: GET would have another (RFC 9110, section 8.6).
			h.SetContentLength(int(a.length))
		}
		return
	}
	a.body = x.rc.Response.SwapBody(a.body)
}

// describe tells of an operation that is deprecated or not stable.
func (r *route) describe(h *fasthttp.ResponseHeader) {
	if r.deprecation != "" {
		h.AddBytesK(nameDeprecation, r.deprecation)
	}
	if r.sunsetDate != "" {
		h.AddBytesK(nameSunset, r.sunsetDate)
	}
	if r.link != "" {
		h.AddBytesK(nameLink, r.link)
	}
	if r.Stability != "" {
		h.AddBytesK(nameStability, r.Stability)
	}
}

// describeLimits writes how the tenant stands with its quotas, or, where there is no key, how the address stands with failed
// attempts. It returns the seconds after which a refused client may come back.
func (e *Edge) describeLimits(x *exchange, h *fasthttp.ResponseHeader) (wait int64) {
	if !x.hasKey {
		return e.describeGuard(x, h)
	}
	v := &x.verdict
	if v.At == 0 { // a panic came before anything was known
		v.At, v.Minute.Limit, v.Day.Limit = x.now, x.entry.Limits.Minute, x.entry.Limits.Day
	}
	tight, policy := &v.Day, quota.Day // the one with the fewest remaining; the longer window if they are equal
	if v.Minute.Remaining() < v.Day.Remaining() {
		tight, policy = &v.Minute, quota.Minute
	}
	switch x.refusal.reason { // on a 429, the one that was exceeded
	case minuteQuotaExceeded:
		tight, policy = &v.Minute, quota.Minute
	case dayQuotaExceeded:
		tight, policy = &v.Day, quota.Day
	}
	x.setInt(h, nameLimit, tight.Limit)
	x.setInt(h, nameRemaining, tight.Remaining())
	x.setInt(h, nameReset, max(tight.ResetAt, x.now).Seconds())
	text := appendPolicy(x.text[:0], `"minute"`, v.Minute.Limit, minuteSeconds)
	x.text = appendPolicy(text, `, "day"`, v.Day.Limit, daySeconds)
	h.AddBytesKV(namePolicies, x.text)
	text = appendState(x.text[:0], `"minute"`, v.Minute.Remaining(), v.Minute.ReleaseAt.Sub(v.At))
	x.text = appendState(text, `, "day"`, v.Day.Remaining(), v.Day.ReleaseAt.Sub(v.At))
	h.AddBytesKV(nameStates, x.text)
	x.limited.Policy, x.limited.Plan = policy.String(), x.entry.Plan
	x.limited.Limit, x.limited.Used, x.limited.ResetAt = tight.Limit, tight.Used, tight.ResetAt
	return max(1, seconds(v.RetryAt().Sub(v.At)), seconds(x.bannedUntil.Sub(x.now)))
}

func (e *Edge) describeGuard(x *exchange, h *fasthttp.ResponseHeader) (wait int64) {
	const name = `"failed-attempts"`
	state := x.guard
	if state.Limit == 0 {
		state = e.guard.Known(x.client)
	}
	resetAt := max(state.ResetAt, x.now)
	x.setInt(h, nameLimit, int64(state.Limit))
	x.setInt(h, nameRemaining, int64(state.Remaining))
	x.setInt(h, nameReset, resetAt.Seconds())
	x.text = appendPolicy(x.text[:0], name, int64(state.Limit), minuteSeconds)
	h.AddBytesKV(namePolicies, x.text)
	x.text = appendState(x.text[:0], name, int64(state.Remaining), resetAt.Sub(x.now))
	h.AddBytesKV(nameStates, x.text)
	x.limited.Policy, x.limited.Limit = "failed-attempts", int64(state.Limit)
	x.limited.Used, x.limited.ResetAt = int64(state.Limit-state.Remaining), resetAt
	return max(1, seconds(state.RetryAt.Sub(x.now)))
}

func (x *exchange) setInt(h *fasthttp.ResponseHeader, name []byte, n int64) {
	x.text = strconv.AppendInt(x.text[:0], n, 10)
	h.AddBytesKV(name, x.text)
}

// appendPolicy and appendState write items of the IETF draft's fields (draft-ietf-httpapi-ratelimit-headers).
func appendPolicy(dst []byte, name string, limit, window int64) []byte {
	dst = strconv.AppendInt(append(append(dst, name...), ";q="...), limit, 10)
	return strconv.AppendInt(append(dst, ";w="...), window, 10)
}

func appendState(dst []byte, name string, remaining int64, release time.Duration) []byte {
	dst = strconv.AppendInt(append(append(dst, name...), ";r="...), remaining, 10)
	return strconv.AppendInt(append(dst, ";t="...), seconds(release), 10)
}

// seconds rounds up: a client that waits a second too long is admitted, one that comes too early is refused. A negative wait is 0.
func seconds(wait time.Duration) int64 { return int64((max(wait, 0) + time.Second - 1) / time.Second) }
