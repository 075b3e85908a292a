package answers

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"petgate/gateway/http1"
	"petgate/shared/api"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// Names of the fields that show limits. They are written unchanged.
var (
	nameLimit     = []byte("X-RateLimit-Limit")
	nameRemaining = []byte("X-RateLimit-Remaining")
	nameReset     = []byte("X-RateLimit-Reset")
	namePolicies  = []byte("RateLimit-Policy")
	nameStates    = []byte("RateLimit")
	nameCost      = []byte("X-Request-Cost")
)

// Limits is what is known of the limits that a response shows.
type Limits struct {
	Now         instant.Millis
	Verdict     *quota.Verdict // of the key; nil: the request has none
	MonthStarts uint8          // the key's
	BanEndsAt   instant.Millis // the key's; 0: it is not banned
	Cost        int64          // of the request
	Polls       *quota.Usage   // the state of the limit of reports, if it refuses; nil: it does not
	Attempts    quota.Usage    // the state of the address's failed attempts, without a key
}

// Add adds the fields of the limits to a response's. It fills in the details of a 429, and returns
// the seconds after which a refused client may try again.
func (l *Limits) Add(to *http1.FieldList, limited *api.Limited) (wait int64) {
	var all [quota.Policies + 1]limit // set in place: copies would cost as much as the rest
	shown, tight := 1, &all[0]
	if l.Verdict == nil {
		all[0].set(`, "failed-attempts"`, minuteSeconds, &l.Attempts, l.Now, 0)
	} else {
		shown, tight = l.choose(&all)
	}
	l.describe(to, all[:shown], tight, limited)
	if l.Cost > 1 {
		to.AddInt(nameCost, l.Cost)
	}
	return max(1, seconds(tight.release))
}

// choose sets the limits of a key, and returns how many are shown, and the tight one: the policy
// that refuses. If none does, it is the one with the fewest units remaining; of equals, the
// tenant's before the key's, and the longer.
func (l *Limits) choose(all *[quota.Policies + 1]limit) (shown int, tight *limit) {
	v, banned := l.Verdict, max(l.BanEndsAt.Sub(l.Now), 0)
	least, refuses := int64(math.MaxInt64), v.Violated()
	for p := range quota.None {
		u := &v.Usages[p]
		if u.Limit == 0 && p != refuses {
			continue
		}
		all[shown].set(items[p], window(p, u, l.MonthStarts), u, v.At, banned)
		if p == refuses || refuses == quota.None && (u.Remaining < least || u.Remaining == least && !p.IsOfKey()) {
			tight, least = &all[shown], u.Remaining
		}
		shown++
	}
	if tight == nil { // without any limit, the minute's is 0
		tight, shown = &all[0], 1
		tight.set(items[quota.Minute], minuteSeconds, &v.Usages[quota.Minute], v.At, banned)
	}
	if l.Polls != nil {
		tight = &all[shown]
		tight.set(`, "quota-polling"`, pollSeconds, l.Polls, l.Now, 0)
		shown++
	}
	if banned > 0 {
		tight.resetAt = l.BanEndsAt
	}
	return shown, tight
}

// items are the names of policies as items of a list, with the comma before them.
var items = func() (items [quota.Policies]string) {
	for p := range quota.None {
		items[p] = `, "` + p.String() + `"`
	}
	return items
}()

// limit is a policy as responses show it.
type limit struct {
	item   string // one of items
	window int64  // its length in seconds

	limit, used, remaining int64

	resetAt instant.Millis
	release time.Duration // until it admits more
}

// set sets the state of a policy at an instant of the clock that decides. A ban admits nothing
// until it ends, whatever is left.
func (p *limit) set(item string, window int64, u *quota.Usage, at instant.Millis, banned time.Duration) {
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

// describe writes the state of policies: of all of them in the fields of the IETF draft
// (draft-ietf-httpapi-ratelimit-headers), and of the tight one in the older fields and in the
// details of a 429.
func (l *Limits) describe(to *http1.FieldList, all []limit, tight *limit, limited *api.Limited) {
	resetAt := max(tight.resetAt, l.Now)
	to.AddInt(nameLimit, tight.limit)
	to.AddInt(nameRemaining, tight.remaining)
	to.AddInt(nameReset, resetAt.Seconds())
	text := to.Text
	for i := range all {
		p := &all[i]
		text = strconv.AppendInt(append(append(text, p.item...), ";q="...), p.limit, 10)
		text = strconv.AppendInt(append(text, ";w="...), p.window, 10)
	}
	addList(to, namePolicies, text)
	for i := range all {
		p := &all[i]
		text = strconv.AppendInt(append(append(text, p.item...), ";r="...), p.remaining, 10)
		text = strconv.AppendInt(append(text, ";t="...), seconds(p.release), 10)
	}
	addList(to, nameStates, text)
	name := tight.item[len(`, "`) : len(tight.item)-1]
	limited.Policy, limited.Limit, limited.Used, limited.ResetAt = name, tight.limit, tight.used, resetAt
}

// addList adds a field whose items were appended to the text, without the comma before the first
// one.
func addList(to *http1.FieldList, name, text []byte) {
	to.Add(name, text[len(to.Text)+len(", "):])
	to.Text = text
}

// RetryAfter returns the seconds of a Retry-After with seconds or a date (RFC 9110, section
// 10.2.3), or else 0.
func RetryAfter(value []byte, now instant.Millis) int64 {
	if n, ok := http1.ParseDigits(value); ok {
		return n
	}
	if at, err := http.ParseTime(string(value)); err == nil {
		return seconds(instant.Of(at).Sub(now))
	}
	return 0
}

// seconds rounds up: a client that waits too long is admitted, but one that comes too early is
// refused. A negative wait gives 0.
func seconds(wait time.Duration) int64 { return int64((max(wait, 0) + time.Second - 1) / time.Second) }
