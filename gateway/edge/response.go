package edge

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"time"

	"petgate/gateway/answers"
	"petgate/gateway/http1"
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
	nameCost        = []byte("X-Request-Cost")
	nameRetryAfter  = []byte("Retry-After")
	nameRequestID   = []byte("X-Request-Id")
	nameKeyExpires  = []byte("X-Key-Expires")
	nameContentType = []byte("Content-Type")
	nameChallenge   = []byte("WWW-Authenticate")
	nameAllow       = []byte("Allow")

	valueJSON = []byte("application/json")
)

// writeResponse writes the page, the report, the refusal, the statement or the upstream's response, with the headers that every
// response has. Only what needs no key has no rate-limit headers.
func (e *Edge) writeResponse(x *exchange) {
	var wait int64
	if x.answer == nil || x.hasKey {
		wait = x.describeLimits()
	}
	x.Response.Add(nameRequestID, x.id)
	x.Response.Fields = append(x.Response.Fields, e.routes.Load().cors.Fields(&x.Request)...)
	if x.hasKey && x.entry.GraceEndsAt != 0 {
		x.addText(nameKeyExpires, x.entry.GraceEndsAt.Time().AppendFormat(x.text, http.TimeFormat))
	}
	if x.route != nil {
		x.Response.Fields = append(x.Response.Fields, x.route.Fields...)
	}
	switch {
	case x.answer != nil:
		x.Response.Status, x.Response.Body = x.answer.Status, x.answer.Body
		x.Response.Fields = append(x.Response.Fields, x.answer.Fields...)
	case x.refusal.isRefused():
		x.writeRefusal(wait)
	default:
		x.copyResponse()
	}
	x.Response.Closes = x.refusal.reason.row().closes || x.sending.IsSending()
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
		return api.Named{Kind: "parameter", Name: x.parameter}
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
	n.Add(true, "ratelimit", "ratelimit-policy", "x-request-id", "x-request-cost", "x-key-expires", "x-stability", "deprecation", "sunset", "date", "server")
	return n
}()

// describeLimits writes the state of the tenant's quotas. Without a key it writes the state of the address's failed
// attempts. It returns the seconds after which a refused client may try again.
func (x *exchange) describeLimits() (wait int64) {
	if !x.hasKey {
		return x.describeAddress()
	}
	v := &x.verdict
	banned := max(x.limited.Ban.EndsAt.Sub(x.now), 0)
	var all [quota.Policies + 1]policy // set in place: copies would cost as much as the rest
	// The policy that refuses. If none does, the one with the fewest units remaining; of equals, the tenant's before the key's, and the longer.
	var tight *policy
	shown, least, refuses := 0, int64(math.MaxInt64), v.Violated()
	for p := range quota.None {
		u := &v.Usages[p]
		if u.Limit == 0 && p != refuses {
			continue
		}
		all[shown].set(items[p], answers.Window(p, u, x.entry.MonthStarts), u, v.At, banned)
		if p == refuses || refuses == quota.None && (u.Remaining < least || u.Remaining == least && !p.IsOfKey()) {
			tight, least = &all[shown], u.Remaining
		}
		shown++
	}
	if tight == nil { // without any limit, the minute's is 0
		tight, shown = &all[0], 1
		tight.set(items[quota.Minute], answers.MinuteSeconds, &v.Usages[quota.Minute], v.At, banned)
	}
	if x.refusal.reason == quotaPolling {
		tight = &all[shown]
		tight.set(`, "quota-polling"`, answers.PollSeconds, &x.polls, x.now, 0)
		shown++
	}
	if banned > 0 {
		tight.resetAt = x.limited.Ban.EndsAt
	}
	x.describe(all[:shown], tight)
	if x.cost > 1 {
		x.addInt(nameCost, x.cost)
	}
	x.limited.Plan = x.entry.Plan
	if x.refusal.reason == keyBanned { // nothing of a quota was exceeded
		x.limited.Policy, x.limited.Limit = "ban", 0
	}
	return max(1, seconds(tight.release))
}

func (x *exchange) describeAddress() (wait int64) {
	s := &x.guard
	used := quota.Usage{
		Limit: int64(s.Limit), Used: int64(s.Limit - s.Remaining), Remaining: int64(s.Remaining), ResetAt: s.ResetAt, ReleaseAt: s.ReleaseAt,
	}
	var all [1]policy
	all[0].set(`, "failed-attempts"`, answers.MinuteSeconds, &used, x.now, 0)
	x.describe(all[:], &all[0])
	return max(1, seconds(all[0].release))
}

// items are the names of policies as items of a list, with the comma before them.
var items = func() (items [quota.Policies]string) {
	for p := range quota.None {
		items[p] = `, "` + p.String() + `"`
	}
	return items
}()

// policy is a limit as responses show it.
type policy struct {
	item   string // one of items
	window int64  // its length in seconds

	limit, used, remaining int64

	resetAt instant.Millis
	release time.Duration // until it admits more
}

// set sets the state of a policy at an instant of the clock that decides. A ban admits nothing until it ends, whatever is left.
func (p *policy) set(item string, window int64, u *quota.Usage, at instant.Millis, banned time.Duration) {
	p.item, p.window = item, window
	p.limit, p.used, p.remaining, p.resetAt, p.release = u.Limit, u.Used, u.Remaining, u.ResetAt, u.ReleaseAt.Sub(at)
	if u.RetryAt != 0 {
		p.release = max(u.RetryAt.Sub(at), 1)
	}
	if banned > 0 {
		if p.remaining > 0 {
			p.remaining, p.release = 0, 0
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
		text = strconv.AppendInt(append(text, ";w="...), p.window, 10)
	}
	x.addList(namePolicies, text)
	for i := range all {
		p := &all[i]
		text = strconv.AppendInt(append(append(text, p.item...), ";r="...), p.remaining, 10)
		text = strconv.AppendInt(append(text, ";t="...), seconds(p.release), 10)
	}
	x.addList(nameStates, text)
	name := tight.item[len(`, "`) : len(tight.item)-1]
	x.limited.Policy, x.limited.Limit, x.limited.Used, x.limited.ResetAt = name, tight.limit, tight.used, resetAt
}

// addList adds a field whose items were appended to x.text, without the comma before the first one.
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
