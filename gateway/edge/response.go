package edge

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"petgate/gateway/answers"
	"petgate/gateway/front"
	"petgate/gateway/http1"
	"petgate/gateway/quotas/authfailures"
	"petgate/shared/api"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// Names of the response fields that the gateway sets. They are written unchanged.
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
	nameContentType = []byte("Content-Type")
	nameChallenge   = []byte("WWW-Authenticate")
	nameAllow       = []byte("Allow")

	valueJSON = []byte("application/json")
)

// writeResponse writes the page, the report, the refusal, the statement or the upstream's response, with the headers that every
// response has. Only pages have no rate-limit headers.
func (e *Edge) writeResponse(x *exchange) {
	var wait int64
	if !x.isPublic {
		wait = e.describeLimits(x)
	}
	x.Response.Add(nameRequestID, x.id)
	x.Response.Fields = append(x.Response.Fields, e.cors.Fields(&x.Request)...)
	if x.hasKey && x.entry.GraceEndsAt != 0 {
		x.addText(nameKeyExpires, x.entry.GraceEndsAt.Time().AppendFormat(x.text, http.TimeFormat))
	}
	if x.route != nil {
		x.route.describe(&x.Response)
	}
	switch {
	case x.answer != nil:
		x.writeAnswer()
	case x.refusal.isRefused():
		x.writeRefusal(wait)
	default:
		x.copyResponse()
	}
	x.Response.Closes = x.refusal.reason.row().closes
}

// writeAnswer writes a response that the gateway makes itself.
func (x *exchange) writeAnswer() {
	x.Response.Status, x.Response.Body = x.answer.Status, x.answer.Body
	x.Response.Fields = append(x.Response.Fields, x.answer.Fields...)
}

// writeFailure writes a refusal with the headers that every response has. Limits are 0, because they may be unknown.
func (e *Edge) writeFailure(x *exchange) {
	wait := x.describeAddress(authfailures.State{})
	x.Response.Add(nameRequestID, x.id)
	x.writeRefusal(wait)
	x.Response.Closes = true
}

func (x *exchange) writeRefusal(wait int64) {
	row := x.refusal.reason.row()
	x.Response.Status = row.Status
	x.Response.Add(nameContentType, valueJSON)
	wait = cmp.Or(row.retryAfter, wait)
	if row.retryAfter != 0 || row.Status == http.StatusTooManyRequests {
		x.addInt(nameRetryAfter, wait)
	}
	if row.challenge != "" {
		x.addText(nameChallenge, append(x.text, row.challenge...))
	}
	if x.allow != "" {
		x.addText(nameAllow, append(x.text, x.allow...))
	}
	x.limited.RetryAfter = wait
	x.line = x.refusal.body(x.line[:0], x.details())
	x.Response.Body = x.line
}

// details returns the details of the refusal for programs; nil: none.
func (x *exchange) details() api.Details {
	switch status := x.refusal.reason.row().Status; {
	case status == http.StatusTooManyRequests:
		return &x.limited
	case status == http.StatusBadRequest && x.parameter != "":
		return x.parameter
	}
	return nil
}

// copyResponse writes the upstream's response.
func (x *exchange) copyResponse() {
	p := &x.response
	x.Response.Status, x.Response.Body, x.Response.Length = p.Status, p.Body.Bytes, p.Length()
	var wait int64
	for _, f := range p.Fields {
		switch {
		case http1.EqualFold(f.Name, "retry-after"):
			wait = x.readRetryAfter(f.Value)
		case !f.IsNamed && !isOurs(f.Name):
			x.Response.Fields = append(x.Response.Fields, f)
		}
	}
	switch p.Status {
	case http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable: // the client may try again
		x.addInt(nameRetryAfter, max(1, wait))
	}
}

// readRetryAfter returns the seconds of a Retry-After with seconds or a date (RFC 9110, section 10.2.3), or else 0.
func (x *exchange) readRetryAfter(value []byte) int64 {
	if n, ok := http1.ParseDigits(value); ok {
		return n
	}
	if at, err := http.ParseTime(string(value)); err == nil {
		return seconds(instant.Of(at).Sub(x.now))
	}
	return 0
}

// isOurs reports whether only the gateway sets a response field. The upstream's field of that name is not copied.
func isOurs(name []byte) bool {
	if http1.EqualFold(name[:min(len(name), len(limitPrefix))], limitPrefix) || http1.EqualFold(name[:min(len(name), len(corsPrefix))], corsPrefix) {
		return true
	}
	return ours.Of(name)
}

const (
	limitPrefix = "x-ratelimit"
	corsPrefix  = "access-control-" // the upstream decides nothing about origins: two answers would contradict each other
)

var ours = func() (n http1.Names[bool]) {
	n.Add(true, "ratelimit", "ratelimit-policy", "x-request-id", "x-key-expires", "x-stability", "deprecation", "sunset", "date", "server")
	return n
}()

// describe writes the headers of an operation that is deprecated, will be removed or is not stable.
func (r *route) describe(to *front.Response) {
	if len(r.deprecation) > 0 {
		to.Add(nameDeprecation, r.deprecation)
	}
	if len(r.sunsetDate) > 0 {
		to.Add(nameSunset, r.sunsetDate)
	}
	if len(r.link) > 0 {
		to.Add(nameLink, r.link)
	}
	if len(r.stability) > 0 {
		to.Add(nameStability, r.stability)
	}
}

// describeLimits writes the state of the tenant's quotas. Without a key it writes the state of the address's failed
// attempts. It returns the seconds after which a refused client may try again.
func (e *Edge) describeLimits(x *exchange) (wait int64) {
	if !x.hasKey {
		state := x.guard
		if state.Limit == 0 {
			state = e.deps.Guard.Known(x.client)
		}
		return x.describeAddress(state)
	}
	v := &x.verdict
	if v.At == 0 { // a panic before the use was known
		v.At, v.Minute.Limit, v.Day.Limit = x.now, x.entry.Limits.Minute, x.entry.Limits.Day
	}
	tight, policy := &v.Day, quota.Day // the policy with fewer requests remaining; the day if they are equal
	if v.Minute.Remaining() < v.Day.Remaining() {
		tight, policy = &v.Minute, quota.Minute
	}
	switch x.refusal.reason { // on a 429, the policy that was exceeded
	case minuteQuotaExceeded:
		tight, policy = &v.Minute, quota.Minute
	case dayQuotaExceeded:
		tight, policy = &v.Day, quota.Day
	}
	banned := max(x.limited.Ban.EndsAt.Sub(x.now), 0)
	resetAt := tight.ResetAt
	if banned > 0 {
		resetAt = x.limited.Ban.EndsAt
	}
	x.addInt(nameLimit, tight.Limit)
	remaining, _ := stateOf(tight, v.At, banned)
	x.addInt(nameRemaining, remaining)
	x.addInt(nameReset, max(resetAt, x.now).Seconds())
	text := appendPolicy(x.text, `"minute"`, v.Minute.Limit, answers.MinuteSeconds)
	x.addText(namePolicies, appendPolicy(text, `, "day"`, v.Day.Limit, answers.DaySeconds))
	remaining, release := stateOf(&v.Minute, v.At, banned)
	text = appendState(x.text, `"minute"`, remaining, release)
	remaining, release = stateOf(&v.Day, v.At, banned)
	x.addText(nameStates, appendState(text, `, "day"`, remaining, release))
	switch x.refusal.reason {
	case quotaPolling: // the limit of polling belongs to the key, not to the tenant
	case keyBanned: // nothing of a quota was exceeded
		x.limited.Policy, x.limited.Plan, x.limited.ResetAt = "ban", x.entry.Plan, resetAt
	default:
		x.limited.Policy, x.limited.Plan = policy.String(), x.entry.Plan
		x.limited.Limit, x.limited.Used, x.limited.ResetAt = tight.Limit, tight.Used, resetAt
	}
	return max(1, seconds(v.RetryAt().Sub(v.At)), seconds(banned))
}

// stateOf returns how many requests a policy admits, and when that changes. A ban admits nothing until it ends, whatever is left.
func stateOf(u *quota.Usage, at instant.Millis, banned time.Duration) (remaining int64, release time.Duration) {
	remaining, release = u.Remaining(), u.ReleaseAt.Sub(at)
	switch {
	case banned > 0 && remaining > 0:
		return 0, banned
	case banned > 0:
		return 0, max(release, banned)
	}
	return remaining, release
}

func (x *exchange) describeAddress(state authfailures.State) (wait int64) {
	const name = `"failed-attempts"`
	resetAt := max(state.ResetAt, x.now)
	x.addInt(nameLimit, int64(state.Limit))
	x.addInt(nameRemaining, int64(state.Remaining))
	x.addInt(nameReset, resetAt.Seconds())
	x.addText(namePolicies, appendPolicy(x.text, name, int64(state.Limit), answers.MinuteSeconds))
	x.addText(nameStates, appendState(x.text, name, int64(state.Remaining), resetAt.Sub(x.now)))
	x.limited.Policy, x.limited.Limit = "failed-attempts", int64(state.Limit)
	x.limited.Used, x.limited.ResetAt = int64(state.Limit-state.Remaining), resetAt
	return max(1, seconds(state.RetryAt.Sub(x.now)))
}

func (x *exchange) addInt(name []byte, n int64) { x.addText(name, strconv.AppendInt(x.text, n, 10)) }

// addText adds a field whose value was appended to x.text.
func (x *exchange) addText(name, text []byte) {
	x.Response.Add(name, text[len(x.text):])
	x.text = text
}

// appendPolicy and appendState append items of the fields in the IETF draft (draft-ietf-httpapi-ratelimit-headers).
func appendPolicy(dst []byte, name string, limit, window int64) []byte {
	dst = strconv.AppendInt(append(append(dst, name...), ";q="...), limit, 10)
	return strconv.AppendInt(append(dst, ";w="...), window, 10)
}

func appendState(dst []byte, name string, remaining int64, release time.Duration) []byte {
	dst = strconv.AppendInt(append(append(dst, name...), ";r="...), remaining, 10)
	return strconv.AppendInt(append(dst, ";t="...), seconds(release), 10)
}

// seconds rounds up: a client that waits too long is admitted, but one that comes too early is refused. A negative wait
// gives 0.
func seconds(wait time.Duration) int64 { return int64((max(wait, 0) + time.Second - 1) / time.Second) }
