package store

import (
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/keystore/usage"
	"petgate/shared/sharded"
)

// Memory is the store of one process. It applies the rule to records in shards, each with its own
// lock.
type Memory struct {
	rule    quota.Rule
	clock   func() time.Time
	records *sharded.Map[Name, *kept]
	era     atomic.Uint64 // counts dumps: changes are marked with it, under the lock of their shard
}

type kept struct {
	quota.Record
	changed   uint64         // the era of the last change
	monthEnds instant.Millis // as of the last change
	isNew     bool           // it is not in the map yet
}

// NewMemory returns an empty store that decides by this rule and clock.
func NewMemory(rule quota.Rule, clock func() time.Time) *Memory {
	m := &Memory{rule: rule, clock: clock}
	m.records = sharded.New[Name, *kept](0, func(n Name) byte { return n.Tenant[len(n.Tenant)-1] }) // an ID is random
	m.era.Store(1)
	return m
}

// Take decides one demand at the instant now.
func (m *Memory) Take(now instant.Millis, d *Demand) (v quota.Verdict) {
	s := m.records.Lock(d.Name)
	defer s.Unlock()
	rec := m.record(s, d)
	v = m.rule.Take(&rec.Record, now, d.Quota())
	m.keep(s, d, rec, &v)
	return v
}

// TakeBoth decides two joined demands at the instant now.
func (m *Memory) TakeBoth(now instant.Millis, own, d *Demand) (ofKey, ofTenant quota.Verdict) {
	s := m.records.Lock(d.Name) // also the key's: all records of a tenant are in one shard
	defer s.Unlock()
	key, tenant := m.record(s, own), m.record(s, d)
	ofKey, ofTenant = m.rule.TakeBoth(&key.Record, &tenant.Record, now, own.Quota(), d.Quota())
	m.keep(s, own, key, &ofKey)
	m.keep(s, d, tenant, &ofTenant)
	return ofKey, ofTenant
}

// record returns the record of a demand, or a new one.
func (m *Memory) record(s *sharded.Shard[Name, *kept], d *Demand) *kept {
	if rec := s.Entries[d.Name]; rec != nil {
		return rec
	}
	return &kept{isNew: true}
}

// keep keeps a record that counts something. It need not be saved if the demand only read it. A
// limit of the month that is new begins a month, also if it refuses at once.
func (m *Memory) keep(s *sharded.Shard[Name, *kept], d *Demand, rec *kept, v *quota.Verdict) {
	if rec.isNew && rec.IsUnused() {
		return
	}
	monthEnds := v.Usages[quota.Month].ResetAt
	if rec.isNew || v.Granted > 0 || monthEnds != rec.monthEnds {
		rec.changed, rec.monthEnds = m.era.Load(), monthEnds
	}
	if rec.isNew {
		rec.isNew = false
		s.Put(d.Name, rec, m.expiredAt(v.At))
	}
}

// expiredAt returns whether a record's day and window are over.
func (m *Memory) expiredAt(now instant.Millis) func(Name, *kept) bool {
	return func(_ Name, rec *kept) bool { return now >= m.rule.ExpiresAt(&rec.Record) }
}

// UseOf returns the use in a verdict.
func (m *Memory) UseOf(v *quota.Verdict) quota.Use { return m.rule.UseOf(v) }

// Now returns the current instant of the store's clock.
func (m *Memory) Now() instant.Millis { return instant.Of(m.clock()) }

// Dump returns the records that changed after an earlier dump, and the mark of this dump. The
// argument since is the mark of the earlier dump; if it is 0, Dump returns all records. If the
// caller could not save a dump, it passes the earlier mark again. Dump also drops records whose day
// and window are over. It locks one shard at a time, so decisions continue meanwhile.
func (m *Memory) Dump(since uint64) (changed []usage.QuotaRecord, mark uint64) {
	now := m.Now()
	mark = m.era.Add(1) - 1 // first: what changes after its shard was dumped has a later mark
	for s := range m.records.Shards() {
		s.Lock()
		for name, rec := range s.Entries {
			if rec.changed > since {
				room := make([]byte, 0, m.rule.RecordBytes()+quota.MonthBytes)
				changed = append(changed, usage.QuotaRecord{
					QuotaName: name,
					Record:    m.rule.Append(room, &rec.Record),
				})
			}
		}
		maps.DeleteFunc(s.Entries, m.expiredAt(now))
		s.Unlock()
	}
	return changed, mark
}

// Load restores saved records. The error names the records that could not be read; their tenants
// start without use.
func (m *Memory) Load(saved []usage.QuotaRecord) error {
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
		s := m.records.Lock(one.QuotaName)
		s.Put(one.QuotaName, &kept{Record: rec}, m.expiredAt(now))
		s.Unlock()
	}
	return errors.Join(unread...)
}
