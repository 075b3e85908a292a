package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/keystore"
	"petgate/shared/sharded"
)

// Memory is the store of one process. It applies the rule to records in shards, each with its own lock.
type Memory struct {
	rule    quota.Rule
	clock   func() time.Time
	records *sharded.Map[Name, *kept]
	era     atomic.Uint64 // counts dumps: changes are marked with it, under the lock of their shard
}

type kept struct {
	quota.Record
	changed uint64 // the era of the last change
}

// NewMemory returns an empty store that decides by this rule and clock.
func NewMemory(rule quota.Rule, clock func() time.Time) *Memory {
	m := &Memory{rule: rule, clock: clock}
	m.records = sharded.New[Name, *kept](0, func(n Name) byte { return n.Tenant[len(n.Tenant)-1] }) // an ID is random
	m.era.Store(1)
	return m
}

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
	name := d.Name()
	s := m.records.Lock(name)
	defer s.Unlock()
	rec := s.Entries[name]
	if rec == nil {
		var first quota.Record
		v := m.rule.Take(&first, now, d.Quota())
		if !first.IsUnused() {
			s.Put(name, &kept{Record: first, changed: m.era.Load()}, m.expiredAt(now))
		}
		return v
	}
	v := m.rule.Take(&rec.Record, now, d.Quota())
	if v.Granted > 0 || d.Spent != (quota.Spent{}) || d.Known.Used > 0 {
		rec.changed = m.era.Load() // a demand that only reads need not be saved
	}
	return v
}

// expiredAt returns whether a record's day and window are over.
func (m *Memory) expiredAt(now instant.Millis) func(Name, *kept) bool {
	return func(_ Name, rec *kept) bool { return now >= m.rule.ExpiresAt(&rec.Record) }
}

// Now returns the current instant of the store's clock.
func (m *Memory) Now() instant.Millis { return instant.Of(m.clock()) }

// Saved is a tenant's quota record as it survives a restart.
type Saved = keystore.QuotaRecord

// Dump returns the records that changed after an earlier dump, and the mark of this dump. The argument since is the mark of
// the earlier dump; if it is 0, Dump returns all records. If the caller could not save a dump, it passes the earlier mark
// again. Dump also drops records whose day and window are over. It locks one shard at a time, so decisions continue
// meanwhile.
func (m *Memory) Dump(since uint64) (changed []Saved, mark uint64) {
	now := m.Now()
	mark = m.era.Add(1) - 1 // first: what changes after its shard was dumped has a later mark
	for s := range m.records.Shards() {
		s.Lock()
		for name, rec := range s.Entries {
			if rec.changed > since {
				changed = append(changed, Saved{Tenant: name.Tenant, Since: name.Since, Record: m.rule.Append(make([]byte, 0, m.rule.RecordBytes()), &rec.Record)})
			}
		}
		maps.DeleteFunc(s.Entries, m.expiredAt(now))
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
		name := Name{one.Tenant, one.Since}
		s := m.records.Lock(name)
		s.Put(name, &kept{Record: rec}, m.expiredAt(now))
		s.Unlock()
	}
	return errors.Join(unread...)
}
