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

// state is everything in memory: lists of records, and indexes into them. Records of keys have no
// pointers. Lookups take no lock. One goroutine at a time makes changes, in place: a record is
// complete before an index refers to it, and fields that change later are atomic. There are no
// shards with locks, because each lookup would then write to a lock's cache line, which all cores
// share.
type state struct {
	keys   list[key]
	byHash index
	byID   index

	tenants  list[tenant]
	byTenant index

	// Values that few keys have, or that many keys share. Elements are never removed, so these
	// lists grow with each change of a key until everything is loaded again.
	rares    list[rare]
	texts    list[string]      // names, and sets of scopes
	textRefs map[string]uint32 // into texts; used only by the goroutine that makes changes

	bans list[atomic.Pointer[keystore.BanRow]] // of the keys that were ever banned

	plans map[string]*planRecord // used only by the goroutine that makes changes

	lost lost // applied in addition to the rows

	environment apikey.Environment // of the gateway

	versions *uint64 // the last version used; kept when the state is reloaded
	err      error   // the first invalid row
}

// key is a key's record: 88 bytes.
type key struct {
	hash        apikey.Hash
	id          id.Key
	environment uint8
	tenant      uint32        // reference
	scopes      atomic.Uint32 // reference
	name        atomic.Uint32 // reference
	rare        atomic.Uint32 // reference + 1; 0: none
	ban         atomic.Uint32 // reference + 1; 0: never banned
	expiresAt   atomic.Int64
	revokedAt   atomic.Int64
	graceEndsAt atomic.Int64
}

// rare is what few keys have.
type rare struct {
	allow      []netip.Prefix // empty: from everywhere
	successor  id.Key         // zero: none
	limits     plan.Limits    // zero: none
	disabledAt instant.Millis
}

// tenant is a tenant's record. Its changeable part is replaced as a whole, so plan, limits and
// version are always consistent.
type tenant struct {
	id    id.Tenant
	terms atomic.Pointer[terms]
}

type terms struct {
	keystore.TenantRow
	plan    *planRecord
	version uint64 // of the tenant's own limits
}

// planRecord is a plan that its tenants share, so a change of the plan is one write for all of
// them.
type planRecord struct {
	name string
	now  atomic.Pointer[planLimits]
}

type planLimits struct {
	keystore.Plan
	version uint64
}

// in returns the terms in an environment. Their version changes with the effective limits and with
// the start of the month.
func (t *terms) in(environment apikey.Environment) Terms {
	of := t.plan.now.Load()
	in := Terms{t.Plan, of.InForce(t.Override, environment), t.MonthStarts, t.version, t.UsedSince}
	if in.Limits != t.Override { // otherwise the plan does not matter
		in.Version = max(t.version, of.version)
	}
	return in
}

func newState(versions *uint64, environment apikey.Environment) *state {
	s := &state{
		plans:       map[string]*planRecord{},
		textRefs:    map[string]uint32{},
		environment: environment,
		versions:    versions,
	}
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
	// The expiry is read first, because setTerms stores it last. So a key that gets a later expiry
	// and fewer scopes never passes with the new expiry and the old scopes. The pause, which is in
	// rare, is read before the revocation, which setTerms stores first. So a disabled key never
	// passes while it is revoked.
	expiresAt := instant.Millis(k.expiresAt.Load())
	ban, rare := s.ban(k), s.rareOf(k)
	return Entry{
		Key:         k.id,
		Tenant:      t.id,
		Name:        *s.texts.at(k.name.Load()),
		Environment: apikey.Environment(k.environment),
		Scopes:      apikey.Scopes(*s.texts.at(k.scopes.Load())),
		Allow:       rare.allow,
		ReplacedBy:  rare.successor,
		Terms:       now.in(s.environment),
		KeyLimits:   rare.limits,
		Suspended:   now.Suspended,
		ExpiresAt:   expiresAt,
		RevokedAt:   instant.Millis(k.revokedAt.Load()),
		DisabledAt:  rare.disabledAt,
		GraceEndsAt: instant.Millis(k.graceEndsAt.Load()),

		BannedUntil:    ban.Until,
		BanIsAutomatic: ban.Automatic,
		BanNotice:      ban.Notice,
	}
}

var noRare rare

// rareOf returns what must not be changed.
func (s *state) rareOf(k *key) *rare {
	if ref := k.rare.Load(); ref != 0 {
		return s.rares.at(ref - 1)
	}
	return &noRare
}

// rows returns functions that apply the rows of a load or a snapshot to s. ban is called for every
// ban.
func (s *state) rows(ban func(keystore.BanRow)) keystore.Rows {
	return keystore.Rows{
		Expect: s.expect,
		Lost:   s.setLost,
		Plan:   s.setPlan,
		Tenant: s.setTenant,
		Key:    s.setKey,
		Ban:    ban,
	}
}

// pass passes all rows to the functions in to, which must not change them: look-ups read the same
// terms. Only the goroutine that makes changes calls it.
func (s *state) pass(to keystore.Rows) {
	for _, p := range s.allPlans() {
		to.Plan(p)
	}
	for ref := range uint32(s.tenants.len) {
		to.Tenant(&s.tenants.at(ref).terms.Load().TenantRow)
	}
	for ref := range uint32(s.keys.len) {
		k := s.keys.at(ref)
		rare := s.rareOf(k)
		to.Key(&keystore.KeyRow{
			Hash:        k.hash,
			ID:          k.id,
			Tenant:      s.tenants.at(k.tenant).id,
			Environment: apikey.Environment(k.environment),
			Scopes:      apikey.Scopes(*s.texts.at(k.scopes.Load())),
			Allow:       rare.allow,
			Name:        *s.texts.at(k.name.Load()),
			ReplacedBy:  rare.successor,
			ExpiresAt:   instant.Millis(k.expiresAt.Load()),
			RevokedAt:   instant.Millis(k.revokedAt.Load()),
			DisabledAt:  rare.disabledAt,
			GraceEndsAt: instant.Millis(k.graceEndsAt.Load()),
			Limits:      rare.limits,
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

// setTenant applies a tenant's row. It adds a lost suspension to the row, so that a snapshot of the
// row has it too.
func (s *state) setTenant(row *keystore.TenantRow) {
	row.Suspended = row.Suspended || s.lost.suspended[row.ID]
	record, known := s.plans[row.Plan]
	if !known {
		s.refuse("tenant %s has an unknown plan %q", row.ID, row.Plan)
		return
	}
	next := &terms{TenantRow: *row, plan: record}
	next.Plan = record.name // all tenants of the plan share the text
	if ref, known := s.findTenant(&row.ID); known {
		t := s.tenants.at(ref)
		was := t.terms.Load().in(s.environment)
		if now := next.in(s.environment); now.Limits == was.Limits && now.MonthStarts == was.MonthStarts {
			next.version = was.Version
		} else {
			next.version = s.nextVersion()
		}
		t.terms.Store(next)
		return
	}
	next.version = s.nextVersion()
	ref, t := s.tenants.add()
	t.id = row.ID
	t.terms.Store(next)
	s.byTenant.insert(hashOfTenant(&row.ID), ref,
		func(ref uint32) uint64 { return hashOfTenant(&s.tenants.at(ref).id) })
}

// setKey applies a key's row. It adds a lost revocation, pause or rotation to the row, so that a snapshot
// of the row has it too.
func (s *state) setKey(row *keystore.KeyRow) {
	row.RevokedAt = s.lost.revokedAt(row.ID, row.RevokedAt)
	row.DisabledAt = s.lost.disabledAt(row.ID, row.DisabledAt)
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

// setTerms sets the fields of k that can change. It sets one after the other, so a request at this
// moment may see only a part of the change.
func (s *state) setTerms(k *key, row *keystore.KeyRow) {
	k.revokedAt.Store(int64(row.RevokedAt))
	k.scopes.Store(s.text(string(row.Scopes)))
	k.name.Store(s.text(row.Name))
	s.setRare(k, rare{row.Allow, row.ReplacedBy, row.Limits, row.DisabledAt})
	k.expiresAt.Store(int64(row.ExpiresAt))
	k.graceEndsAt.Store(int64(row.GraceEndsAt))
}

func (s *state) setRare(k *key, is rare) {
	was := s.rareOf(k)
	if slices.Equal(was.allow, is.allow) && was.successor == is.successor && was.limits == is.limits &&
		was.disabledAt == is.disabledAt {
		return
	}
	at, next := s.rares.add()
	*next = is
	k.rare.Store(at + 1)
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

// prolongBan sets a key's ban, unless the key is unknown or its ban does not end sooner. It reports
// whether it did. As for setBan, Directory.bansMu must be held.
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
