// Package strikes remembers the keys that were refused by a quota and did not wait, and says when they are banned.
package strikes

import (
	"petgate/shared/core/ban"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/sharded"
)

// Strikes has a small record for each key that this gateway refused. Its methods are safe for concurrent use. If the rule bans no
// key, they do nothing.
type Strikes struct {
	rule    ban.Rule
	records *sharded.Map[id.Key, *record]
}

// recordsMax bounds the records. Only keys over their quota have one. If there are more such keys, some records are dropped, and
// those keys start again without strikes.
const recordsMax = 1 << 18

type record struct {
	ban.Record
	bannedUntil instant.Millis // the end of the last ban in Record
}

// New returns strikes that follow this rule.
func New(rule ban.Rule) *Strikes {
	// A key's ID is random, so any of its bytes spreads keys evenly.
	return &Strikes{rule, sharded.New[id.Key, *record](recordsMax, func(k id.Key) byte { return k[len(k)-1] })}
}

// AreCounted reports whether the rule bans keys.
func (s *Strikes) AreCounted() bool { return s.rule.After > 0 }

// Refused records a refusal of k by a quota, with the promise that a request is admitted later. It must not be called if strikes are
// not counted.
func (s *Strikes) Refused(k id.Key, now, promised instant.Millis) ban.Outcome {
	shard := s.records.Lock(k)
	defer shard.Unlock()
	rec := s.record(shard, k, now)
	out := s.rule.Refused(&rec.Record, now, promised)
	if out.BannedUntil != 0 {
		rec.bannedUntil = out.BannedUntil
	}
	return out
}

// Banned records a ban of k by any gateway, so that the next ban is longer. The length of this ban is not known here: Banned assumes
// the shortest length in the schedule that reaches from now to until.
func (s *Strikes) Banned(k id.Key, now, until instant.Millis) {
	if !s.AreCounted() {
		return
	}
	shard := s.records.Lock(k)
	defer shard.Unlock()
	rec := s.record(shard, k, now)
	if rec.bannedUntil == until {
		return
	}
	rec.bannedUntil = until
	length := s.rule.For
	for length < s.rule.Max && until.Add(-length) > now {
		length = min(2*length, s.rule.Max)
	}
	s.rule.Banned(&rec.Record, until.Add(-length), until)
}

// record returns the record of k and creates it if there is none. The caller holds the shard's lock.
func (s *Strikes) record(shard *sharded.Shard[id.Key, *record], k id.Key, now instant.Millis) *record {
	rec := shard.Entries[k]
	if rec == nil {
		rec = &record{}
		shard.Put(k, rec, func(_ id.Key, old *record) bool { return s.rule.Idle(&old.Record, now) })
	}
	return rec
}

// Left returns how many more strikes lead to a ban of k, at most; 0 if strikes are not counted.
func (s *Strikes) Left(k id.Key, now instant.Millis) int {
	if !s.AreCounted() {
		return 0
	}
	shard := s.records.Lock(k)
	defer shard.Unlock()
	if rec := shard.Entries[k]; rec != nil {
		return s.rule.StrikesUntilBan(rec.Record, now)
	}
	return s.rule.StrikesUntilBan(ban.Record{}, now)
}

// Served records that an admitted request of k got its response.
func (s *Strikes) Served(k id.Key, now instant.Millis) {
	if !s.AreCounted() {
		return
	}
	shard := s.records.Lock(k)
	if rec := shard.Entries[k]; rec != nil {
		s.rule.Served(&rec.Record, now)
	}
	shard.Unlock()
}
