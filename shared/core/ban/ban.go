// Package ban says when a key that keeps calling against its refusals is banned, and for how long.
//
// A strike is a refusal of a request that arrived at least Rule.Grace after an earlier 429 of the same key was answered
// and before the instant that this 429 promised. After strikes within Within ban the key for For; each further ban that
// begins within Memory of the one before lasts twice as long, up to Max.
//
// One key may be shared by many workers whom nobody can tell apart. Each of them is promised an instant of its own, and
// the later ones are promised later instants: so a worker that waited as told can arrive while another one's 429 is
// still in force. Therefore every promise that has come due excuses one refusal. As each worker that waits brings one
// such promise along for each time it comes back, none of them is ever struck, however many they are; one that does not
// wait has none due and is struck. An excuse that nobody used lapses Within to twice Within after it came due.
//
// Everything here is pure: time is an argument. A Record is not safe for concurrent use.
package ban

import (
	"math"
	"time"

	"petgate/shared/core/instant"
)

// buckets is how finely strikes are dated: one is forgotten at most Within/buckets early and never late.
const buckets = 15

// Rule is a ban schedule. The zero Rule never bans.
type Rule struct {
	After  int           // strikes within Within that lead to a ban; 0 = off, at most 65,535
	Within time.Duration // how long a strike counts
	For    time.Duration // length of the first ban
	Max    time.Duration // no ban is longer
	Memory time.Duration // a ban that begins this soon after the last one began lasts twice as long as that one
	Grace  time.Duration // what arrives this soon after a 429 may have been sent before it was read
}

// Product is the schedule that customers are told of.
var Product = Rule{
	After: 30, Within: time.Minute, For: time.Minute, Max: time.Hour, Memory: 24 * time.Hour, Grace: time.Second,
}

// Record is what one gateway remembers of one key. It holds no pointers; the zero Record has seen nothing.
type Record struct {
	strikes [buckets]uint16 // strikes by slot of Within/buckets, a ring
	slot    int64           // the latest slot that the ring holds

	waiting  uint32         // promises that are not due yet
	refused  instant.Millis // when the first of them was answered
	dueAt    instant.Millis // the earliest of them; when it comes due, all do: to excuse too much harms nobody
	excuses  uint32         // promises that came due since turnedAt, less those used
	older    uint32         // those of the turn before
	turnedAt instant.Millis

	bannedAt  instant.Millis // when the last ban began, 0 = never
	bannedFor time.Duration  // its length
	seenAt    instant.Millis // the last call
}

// Outcome is what one refusal led to.
type Outcome struct {
	Strike          bool           // the request was sent against a promise
	StrikesUntilBan int            // so many more strikes lead to a ban, at most; 0 when this one did or the rule is off
	BannedUntil     instant.Millis // the end of the ban that begins with this refusal; 0 = none begins
}

// Refused is told of every 429 that quotas give a key: now is when it is answered, promised the instant from which its
// Retry-After lets the client come back. It is not told of refusals by the ban itself, which neither extend it nor count.
func (r Rule) Refused(rec *Record, now, promised instant.Millis) Outcome {
	if r.After <= 0 {
		return Outcome{}
	}
	r.age(rec, now)
	var out Outcome
	switch {
	case rec.older > 0:
		rec.older--
	case rec.excuses > 0:
		rec.excuses--
	case rec.waiting > 0 && now >= rec.refused.Add(r.Grace):
		out.Strike = true
		bucket := &rec.strikes[rec.slot%buckets]
		*bucket += uint16(min(1, math.MaxUint16-*bucket))
	}
	total := 0
	for _, n := range rec.strikes {
		total += int(n)
	}
	if total >= min(r.After, math.MaxUint16) {
		out.BannedUntil = r.ban(rec, now)
		return out
	}
	out.StrikesUntilBan = r.After - total
	if promised <= now {
		rec.excuses = increment(rec.excuses)
		return out
	}
	if rec.waiting == 0 {
		rec.refused, rec.dueAt = now, promised
	}
	rec.waiting = increment(rec.waiting)
	rec.dueAt = min(rec.dueAt, promised)
	return out
}

// Served is told, for a key that has a record, when an admitted request is answered at now. Whoever sent it cannot know
// of the 429s that others were given meanwhile: if one is in force, it excuses one refusal. Without it, workers whose
// answers take longer than Grace would be struck for what they could not know.
func (r Rule) Served(rec *Record, now instant.Millis) {
	if r.age(rec, now); rec.waiting > 0 {
		rec.excuses = increment(rec.excuses)
	}
}

// Banned is told of a ban that another gateway imposed, or this one before a restart, so that the next one is longer.
func (r Rule) Banned(rec *Record, began, until instant.Millis) {
	if began > rec.bannedAt {
		rec.bannedAt, rec.bannedFor = began, until.Sub(began)
	}
}

// Idle reports whether forgetting rec at now changes nothing: no promise waits, no strike counts, no ban is remembered.
func (r Rule) Idle(rec *Record, now instant.Millis) bool {
	return now > rec.dueAt.Add(2*r.Within) && now > rec.seenAt.Add(2*r.Within) &&
		(rec.bannedAt == 0 || now > rec.bannedAt.Add(r.Memory))
}

// ban begins a ban: strikes, promises and excuses from before it are settled by it.
func (r Rule) ban(rec *Record, now instant.Millis) instant.Millis {
	length := r.For
	if rec.bannedAt != 0 && now.Sub(rec.bannedAt) < r.Memory {
		length = max(2*rec.bannedFor, r.For)
	}
	length = min(length, r.Max)
	*rec = Record{slot: rec.slot, turnedAt: now, seenAt: now, bannedAt: now, bannedFor: length}
	return now.Add(length)
}

// age brings rec to now: drops strikes and excuses that have lapsed and lets promises come due. A clock that steps back
// changes nothing.
func (r Rule) age(rec *Record, now instant.Millis) {
	rec.seenAt = max(rec.seenAt, now)
	width := max(1, r.Within.Milliseconds()/buckets)
	for slot := int64(now) / width; rec.slot < slot; {
		rec.slot = max(rec.slot+1, slot-buckets+1)
		rec.strikes[rec.slot%buckets] = 0
	}
	if now >= rec.turnedAt.Add(r.Within) {
		rec.older, rec.excuses = rec.excuses, 0
		if now >= rec.turnedAt.Add(2*r.Within) {
			rec.older = 0
		}
		rec.turnedAt = now
	}
	if rec.waiting > 0 && now >= rec.dueAt {
		rec.excuses = uint32(min(uint64(rec.excuses)+uint64(rec.waiting), math.MaxUint32))
		rec.waiting = 0
	}
}

func increment(n uint32) uint32 {
	if n == math.MaxUint32 {
		return n
	}
	return n + 1
}
