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
// response has. Only what needs no key has no rate-limit headers.
func (e *Edge) writeResponse(x *exchange) {
	var wait int64
	if !x.isPublic {
		wait = e.describeLimits(x)
	}
	x.Response.Add(nameRequestID, x.id)
	x.Response.Fields = append(x.Response.Fields, e.routes.Load().cors.Fields(&x.Request)...)
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
	x.Response.Closes = x.refusal.reason.row().closes || x.sending.IsSending()
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
	if !p.Body.IsComplete() {
		x.Response.Rest = x
	}
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
	n.Add(true, "x-gateway-secret") // of an upstream that returns what it gets: it is for upstreams only
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
	banned := max(x.limited.Ban.EndsAt.Sub(x.now), 0)
	var all [2]policy // set in place: copies would cost as much as the rest
	all[0].set(`, "minute"`, minuteWindow, &v.Minute, v.Remaining(quota.Minute), v.At, banned)
	all[1].set(`, "day"`, dayWindow, &v.Day, v.Remaining(quota.Day), v.At, banned)
	// The policy that refuses. If none does, the one with fewer requests remaining; the day if they are equal.
	tight, shown := &all[1], all[:]
	switch violated := v.Violated(); {
	case x.refusal.reason == quotaPolling:
		shown = append(shown, policy{})
		tight = &shown[2]
		tight.set(`, "quota-polling"`, pollWindow, &x.polls, x.polls.Remaining(), x.now, 0)
	case violated == quota.Minute || violated == quota.None && v.Remaining(quota.Minute) < v.Remaining(quota.Day):
		tight = &all[0]
	}
	if banned > 0 {
		tight.resetAt = x.limited.Ban.EndsAt
	}
	x.describe(shown, tight)
	x.limited.Plan = x.entry.Plan
	if x.refusal.reason == keyBanned { // nothing of a quota was exceeded
		x.limited.Policy, x.limited.Limit = "ban", 0
	}
	return max(1, seconds(tight.release))
}

func (x *exchange) describeAddress(s authfailures.State) (wait int64) {
	used := quota.Usage{Limit: int64(s.Limit), Used: int64(s.Limit - s.Remaining), ResetAt: s.ResetAt, ReleaseAt: s.ReleaseAt}
	var all [1]policy
	all[0].set(`, "failed-attempts"`, minuteWindow, &used, used.Remaining(), x.now, 0)
	x.describe(all[:], &all[0])
	return max(1, seconds(all[0].release))
}

// The lengths of windows in seconds, as a parameter of a list's item.
var (
	minuteWindow = ";w=" + strconv.Itoa(answers.MinuteSeconds)
	dayWindow    = ";w=" + strconv.Itoa(answers.DaySeconds)
	pollWindow   = ";w=" + strconv.Itoa(answers.PollSeconds)
)

// policy is a limit as responses show it.
type policy struct {
	item   string // its name as an item of a list, after another one
	window string // the parameter with its length

	limit, used, remaining int64

	resetAt instant.Millis
	release time.Duration // until it admits more
}

// set sets the state of a policy at an instant of the clock that decides. A ban admits nothing until it ends, whatever is left.
func (p *policy) set(item, window string, u *quota.Usage, remaining int64, at instant.Millis, banned time.Duration) {
	p.item, p.window = item, window
	p.limit, p.used, p.remaining, p.resetAt, p.release = u.Limit, u.Used, remaining, u.ResetAt, u.ReleaseAt.Sub(at)
	if u.RetryAt != 0 {
		p.release = max(u.RetryAt.Sub(at), 1)
	}
	if banned > 0 {
		if p.remaining > 0 {
			p.remaining, p.used, p.release = 0, p.limit, 0
		}
		p.release = max(p.release, banned)
	}
}

// describe writes the state of policies: of all of them in the fields of the IETF draft (draft-ietf-httpapi-ratelimit-headers), and of
// the tight one in the older fields and in the details of a 429.
func (x *exchange) describe(all []policy, tight *policy) {
	resetAt := max(tight.resetAt, x.now)
	x.addInt(nameLimit, tight.limit)
	x.addInt(nameRemaining, tight.remaining)
	x.addInt(nameReset, resetAt.Seconds())
	text := x.text
	for i := range all {
		p := &all[i]
		text = strconv.AppendInt(append(append(text, p.item...), ";q="...), p.limit, 10)
		text = append(text, p.window...)
	}
	x.addList(namePolicies, text)
	text = x.text
	for i := range all {
		p := &all[i]
		text = strconv.AppendInt(append(append(text, p.item...), ";r="...), p.remaining, 10)
		text = strconv.AppendInt(append(text, ";t="...), seconds(p.release), 10)
	}
	x.addList(nameStates, text)
	name := tight.item[len(`, "`) : len(tight.item)-1]
	x.limited.Policy, x.limited.Limit, x.limited.Used, x.limited.ResetAt = name, tight.limit, tight.used, resetAt
}

// addList adds a field whose items were appended to x.text. Nothing is before the first item.
func (x *exchange) addList(name, text []byte) {
	x.Response.Add(name, text[len(x.text)+len(", "):])
	x.text = text
}

func (x *exchange) addInt(name []byte, n int64) { x.addText(name, strconv.AppendInt(x.text, n, 10)) }

// addText adds a field whose value was appended to x.text.
func (x *exchange) addText(name, text []byte) {
	x.Response.Add(name, text[len(x.text):])
	x.text = text
}

// seconds rounds up: a client that waits too long is admitted, but one that comes too early is refused. A negative wait
// gives 0.
func seconds(wait time.Duration) int64 { return int64((max(wait, 0) + time.Second - 1) / time.Second) }
