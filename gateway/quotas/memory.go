package quotas

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
	// sweepFrom is how many records a shard holds before it first looks for past ones. It looks again whenever it has
	// doubled since, so that looking costs a decision O(1) on average and past records never outnumber live ones by much.
	sweepFrom = 64
)

// memory is the backend of one process: the rule with a lock around each shard of its records.
type memory struct {
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

func newMemory(rule quota.Rule, clock func() time.Time) *memory {
	m := &memory{rule: rule, clock: clock}
	for i := range m.shards {
		m.shards[i] = shard{records: make(map[id.Tenant]*kept), sweepAt: sweepFrom, era: 1}
	}
	return m
}

// A tenant's ID is random: any of its bytes spreads tenants evenly.
func (m *memory) shard(t id.Tenant) *shard { return &m.shards[t[len(t)-1]%shards] }

func (m *memory) decide(_ context.Context, demands []demand, results []result) error {
	now := instant.Of(m.clock())
	for i := range demands {
		results[i] = result{Verdict: m.take(now, &demands[i])}
	}
	return nil
}

func (m *memory) take(now instant.Millis, d *demand) quota.Verdict {
	s := m.shard(d.Tenant)
	s.Lock()
	defer s.Unlock()
	rec := s.records[d.Tenant]
	if rec == nil {
		var first quota.Record
		v := m.rule.Take(&first, now, d.quota())
		if !first.IsUnused() {
			s.add(m.rule, now, d.Tenant, &kept{Record: first, changed: s.era})
		}
		return v
	}
	rec.changed = s.era
	return m.rule.Take(&rec.Record, now, d.quota())
}

// add keeps a record, and drops past ones when it is time to.
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

func (m *memory) forget(_ context.Context, t id.Tenant) error {
	s := m.shard(t)
	s.Lock()
	defer s.Unlock()
	if rec := s.records[t]; rec != nil {
		// Not deleted: the next dump has to say that nothing is used any more.
		*rec = kept{changed: s.era}
		m.rule.Take(&rec.Record, instant.Of(m.clock()), quota.Demand{})
	}
	return nil
}

// Saved is a tenant's quota record as it survives a restart.
type Saved struct {
	Tenant id.Tenant
	Record []byte
}

// dump returns the records that changed since the dump that returned the mark since, and this dump's mark; a mark of 0
// asks for all. Whoever fails to save a dump gives its earlier mark again. Records whose day and window are past are
// dropped. Decisions go on meanwhile: only one shard at a time is locked.
func (m *memory) dump(since uint64) (changed []Saved, mark uint64) {
	now := instant.Of(m.clock())
	for i := range m.shards {
		s := &m.shards[i]
		s.Lock()
		for t, rec := range s.records {
			if rec.changed > since {
				changed = append(changed, Saved{Tenant: t, Record: m.rule.Append(nil, &rec.Record)})
			}
		}
		s.sweep(m.rule, now)
		mark = s.era
		s.era++
		s.Unlock()
	}
	return changed, mark
}

// load takes up what a dump before a restart has saved. The error names the records that could not be read; their
// tenants start anew.
func (m *memory) load(saved []Saved) error {
	now := instant.Of(m.clock())
	var unread []error
	for _, one := range saved {
		rec, err := m.rule.Decode(one.Record)
		if err != nil {
			unread = append(unread, fmt.Errorf("quotas: saved quota of %s: %w", one.Tenant, err))
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
