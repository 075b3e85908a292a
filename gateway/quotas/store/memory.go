package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

const (
	shards = 64
	// sweepFrom is how many records a shard holds before it first looks for expired ones. It looks again each time that its
	// size has doubled, so that a decision costs O(1) on average and expired records never outnumber live ones by much.
	sweepFrom = 64
)

// Memory is the store of one process. It applies the rule to records in shards, each with its own lock.
type Memory struct {
	rule   quota.Rule
	clock  func() time.Time
	shards [shards]shard
}

type shard struct {
	sync.Mutex
	records map[id.Tenant]*kept
	sweepAt int
	era     uint64 // counts dumps: changes are marked with it
}

type kept struct {
	quota.Record
	changed uint64 // the era of the last change
}

// NewMemory returns an empty store that decides by this rule and clock.
func NewMemory(rule quota.Rule, clock func() time.Time) *Memory {
	m := &Memory{rule: rule, clock: clock}
	for i := range m.shards {
		m.shards[i] = shard{records: make(map[id.Tenant]*kept), sweepAt: sweepFrom, era: 1}
	}
	return m
}

// A tenant's ID is random: any of its bytes spreads tenants evenly.
func (m *Memory) shard(t id.Tenant) *shard { return &m.shards[t[len(t)-1]%shards] }

// Decide never fails.
func (m *Memory) Decide(_ context.Context, demands []Demand, results []Result) error {
	now := m.Now()
	for i := range demands {
		results[i] = Result{Verdict: m.Take(now, &demands[i])}
	}
	return nil
}

// Take decides one demand at the instant now.
func (m *Memory) Take(now instant.Millis, d *Demand) quota.Verdict {
	s := m.shard(d.Tenant)
	s.Lock()
	defer s.Unlock()
	rec := s.records[d.Tenant]
	if rec == nil {
		var first quota.Record
		v := m.rule.Take(&first, now, d.Quota())
		if !first.IsUnused() {
			s.add(m.rule, now, d.Tenant, &kept{Record: first, changed: s.era})
		}
		return v
	}
	v := m.rule.Take(&rec.Record, now, d.Quota())
	if v.Granted > 0 || d.Spent != (quota.Spent{}) || d.Known.Used > 0 {
		rec.changed = s.era // a demand that only reads need not be saved
	}
	return v
}

// add stores a record. If the shard has grown enough, it first drops expired records.
func (s *shard) add(rule quota.Rule, now instant.Millis, t id.Tenant, rec *kept) {
	if len(s.records) >= s.sweepAt {
		s.sweep(rule, now)
		s.sweepAt = max(sweepFrom, 2*len(s.records))
	}
	s.records[t] = rec
}

func (s *shard) sweep(rule quota.Rule, now instant.Millis) {
	for t, rec := range s.records {
		if now >= rule.ExpiresAt(&rec.Record) {
			delete(s.records, t)
		}
	}
}

// Now returns the current instant of the store's clock.
func (m *Memory) Now() instant.Millis { return instant.Of(m.clock()) }

// Reset never fails.
func (m *Memory) Reset(_ context.Context, r Reset) error {
	m.Forget(r.Tenant)
	return nil
}

// Forget drops the tenant's record.
func (m *Memory) Forget(t id.Tenant) {
	s := m.shard(t)
	s.Lock()
	defer s.Unlock()
	if rec := s.records[t]; rec != nil {
		// The record is not deleted, because the next dump must say that the tenant has no use.
		*rec = kept{changed: s.era}
		m.rule.Take(&rec.Record, m.Now(), quota.Demand{})
	}
}

// Saved is a tenant's quota record as it survives a restart.
type Saved struct {
	Tenant id.Tenant
	Record []byte
}

// Dump returns the records that changed after an earlier dump, and the mark of this dump. The argument since is the mark of
// the earlier dump; if it is 0, Dump returns all records. If the caller could not save a dump, it passes the earlier mark
// again. Dump also drops records whose day and window are over. It locks one shard at a time, so decisions continue
// meanwhile.
func (m *Memory) Dump(since uint64) (changed []Saved, mark uint64) {
	now := m.Now()
	for i := range m.shards {
		s := &m.shards[i]
		s.Lock()
		for t, rec := range s.records {
			if rec.changed > since {
				changed = append(changed, Saved{Tenant: t, Record: m.rule.Append(make([]byte, 0, m.rule.RecordBytes()), &rec.Record)})
			}
		}
		s.sweep(m.rule, now)
		mark = s.era
		s.era++
		s.Unlock()
	}
	return changed, mark
}

// Load restores saved records. The error names the records that could not be read; their tenants start without use.
func (m *Memory) Load(saved []Saved) error {
	now := m.Now()
	var unread []error
	for _, one := range saved {
		rec, err := m.rule.Decode(one.Record)
		if err != nil {
			unread = append(unread, fmt.Errorf("store: saved quota of %s: %w", one.Tenant, err))
			continue
		}
		if now >= m.rule.ExpiresAt(&rec) {
			continue
		}
		s := m.shard(one.Tenant)
		s.Lock()
		s.add(m.rule, now, one.Tenant, &kept{Record: rec})
		s.Unlock()
	}
	return errors.Join(unread...)
}
