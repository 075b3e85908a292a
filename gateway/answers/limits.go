package answers

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"petgate/gateway/http1"
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

// Decisive is the limit that decides when a client may call again: it refuses the request, or it is
// the one of which least is left.
type Decisive struct {
	Policy      string
	Limit, Used int64
	ResetAt     instant.Millis
	RetryAfter  int64 // the seconds after which a refused client may try again
}

// AddTo adds the fields of the limits to a response's, and returns the limit that decides.
func (l *Limits) AddTo(to *http1.FieldList) Decisive {
	var all [quota.Policies + 1]limit // set in place: copies would cost as much as the rest
	shown, decisive := 1, &all[0]
	if l.Verdict == nil {
		decisive.set(nameAttempts, minuteSeconds, &l.Attempts, l.Now)
	} else {
		shown, decisive = l.ofKey(&all)
	}
	resetAt := max(decisive.resetAt, l.Now)
	to.AddInt(nameLimit, decisive.limit)
	to.AddInt(nameRemaining, decisive.remaining)
	to.AddInt(nameReset, resetAt.Seconds())
	addDraft(to, all[:shown])
	if l.Cost > 1 {
		to.AddInt(nameCost, l.Cost)
	}
	return Decisive{
		Policy:     decisive.name,
		Limit:      decisive.limit,
		Used:       decisive.used,
		ResetAt:    resetAt,
		RetryAfter: max(1, seconds(decisive.release)),
	}
}

// ofKey sets the limits of a key. It returns how many are shown, and the one that decides: the
// policy that refuses. If none does, it is the one with the fewest units remaining; of equals, the
// tenant's before the key's, and the longer.
func (l *Limits) ofKey(all *[quota.Policies + 1]limit) (shown int, decisive *limit) {
	v := l.Verdict
	refuses := v.Violated()
	least := int64(math.MaxInt64)
	for p := range quota.None {
		u := &v.Usages[p]
		if u.Limit == 0 && p != refuses {
			continue
		}
		one := &all[shown]
		one.set(p.String(), window(p, u, l.MonthStarts), u, v.At)
		shown++
		hasLess := u.Remaining < least || u.Remaining == least && !p.IsOfKey()
		if p == refuses || refuses == quota.None && hasLess {
			decisive, least = one, u.Remaining
		}
	}
	if decisive == nil { // without any limit, the minute's is 0
		shown, decisive = 1, &all[0]
		decisive.set(quota.Minute.String(), minuteSeconds, &v.Usages[quota.Minute], v.At)
	}
	if banned := l.BanEndsAt.Sub(l.Now); banned > 0 {
		for i := range all[:shown] {
			all[i].ban(banned)
		}
		decisive.resetAt = l.BanEndsAt
	}
	if l.Polls != nil {
		decisive = &all[shown]
		decisive.set(namePolls, pollSeconds, l.Polls, l.Now)
		shown++
	}
	return shown, decisive
}

// Names of the limits that are no policies.
const (
	nameAttempts = "failed-attempts"
	namePolls    = "quota-polling"
)

// limit is a policy as responses show it.
type limit struct {
	name   string
	window int64 // its length in seconds

	limit, used, remaining int64

	resetAt instant.Millis
	release time.Duration // until it admits more
}

// set sets the state of a policy at an instant of the clock that decides.
func (p *limit) set(name string, window int64, u *quota.Usage, at instant.Millis) {
	p.name, p.window = name, window
	p.limit, p.used, p.remaining = u.Limit, u.Used, u.Remaining
	p.resetAt, p.release = u.ResetAt, u.ReleaseAt.Sub(at)
	if u.RetryAt != 0 {
		p.release = max(u.RetryAt.Sub(at), 1)
	}
}

// ban changes the state of a policy: a ban of this length admits nothing until it ends, whatever is
// left.
func (p *limit) ban(length time.Duration) {
	if p.remaining > 0 {
		p.remaining, p.release = 0, 0
	}
	p.release = max(p.release, length)
}

// addDraft adds the fields of the IETF draft (draft-ietf-httpapi-ratelimit-headers): they list all
// policies.
func addDraft(to *http1.FieldList, all []limit) {
	text := to.Text
	for i := range all {
		text = appendItem(text, i, all[i].name)
		text = append(text, ";q="...)
		text = strconv.AppendInt(text, all[i].limit, 10)
		text = append(text, ";w="...)
		text = strconv.AppendInt(text, all[i].window, 10)
	}
	to.AddText(namePolicies, text)
	text = to.Text
	for i := range all {
		text = appendItem(text, i, all[i].name)
		text = append(text, ";r="...)
		text = strconv.AppendInt(text, all[i].remaining, 10)
		text = append(text, ";t="...)
		text = strconv.AppendInt(text, seconds(all[i].release), 10)
	}
	to.AddText(nameStates, text)
}

// appendItem appends the name of an item of a list, with a comma before it if it is not the first.
func appendItem(text []byte, i int, name string) []byte {
	if i > 0 {
		text = append(text, ", "...)
	}
	text = append(text, '"')
	text = append(text, name...)
	return append(text, '"')
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
