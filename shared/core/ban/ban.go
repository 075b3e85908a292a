// Package ban decides when a key that ignores Retry-After is banned, and for how long.
//
// A 429 promises its caller an instant: the end of its Retry-After. If a request of that caller is
// refused before then, and at least Rule.Grace after the 429, it is a strike. A caller is a
// connection that was promised something. A strike counts for the time Rule.Within. A key with
// Rule.After strikes that count is banned.
//
// If a connection closes, its promise stays with its address: the next refused connection from
// there counts as its caller. All clients at an address share such strikes. So a ban takes more of
// them if the minute's limit is larger than Rule.After: as many as that limit.
//
// Threads may share connections, and clients behind one address may open a new one for each
// request. Each comes back when it was told, but perhaps on another connection. So an address has
// one excuse for each promised instant that has passed, and an excuse covers one refusal. Clients
// that wait cause at most one strike each. An unused excuse expires after one to two times
// Rule.Within.
//
// A ban that begins within Rule.Memory of the beginning of the last one lasts twice as long as that
// one, up to Rule.Max.
//
// Everything here is pure: time is an argument. A Record, Callers and a Promise are not safe for
// concurrent use.
package ban

import (
	"time"

	"petgate/shared/core/instant"
)

// buckets is the number of time slots in Within. A strike is forgotten up to one slot early and
// never late.
const buckets = 15

// Rule is a ban schedule. The zero Rule never bans.
type Rule struct {
	After  int           // so many own strikes ban a key; 0 = off, at most 65,535
	Within time.Duration // how long a strike counts
	For    time.Duration // length of the first ban
	Max    time.Duration // no ban is longer
	Memory time.Duration // for how long the next ban is twice as long as the last one, from its beginning
	Grace  time.Duration // a request so soon after a 429 may have been sent before the client read it
}

// Product is the schedule that the documentation promises.
var Product = Rule{
	After: 30, Within: time.Minute, For: time.Minute, Max: time.Hour, Memory: 24 * time.Hour, Grace: time.Second,
}

// Promise is what one connection was promised. The zero Promise is nothing.
type Promise struct {
	since instant.Millis // when the first of the 429s was given for which it has not waited
	until instant.Millis // what the last 429 promised
}

// Callers is the state of one key at one client address and one gateway. The zero Callers have had
// no refusals.
type Callers struct {
	// left is the promise of all connections that have closed: from their first 429 to the latest
	// instant that was promised.
	left    Promise
	leavers int // how many such connections have not come back

	waiting int // promises that are not due yet
	// dueAt is when the earliest of them is due. Then all count as due: an extra excuse does no
	// harm.
	dueAt         instant.Millis
	excuses       int // promises that came due since turnedAt and are unused
	older         int // unused excuses from the period before turnedAt
	turnedAt      instant.Millis
	lastRefusedAt instant.Millis
}

// Record has the strikes and the last ban of one key at one gateway. It has no pointers. The zero
// Record is a key without strikes.
type Record struct {
	strikes [buckets]strikes // ring, per slot
	slot    int64            // the latest slot of the ring

	bannedAt  instant.Millis // when the last ban began, 0 = never
	bannedFor time.Duration  // its length
	seenAt    instant.Millis // the last call
}

type strikes struct{ own, shared uint32 }

// Outcome is the result of one refusal.
type Outcome struct {
	StrikesUntilBan int            // so many more strikes lead to a ban, at most; 0: this one did, or the rule is off
	BannedUntil     instant.Millis // the end of the ban that begins with this refusal; 0: none begins
}

// Refused records a 429 of the quotas, given at now. promised is the instant at which its
// Retry-After ends, limit is how many requests the tenant has in a minute, and on is what the
// request's connection was promised. Refusals because of a ban are not recorded: they neither count
// nor extend the ban.
func (r Rule) Refused(rec *Record, c *Callers, on *Promise, limit int64, now, promised instant.Millis) Outcome {
	if r.After <= 0 {
		return Outcome{}
	}
	if c.lastRefusedAt <= rec.bannedAt { // the ban's Retry-After has replaced what was promised before it
		*c = Callers{}
	}
	if on.since <= rec.bannedAt {
		*on = Promise{}
	}
	r.age(c, now)
	r.turn(rec, now)
	c.lastRefusedAt = max(c.lastRefusedAt, now)
	isExcused, slot := c.useExcuse(), &rec.strikes[rec.slot%buckets]
	switch {
	case on.until != 0:
		if now < on.until && now >= on.since.Add(r.Grace) && !isExcused {
			slot.own++
		}
	case c.leavers > 0 && now >= c.left.since.Add(r.Grace):
		c.leavers--
		if !isExcused {
			slot.shared++
			*on = c.left
		}
	}
	left := r.left(rec, limit)
	if left == 0 {
		return Outcome{BannedUntil: r.ban(rec, now)}
	}
	if now >= on.until {
		on.since = now
	}
	on.until = promised
	if c.waiting == 0 || promised < c.dueAt {
		c.dueAt = promised
	}
	c.waiting++
	return Outcome{StrikesUntilBan: left}
}

// useExcuse uses an excuse, the oldest first, and reports whether there was one.
func (c *Callers) useExcuse() bool {
	switch {
	case c.older > 0:
		c.older--
	case c.excuses > 0:
		c.excuses--
	default:
		return false
	}
	return true
}

// Served records that an admitted request got its response at now. Its connection then has no
// promise to keep. The client's other threads and connections cannot know of the 429s that were
// given while they waited for a response. If a promise is in force, the response therefore excuses
// one refusal.
func (r Rule) Served(c *Callers, on *Promise, now instant.Millis) {
	*on = Promise{}
	r.age(c, now)
	if c.waiting > 0 {
		c.excuses++
	}
}

// Leave records that a connection with this promise has closed.
func (c *Callers) Leave(p Promise) {
	if p.until <= c.lastRefusedAt {
		return
	}
	if c.leavers == 0 {
		c.left = p
	}
	c.leavers++
	c.left = Promise{since: min(c.left.since, p.since), until: max(c.left.until, p.until)}
}

// age updates c to now: it drops expired excuses, turns due promises into excuses, and forgets
// those of closed connections. A clock that steps back changes nothing.
func (r Rule) age(c *Callers, now instant.Millis) {
	if now >= c.turnedAt.Add(r.Within) {
		c.older, c.excuses = c.excuses, 0
		if now >= c.turnedAt.Add(2*r.Within) {
			c.older = 0
		}
		c.turnedAt = now
	}
	if now >= c.dueAt {
		c.excuses += c.waiting
		c.waiting = 0
	}
	if now >= c.left.until {
		c.leavers = 0
	}
}

// Forgets reports whether c can be dropped at now: no promise is in force, and no excuse counts.
func (r Rule) Forgets(c *Callers, now instant.Millis) bool {
	return now > max(c.dueAt, c.left.until, c.lastRefusedAt).Add(2*r.Within)
}

// StrikesUntilBan returns how many strikes after now lead to a ban, at most. It is 0 if the rule is
// off. It changes nothing.
func (r Rule) StrikesUntilBan(rec Record, limit int64, now instant.Millis) int {
	r.turn(&rec, now)
	return r.left(&rec, limit)
}

// left is how many more shared strikes lead to a ban. An own strike counts as several, so that
// Rule.After own ones are enough.
func (r Rule) left(rec *Record, limit int64) int {
	after, enough := max(0, r.After), max(r.After, int(limit))
	own, shared := 0, 0
	for _, s := range rec.strikes {
		own += int(s.own)
		shared += int(s.shared)
	}
	if sum := own*enough + shared*after; sum < after*enough {
		return (after*enough - sum + after - 1) / after
	}
	return 0
}

// Banned records a ban that another gateway imposed, or this one before a restart. It makes the
// next ban longer.
func (r Rule) Banned(rec *Record, began, until instant.Millis) {
	if began > rec.bannedAt {
		rec.bannedAt, rec.bannedFor = began, until.Sub(began)
	}
}

// Idle reports whether rec can be dropped at now: no strike counts, no ban is remembered.
func (r Rule) Idle(rec *Record, now instant.Millis) bool {
	return now > rec.seenAt.Add(r.Within) && now > rec.bannedAt.Add(r.Memory)
}

// ban begins a ban and clears strikes.
func (r Rule) ban(rec *Record, now instant.Millis) instant.Millis {
	length := r.For
	if now.Sub(rec.bannedAt) < r.Memory {
		length = 2 * rec.bannedFor
	}
	length = min(length, r.Max)
	*rec = Record{bannedAt: now, bannedFor: length}
	return now.Add(length)
}

// turn drops the strikes that have expired at now. A clock that steps back changes nothing.
func (r Rule) turn(rec *Record, now instant.Millis) {
	rec.seenAt = max(rec.seenAt, now)
	width := max(1, r.Within.Milliseconds()/buckets)
	for slot := int64(now) / width; rec.slot < slot; {
		rec.slot = max(rec.slot+1, slot-buckets+1)
		rec.strikes[rec.slot%buckets] = strikes{}
	}
}
