package directory

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// state is everything in memory: lists of records, and indexes into them. Records of keys have no pointers. Lookups take no lock.
// One goroutine at a time makes changes, in place: a record is complete before an index refers to it, and fields that change later
// are atomic.
// There are no shards with locks, because each lookup would then write to a lock's cache line, which all cores share.
type state struct {
	keys   list[key]
	byHash index
	byID   index

	tenants  list[tenant]
	byTenant index

	// Values that few keys have, or that many keys share. Elements are never removed, so these lists grow with each change of
	// a key until everything is loaded again.
	allows     list[[]netip.Prefix]
	successors list[id.Key]
	limits     list[plan.Limits]
	texts      list[string]      // names, and sets of scopes
	textRefs   map[string]uint32 // into texts; used only by the goroutine that makes changes

	bans list[atomic.Pointer[keystore.BanRow]] // of the keys that were ever banned

	plans map[string]*planRecord // used only by the goroutine that makes changes

	lost lost // applied in addition to the rows

	environment apikey.Environment // of the gateway

	versions *uint64 // the last version used; kept when the state is reloaded
	err      error   // the first invalid row
}

// key is a key's record: 96 bytes.
type key struct {
	hash        apikey.Hash
	id          id.Key
	environment uint8
	tenant      uint32        // reference
	scopes      atomic.Uint32 // reference
	allow       atomic.Uint32 // reference + 1; 0: from everywhere
	name        atomic.Uint32 // reference
	successor   atomic.Uint32 // reference + 1; 0: none
	ban         atomic.Uint32 // reference + 1; 0: never banned
	limits      atomic.Uint32 // reference + 1; 0: none
	expiresAt   atomic.Int64
	revokedAt   atomic.Int64
	graceEndsAt atomic.Int64
}

// tenant is a tenant's record. Its changeable part is replaced as a whole, so plan, limits and version are always
// consistent.
type tenant struct {
	id    id.Tenant
	terms atomic.Pointer[terms]
}

type terms struct {
	plan        *planRecord
	override    plan.Limits
	monthStarts uint8
	version     uint64
	suspended   bool
	usedSince   instant.Millis // the last reset of the usage; 0: never
}

// planRecord is a plan that its tenants share, so a change of the plan is one write for all of them.
type planRecord struct {
	name string
	now  atomic.Pointer[planLimits]
}

type planLimits struct {
	keystore.Plan
	version uint64
}

// limits returns the effective limits in an environment, and a version that changes with them.
func (t *terms) limits(in apikey.Environment) (plan.Limits, uint64) {
	own := t.plan.now.Load()
	limits := own.InForce(t.override, in)
	if limits == t.override { // the plan does not matter
		return limits, t.version
	}
	return limits, max(t.version, own.version)
}

func newState(versions *uint64, environment apikey.Environment) *state {
	s := &state{plans: map[string]*planRecord{}, textRefs: map[string]uint32{}, environment: environment, versions: versions}
	s.expect(0, 0)
	return s
}

func (s *state) expect(tenants, keys int) {
	s.byHash.reserve(keys)
	s.byID.reserve(keys)
	s.byTenant.reserve(tenants)
}

// A part of a SHA-256 or of a random ID is a good hash.
func hashOfHash(h *apikey.Hash) uint64    { return binary.LittleEndian.Uint64(h[:]) }
func hashOfKey(k *id.Key) uint64          { return binary.LittleEndian.Uint64(k[:]) }
func hashOfTenant(t *id.Tenant) uint64    { return binary.LittleEndian.Uint64(t[:]) }
func (s *state) hashAt(ref uint32) uint64 { return hashOfHash(&s.keys.at(ref).hash) }

func (s *state) findHash(h *apikey.Hash) (uint32, bool) {
	return s.byHash.find(hashOfHash(h), func(ref uint32) bool { return s.keys.at(ref).hash == *h })
}

func (s *state) findKey(k *id.Key) (uint32, bool) {
	return s.byID.find(hashOfKey(k), func(ref uint32) bool { return s.keys.at(ref).id == *k })
}

func (s *state) findTenant(t *id.Tenant) (uint32, bool) {
	return s.byTenant.find(hashOfTenant(t), func(ref uint32) bool { return s.tenants.at(ref).id == *t })
}

func (s *state) entry(ref uint32) Entry {
	k := s.keys.at(ref)
	t := s.tenants.at(k.tenant)
	now := t.terms.Load()
	limits, version := now.limits(s.environment)
	// The expiry is read first, because setTerms stores it last. So a key that gets a later expiry and fewer scopes never
	// passes with the new expiry and the old scopes.
	expiresAt := instant.Millis(k.expiresAt.Load())
	ban := s.ban(k)
	return Entry{
		Key: k.id, Tenant: t.id, Name: *s.texts.at(k.name.Load()), Environment: apikey.Environment(k.environment),
		Scopes: apikey.Scopes(*s.texts.at(k.scopes.Load())), Allow: s.allow(k), ReplacedBy: s.successor(k),
		Plan: now.plan.name, Limits: limits, MonthStarts: now.monthStarts, Version: version, KeyLimits: s.keyLimits(k), Suspended: now.suspended, UsedSince: now.usedSince, ExpiresAt: expiresAt,
		RevokedAt: instant.Millis(k.revokedAt.Load()), GraceEndsAt: instant.Millis(k.graceEndsAt.Load()),
		BannedUntil: ban.Until, BanIsAutomatic: ban.Automatic, BanNotice: ban.Notice,
	}
}

// allow returns the networks of a key. They must not be changed.
func (s *state) allow(k *key) []netip.Prefix {
	if ref := k.allow.Load(); ref != 0 {
		return *s.allows.at(ref - 1)
	}
	return nil
}

// keyLimits returns the limits of the key itself.
func (s *state) keyLimits(k *key) (limits plan.Limits) {
	if ref := k.limits.Load(); ref != 0 {
		limits = *s.limits.at(ref - 1)
	}
	return limits
}

func (s *state) successor(k *key) (successor id.Key) {
	if ref := k.successor.Load(); ref != 0 {
		successor = *s.successors.at(ref - 1)
	}
	return successor
}

// rows returns functions that apply the rows of a load or a snapshot to s. ban is called for every ban.
func (s *state) rows(ban func(keystore.BanRow)) keystore.Rows {
	return keystore.Rows{Expect: s.expect, Lost: s.setLost, Plan: s.setPlan, Tenant: s.setTenant, Key: s.setKey, Ban: ban}
}

// pass passes all rows to the functions in to. Only the goroutine that makes changes calls it.
func (s *state) pass(to keystore.Rows) {
	for _, p := range s.allPlans() {
		to.Plan(p)
	}
	for ref := range uint32(s.tenants.len) {
		t := s.tenants.at(ref)
		now := t.terms.Load()
		to.Tenant(&keystore.TenantRow{
			ID: t.id, Plan: now.plan.name, Override: now.override, MonthStarts: now.monthStarts, Suspended: now.suspended, UsedSince: now.usedSince,
		})
	}
	for ref := range uint32(s.keys.len) {
		k := s.keys.at(ref)
		to.Key(&keystore.KeyRow{
			Hash: k.hash, ID: k.id, Tenant: s.tenants.at(k.tenant).id, Environment: apikey.Environment(k.environment),
			Scopes: apikey.Scopes(*s.texts.at(k.scopes.Load())), Allow: s.allow(k), Name: *s.texts.at(k.name.Load()), ReplacedBy: s.successor(k),
			ExpiresAt: instant.Millis(k.expiresAt.Load()), RevokedAt: instant.Millis(k.revokedAt.Load()),
			GraceEndsAt: instant.Millis(k.graceEndsAt.Load()), Limits: s.keyLimits(k),
		})
		if ban := s.ban(k); ban.Until != 0 {
			to.Ban(*ban)
		}
	}
}

func (s *state) allPlans() (plans []keystore.Plan) {
	for _, record := range s.plans {
		plans = append(plans, record.now.Load().Plan)
	}
	return plans
}

// setLost is called before the rows to which the refusals apply.
func (s *state) setLost(refusals []keystore.LostRefusal) { s.lost = newLost(refusals) }

func (s *state) setPlan(p keystore.Plan) {
	record, known := s.plans[p.Name]
	if !known {
		record = &planRecord{name: p.Name}
		s.plans[p.Name] = record
	} else if record.now.Load().Plan == p {
		return
	}
	record.now.Store(&planLimits{p, s.nextVersion()})
}

func (s *state) nextVersion() uint64 {
	*s.versions++
	return *s.versions
}

// setTenant applies a tenant's row. It adds a lost suspension to the row, so that a snapshot of the row has it too.
func (s *state) setTenant(row *keystore.TenantRow) {
	row.Suspended = row.Suspended || s.lost.suspended[row.ID]
	if _, known := s.plans[row.Plan]; !known {
		s.refuse("tenant %s has an unknown plan %q", row.ID, row.Plan)
		return
	}
	if ref, known := s.findTenant(&row.ID); known {
		t := s.tenants.at(ref)
		t.terms.Store(s.newTerms(t.terms.Load(), row))
		return
	}
	ref, t := s.tenants.add()
	t.id = row.ID
	t.terms.Store(s.newTerms(nil, row))
	s.byTenant.insert(hashOfTenant(&row.ID), ref, func(ref uint32) uint64 { return hashOfTenant(&s.tenants.at(ref).id) })
}

// newTerms returns new terms. The parameter was has the earlier terms, or is nil. The new terms have a new version,
// unless the limits stay the same.
func (s *state) newTerms(was *terms, row *keystore.TenantRow) *terms {
	next := &terms{plan: s.plans[row.Plan], override: row.Override, monthStarts: row.MonthStarts, suspended: row.Suspended, usedSince: row.UsedSince}
	if was != nil {
		before, version := was.limits(s.environment)
		if now, _ := next.limits(s.environment); now == before && next.monthStarts == was.monthStarts {
			next.version = version
			return next
		}
	}
	next.version = s.nextVersion()
	return next
}

// setKey applies a key's row. It adds a lost revocation or rotation to the row, so that a snapshot of the row has it too.
func (s *state) setKey(row *keystore.KeyRow) {
	row.RevokedAt = s.lost.revokedAt(row.ID, row.RevokedAt)
	row.GraceEndsAt = s.lost.graceEndsAt(row.ID, row.GraceEndsAt)
	if ref, known := s.findKey(&row.ID); known {
		s.setTerms(s.keys.at(ref), row) // the other fields never change
		return
	}
	owner, known := s.findTenant(&row.Tenant)
	if !known {
		s.refuse("key %s has an unknown tenant %s", row.ID, row.Tenant)
		return
	}
	ref, k := s.keys.add()
	k.hash, k.id, k.tenant = row.Hash, row.ID, owner
	k.environment = uint8(row.Environment)
	s.setTerms(k, row)
	s.byID.insert(hashOfKey(&row.ID), ref, func(ref uint32) uint64 { return hashOfKey(&s.keys.at(ref).id) })
	s.byHash.insert(hashOfHash(&row.Hash), ref, s.hashAt)
}

// setTerms sets the fields of k that can change. It sets one after the other, so a request at this moment may see only a part of
// the change.
func (s *state) setTerms(k *key, row *keystore.KeyRow) {
	k.scopes.Store(s.text(string(row.Scopes)))
	if !slices.Equal(s.allow(k), row.Allow) {
		ref := uint32(0)
		if len(row.Allow) > 0 {
			at, allow := s.allows.add()
			*allow = row.Allow
			ref = at + 1
		}
		k.allow.Store(ref)
	}
	k.name.Store(s.text(row.Name))
	if row.ReplacedBy != s.successor(k) {
		at, successor := s.successors.add()
		*successor = row.ReplacedBy
		k.successor.Store(at + 1)
	}
	if row.Limits != s.keyLimits(k) {
		at, limits := s.limits.add()
		*limits = row.Limits
		k.limits.Store(at + 1)
	}
	k.expiresAt.Store(int64(row.ExpiresAt))
	k.revokedAt.Store(int64(row.RevokedAt))
	k.graceEndsAt.Store(int64(row.GraceEndsAt))
}

// text returns the reference of a text. Few texts are different.
func (s *state) text(text string) uint32 {
	ref, known := s.textRefs[text]
	if !known {
		at, kept := s.texts.add()
		*kept, ref = text, at
		s.textRefs[text] = ref
	}
	return ref
}

// noBan is the ban of a key that was never banned.
var noBan keystore.BanRow

// ban returns the latest ban of a key, which must not be changed, or noBan.
func (s *state) ban(k *key) *keystore.BanRow {
	if ref := k.ban.Load(); ref != 0 {
		return s.bans.at(ref - 1).Load()
	}
	return &noBan
}

// prolongBan sets a key's ban, unless the key is unknown or its ban does not end sooner. It reports whether it did. As for setBan,
// Directory.bansMu must be held.
func (s *state) prolongBan(b keystore.BanRow) bool {
	ref, known := s.findKey(&b.Key)
	if !known || s.ban(s.keys.at(ref)).Until >= b.Until {
		return false
	}
	s.setBan(b)
	return true
}

// setBan sets a key's ban. After the state is in use, Directory.bansMu must be held.
func (s *state) setBan(b keystore.BanRow) {
	ref, known := s.findKey(&b.Key)
	if !known {
		return
	}
	k := s.keys.at(ref)
	if b.Until == 0 {
		b = keystore.BanRow{}
	}
	if at := k.ban.Load(); at != 0 {
		s.bans.at(at - 1).Store(&b)
	} else if b.Until != 0 {
		at, ban := s.bans.add()
		ban.Store(&b)
		k.ban.Store(at + 1)
	}
}

func (s *state) refuse(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}
