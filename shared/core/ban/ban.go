// Package ban decides when a key that ignores Retry-After is banned, and for how long.
//
// A 429 promises an instant: the one at which its Retry-After ends. A request that is refused before that instant, and at
// least Rule.Grace after the 429, is a strike. A key that gets Rule.After strikes within Rule.Within is banned for
// Rule.For. If a ban begins less than Rule.Memory after the previous ban began, it lasts twice as long as that one, up to
// Rule.Max.
//
// Several workers may share one key, and the gateway cannot tell them apart. Each receives its own promise. A worker that
// waited can therefore arrive before the instant that was promised to another worker. So one refusal is
// excused for every promised instant that has passed. A worker that waits always has such an excuse and is never struck,
// however many workers there are. A worker that does not wait has none. An unused excuse expires after one to two times Rule.Within.
//
// Everything here is pure: time is an argument. A Record is not safe for concurrent use.
package ban

import (
	"math"
	"time"

	"petgate/shared/core/instant"
)

// buckets is the number of time slots in Within. A strike is forgotten up to one slot early and never late.
const buckets = 15

// Rule is a ban schedule. The zero Rule never bans.
type Rule struct {
	After  int           // strikes within Within that lead to a ban; 0 = off, at most 65,535
	Within time.Duration // how long a strike counts
	For    time.Duration // length of the first ban
	Max    time.Duration // no ban is longer
	Memory time.Duration // a ban that begins this soon after the last one began lasts twice as long as that one
	Grace  time.Duration // a request that arrives so soon after a 429 may have been sent before the client read it
}

// Product is the schedule that the documentation promises.
var Product = Rule{
	After: 30, Within: time.Minute, For: time.Minute, Max: time.Hour, Memory: 24 * time.Hour, Grace: time.Second,
}

// Record is the state of one key at one gateway. It has no pointers. The zero Record is a key without refusals.
type Record struct {
	strikes [buckets]uint16 // ring of strikes per slot
	slot    int64           // the latest slot of the ring

	waiting  uint32         // promises that are not due yet
	refused  instant.Millis // when the first of them was given
	dueAt    instant.Millis // when the earliest of them is due; then all count as due: an extra excuse does no harm
	excuses  uint32         // promises that came due since turnedAt and are unused
	older    uint32         // unused excuses from the period before turnedAt
	turnedAt instant.Millis

	bannedAt  instant.Millis // when the last ban began, 0 = never
	bannedFor time.Duration  // its length
	seenAt    instant.Millis // the last call
}

// Outcome is the result of one refusal.
type Outcome struct {
	isStrike        bool           // the request did not wait
	StrikesUntilBan int            // at most this many more strikes lead to a ban; 0 if this one led to a ban, or the rule is off
	BannedUntil     instant.Millis // the end of the ban that begins with this refusal; 0: none begins
}

// Refused records a 429 of the quotas, given at now. promised is the instant at which its Retry-After ends. Refusals because
// of a ban are not recorded: they neither count nor extend the ban.
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
		out.isStrike = true
		bucket := &rec.strikes[rec.slot%buckets]
		*bucket += uint16(min(1, math.MaxUint16-*bucket))
	}
	total := rec.total()
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

// StrikesUntilBan returns how many strikes after now lead to a ban, at most. It is 0 if the rule is off. It changes nothing.
func (r Rule) StrikesUntilBan(rec Record, now instant.Millis) int {
	r.age(&rec, now)
	return max(0, r.After-rec.total())
}

// Served records that an admitted request of the key got its response at now. Its worker cannot know of the 429s that
// other workers received in the meantime. If a promise is in force, the response therefore excuses one refusal. Otherwise
// a worker whose responses take longer than Grace could be struck.
func (r Rule) Served(rec *Record, now instant.Millis) {
	if r.age(rec, now); rec.waiting > 0 {
		rec.excuses = increment(rec.excuses)
	}
}

// Banned records a ban that another gateway imposed, or this one before a restart. It makes the next ban longer.
func (r Rule) Banned(rec *Record, began, until instant.Millis) {
	if began > rec.bannedAt {
		rec.bannedAt, rec.bannedFor = began, until.Sub(began)
	}
}

// Idle reports whether rec can be dropped at now: no promise is in force, no strike counts, no ban is remembered.
func (r Rule) Idle(rec *Record, now instant.Millis) bool {
	return now > rec.dueAt.Add(2*r.Within) && now > rec.seenAt.Add(2*r.Within) &&
		(rec.bannedAt == 0 || now > rec.bannedAt.Add(r.Memory))
}

// total is the number of strikes that count.
func (rec *Record) total() (n int) {
	for _, strikes := range rec.strikes {
		n += int(strikes)
	}
	return n
}

// ban begins a ban and clears strikes, promises and excuses.
func (r Rule) ban(rec *Record, now instant.Millis) instant.Millis {
	length := r.For
	if rec.bannedAt != 0 && now.Sub(rec.bannedAt) < r.Memory {
		length = max(2*rec.bannedFor, r.For)
	}
	length = min(length, r.Max)
	*rec = Record{slot: rec.slot, turnedAt: now, seenAt: now, bannedAt: now, bannedFor: length}
	return now.Add(length)
}

// age updates rec to now: it drops expired strikes and excuses and turns due promises into excuses. A clock that steps back
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
