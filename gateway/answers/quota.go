package answers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"petgate/gateway/directory"
	"petgate/shared/api"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/sharded"
)

// The lengths of windows, in seconds.
const (
	minuteSeconds = 60
	daySeconds    = 86400
)

// window returns the length of a policy's window, in seconds. That of a month depends on the month.
func window(p quota.Policy, u *quota.Usage, monthStarts uint8) int64 {
	switch p {
	case quota.Minute, quota.KeyMinute:
		return minuteSeconds
	case quota.Month:
		ends := u.ResetAt.Seconds() / daySeconds
		const longerThanAny = 32 // days: this many before its end, the month has not begun
		begins := quota.MonthEnd(ends-longerThanAny, monthStarts)
		return (ends - begins) * daySeconds
	}
	return daySeconds
}

// Quota is what is known of a key and of its tenant's quota.
type Quota struct {
	Entry       *directory.Entry
	Hint        string // of the token
	Verdict     quota.Verdict
	Ban         api.Ban // the entry's
	StrikesLeft int     // until a ban; 0: keys are not banned for strikes
	Now         instant.Millis
}

var jsonFields = fieldsOf("Content-Type", "application/json")

// Report returns the answer to a request for the quota. Its figures are those of the rate-limit
// headers.
func (q *Quota) Report() *Answer {
	e := q.Entry
	r := report{
		Plan:     e.Plan,
		Tenant:   e.Tenant,
		Degraded: q.Verdict.Degraded,
		Policies: []policy{},
		Key: reportedKey{
			ID:          e.Key,
			Name:        e.Name,
			Hint:        q.Hint,
			Environment: e.Environment.String(),
			Scopes:      e.Scopes.Names(),
			ExpiresAt:   roundUp(e.ExpiresAt),
			EndsAt:      roundUp(e.GraceEndsAt),
		},
		Ban:       json.RawMessage("null"),
		Suspended: e.Suspended,
	}
	for p := range quota.None {
		if u := &q.Verdict.Usages[p]; u.Limit != 0 {
			r.Policies = append(r.Policies, q.policy(p, u))
		}
	}
	if !e.ReplacedBy.IsZero() {
		r.Key.ReplacedBy = &e.ReplacedBy
	}
	if e.BannedUntil > q.Now {
		r.Ban = q.Ban.AppendJSON(nil)
	}
	if q.StrikesLeft > 0 {
		r.StrikesUntilBan = &q.StrikesLeft
	}
	return &Answer{Outcome: outcomeReport, Status: http.StatusOK, Fields: jsonFields, Body: encode(r)}
}

type report struct {
	Plan            string          `json:"plan"`
	Tenant          id.Tenant       `json:"tenant"`
	Degraded        bool            `json:"degraded"`
	Policies        []policy        `json:"policies"`
	Key             reportedKey     `json:"key"`
	Ban             json.RawMessage `json:"ban"`
	Suspended       bool            `json:"suspended"`
	StrikesUntilBan *int            `json:"strikesUntilBan"` // null: keys are not banned for strikes
}

type policy struct {
	Name      string     `json:"name"`
	Limit     int64      `json:"limit"`
	Used      int64      `json:"used"`
	Remaining int64      `json:"remaining"`
	Window    int64      `json:"window"`
	ResetAt   *time.Time `json:"resetAt"`
	NextAt    *time.Time `json:"nextAt"`
}

type reportedKey struct {
	ID          id.Key     `json:"id"`
	Name        string     `json:"name"`
	Hint        string     `json:"hint"`
	Environment string     `json:"environment"`
	Scopes      []string   `json:"scopes"`
	ExpiresAt   *time.Time `json:"expiresAt"`
	EndsAt      *time.Time `json:"endsAt"`
	ReplacedBy  *id.Key    `json:"replacedBy"`
}

func (q *Quota) policy(of quota.Policy, u *quota.Usage) policy {
	p := policy{
		Name:      of.String(),
		Limit:     u.Limit,
		Used:      u.Used,
		Remaining: u.Remaining,
		Window:    window(of, u, q.Entry.MonthStarts),
		ResetAt:   roundUp(max(u.ResetAt, q.Now)),
	}
	if u.RetryAt != 0 {
		// Like Retry-After, a time from now, because the clock that decides may differ.
		p.NextAt = roundUp(q.Now + max(0, u.RetryAt-q.Verdict.At))
	}
	return p
}

// roundUp returns an instant, rounded up to a second like the headers, or nil for 0.
func roundUp(at instant.Millis) *time.Time {
	if at == 0 {
		return nil
	}
	t := (at + 999).Time().Truncate(time.Second)
	return &t
}

func encode(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("bug: an answer cannot be encoded: %v", err))
	}
	return text
}

// Polls limits the reports of each key: one a second, and up to ten at once.
type Polls struct{ buckets *sharded.Buckets[id.Key] }

const (
	pollInterval   = time.Second
	pollBurst      = 10
	pollRecordsMax = 1 << 16 // at about 60 bytes

	pollSeconds = pollBurst // the time after which a key has its whole burst again
)

// NewPolls returns the limit for keys that have asked nothing yet.
func NewPolls() Polls {
	last := func(k id.Key) byte { return k[len(k)-1] } // an ID is random
	return Polls{sharded.NewBuckets(pollBurst, pollInterval, pollRecordsMax, last)}
}

// Allow reports whether k may have a report at now. If not, it returns the state of the limit.
func (p Polls) Allow(k id.Key, now instant.Millis) (quota.Usage, bool) {
	fullAt, isAllowed := p.buckets.Take(k, now.Time())
	if isAllowed {
		return quota.Usage{}, true
	}
	return quota.Usage{
		Limit:   pollBurst,
		Used:    pollBurst,
		ResetAt: instant.Of(fullAt),
		RetryAt: instant.Of(p.buckets.Since(fullAt, 1)),
	}, false
}
