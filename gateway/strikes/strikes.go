// Package strikes remembers who was refused by a quota and did not wait, and says when the key is
// banned.
package strikes

import (
	"net/netip"

	"petgate/shared/core/ban"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/sharded"
)

// Strikes has a small record for each key that this gateway refused, and for each address from
// which the key was used then. Its methods are safe for concurrent use, but a Connection is not. If
// the rule bans no key, they do nothing.
type Strikes struct {
	rule    ban.Rule
	records *sharded.Map[id.Key, *record]
	callers *sharded.Map[caller, *ban.Callers]
}

// recordsMax bounds the records of keys, and those of addresses. Only keys over their quota have
// any. If there are more, some records are dropped, and those keys or addresses start again without
// strikes or promises.
const recordsMax = 1 << 18

type record struct {
	ban.Record
	bannedUntil instant.Millis // the end of the last ban in Record
}

type caller struct {
	key     id.Key
	address netip.Addr
}

// Connection is what a client's connection was promised. Closed must be called when it has ended.
type Connection struct {
	of *Strikes
	caller
	ban.Promise
}

// New returns strikes that follow this rule.
func New(rule ban.Rule) *Strikes {
	// A key's ID is random, so any of its bytes spreads keys evenly. The addresses of one key
	// differ mostly in their last byte.
	ofKey := func(k id.Key) byte { return k[len(k)-1] }
	ofCaller := func(c caller) byte {
		address := c.address.As16()
		return ofKey(c.key) ^ address[15]
	}
	return &Strikes{
		rule:    rule,
		records: sharded.New[id.Key, *record](recordsMax, ofKey),
		callers: sharded.New[caller, *ban.Callers](recordsMax, ofCaller),
	}
}

// AreCounted reports whether the rule bans keys.
func (s *Strikes) AreCounted() bool { return s.rule.After > 0 }

// NewConnection returns a connection to which nothing was promised.
func (s *Strikes) NewConnection() *Connection { return &Connection{of: s} }

// Refusal is a 429 of a quota.
type Refusal struct {
	Key           id.Key
	Address       netip.Addr  // of the client
	On            *Connection // nil: a proxy's, which carries requests of many clients
	Limit         int64       // how many requests the tenant has in a minute
	Now, Promised instant.Millis
}

// Refused records a refusal. Promised is the instant at which its Retry-After ends. It must not be
// called if strikes are not counted.
func (s *Strikes) Refused(r Refusal) ban.Outcome {
	from := caller{r.Key, r.Address}
	if r.On == nil { // treated as a connection that closes now
		r.On = s.NewConnection()
		defer r.On.Closed()
	}
	if r.On.caller != from { // it was used with another key before
		r.On.Closed()
		*r.On = Connection{of: s, caller: from}
	}
	keys := s.records.Lock(r.Key)
	defer keys.Unlock()
	shard := s.callers.Lock(from)
	defer shard.Unlock()
	callers := shard.Entries[from]
	if callers == nil {
		callers = &ban.Callers{}
		shard.Put(from, callers, func(_ caller, old *ban.Callers) bool { return s.rule.Forgets(old, r.Now) })
	}
	rec := s.record(keys, r.Key, r.Now)
	out := s.rule.Refused(&rec.Record, callers, &r.On.Promise, r.Limit, r.Now, r.Promised)
	if out.BannedUntil != 0 {
		rec.bannedUntil = out.BannedUntil
	}
	return out
}

// Closed passes what the connection was promised on to its address.
func (c *Connection) Closed() {
	c.of.withCallers(c.caller, func(all *ban.Callers) { all.Leave(c.Promise) })
}

// withCallers calls do with the callers at an address, if there are any.
func (s *Strikes) withCallers(from caller, do func(*ban.Callers)) {
	shard := s.callers.Lock(from)
	defer shard.Unlock()
	if all := shard.Entries[from]; all != nil {
		do(all)
	}
}

// Banned records a ban of k by any gateway, so that the next ban is longer. The length of this ban
// is not known here: Banned assumes the shortest length in the schedule that reaches from now to
// until.
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

// record returns the record of k and creates it if there is none. The caller holds the shard's
// lock.
func (s *Strikes) record(shard *sharded.Shard[id.Key, *record], k id.Key, now instant.Millis) *record {
	rec := shard.Entries[k]
	if rec == nil {
		rec = &record{}
		shard.Put(k, rec, func(_ id.Key, old *record) bool { return s.rule.Idle(&old.Record, now) })
	}
	return rec
}

// Left returns how many more strikes lead to a ban of k, at most; 0 if strikes are not counted.
// limit is how many requests the tenant has in a minute.
func (s *Strikes) Left(k id.Key, limit int64, now instant.Millis) int {
	if !s.AreCounted() {
		return 0
	}
	shard := s.records.Lock(k)
	defer shard.Unlock()
	if rec := shard.Entries[k]; rec != nil {
		return s.rule.StrikesUntilBan(rec.Record, limit, now)
	}
	return s.rule.StrikesUntilBan(ban.Record{}, limit, now)
}

// Served records that an admitted request got its response. on may be nil.
func (s *Strikes) Served(k id.Key, address netip.Addr, on *Connection, now instant.Millis) {
	if !s.AreCounted() {
		return
	}
	from := caller{k, address}
	s.withCallers(from, func(all *ban.Callers) {
		if on == nil || on.caller != from {
			on = &Connection{}
		}
		s.rule.Served(all, &on.Promise, now)
	})
}
