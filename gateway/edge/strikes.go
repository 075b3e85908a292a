package edge

import (
	"sync"

	"petgate/shared/core/ban"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

// strikes has a small record for each key that this gateway refused. The number of records is bounded.
type strikes struct {
	rule   ban.Rule
	shards [strikeShards]strikeShard
}

const (
	strikeShards = 64
	// strikeRecordsMax bounds a shard; all shards together have at most 262,144 records. Only keys over their quota have
	// one. If there are more such keys, some records are dropped, and those keys start again without strikes.
	strikeRecordsMax = 4096
)

type strikeShard struct {
	sync.Mutex
	records map[id.Key]*strikeRecord
}

type strikeRecord struct {
	ban.Record
	bannedUntil instant.Millis // the end of the last ban in Record
}

func newStrikes(rule ban.Rule) *strikes {
	s := &strikes{rule: rule}
	for i := range s.shards {
		s.shards[i].records = make(map[id.Key]*strikeRecord)
	}
	return s
}

// A key's ID is random, so any of its bytes spreads keys evenly.
func (s *strikes) shard(k id.Key) *strikeShard { return &s.shards[k[len(k)-1]%strikeShards] }

// refused records a refusal of k by a quota.
func (s *strikes) refused(k id.Key, now, promised instant.Millis) ban.Outcome {
	shard := s.shard(k)
	shard.Lock()
	defer shard.Unlock()
	rec := shard.record(s.rule, k, now)
	out := s.rule.Refused(&rec.Record, now, promised)
	if out.BannedUntil != 0 {
		rec.bannedUntil = out.BannedUntil
	}
	return out
}

// banned records a ban of k by any gateway, so that the next ban is longer. The length of this ban is not known here.
// banned assumes the shortest length in the schedule that reaches from now to until.
func (s *strikes) banned(k id.Key, now, until instant.Millis) {
	if s.rule.After <= 0 {
		return
	}
	shard := s.shard(k)
	shard.Lock()
	defer shard.Unlock()
	rec := shard.record(s.rule, k, now)
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

// record returns the record of k and creates it if there is none.
func (s *strikeShard) record(rule ban.Rule, k id.Key, now instant.Millis) *strikeRecord {
	rec := s.records[k]
	if rec == nil {
		if len(s.records) >= strikeRecordsMax {
			s.sweep(rule, now)
		}
		rec = &strikeRecord{}
		s.records[k] = rec
	}
	return rec
}

// left returns how many more strikes lead to a ban of k, at most.
func (s *strikes) left(k id.Key, now instant.Millis) int {
	shard := s.shard(k)
	shard.Lock()
	defer shard.Unlock()
	if rec := shard.records[k]; rec != nil {
		return s.rule.StrikesUntilBan(rec.Record, now)
	}
	return s.rule.StrikesUntilBan(ban.Record{}, now)
}

// served records that an admitted request of k got its response.
func (s *strikes) served(k id.Key, now instant.Millis) {
	shard := s.shard(k)
	shard.Lock()
	if rec := shard.records[k]; rec != nil {
		s.rule.Served(&rec.Record, now)
	}
	shard.Unlock()
}

// sweep makes room: it drops records that have no effect any longer. If that leaves the shard nearly full, it drops
// arbitrary records until a sixteenth is free. Otherwise each new key would scan the whole shard.
func (s *strikeShard) sweep(rule ban.Rule, now instant.Millis) {
	for k, rec := range s.records {
		if rule.Idle(&rec.Record, now) {
			delete(s.records, k)
		}
	}
	for k := range s.records {
		if len(s.records) <= strikeRecordsMax-strikeRecordsMax/16 {
			return
		}
		delete(s.records, k)
	}
}
