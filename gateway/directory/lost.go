package directory

import (
	"cmp"
	"context"
	"slices"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

// lost holds the refusals that the database has lost and that stay in force: see
// keystore.LostRefusal.
type lost struct {
	revoked   map[id.Key]instant.Millis
	disabled  map[id.Key]instant.Millis
	rotated   map[id.Key]instant.Millis // ends of grace
	suspended map[id.Tenant]bool
}

func newLost(refusals []keystore.LostRefusal) lost {
	l := lost{
		revoked:   map[id.Key]instant.Millis{},
		disabled:  map[id.Key]instant.Millis{},
		rotated:   map[id.Key]instant.Millis{},
		suspended: map[id.Tenant]bool{},
	}
	l.add(refusals)
	return l
}

func (l *lost) add(refusals []keystore.LostRefusal) {
	for _, r := range refusals {
		switch r.Kind {
		case keystore.LostRevocation:
			l.revoked[r.Key] = r.At
		case keystore.LostPause:
			l.disabled[r.Key] = r.At
		case keystore.LostRotation:
			l.rotated[r.Key] = r.At
		case keystore.LostSuspension:
			l.suspended[r.Tenant] = true
		}
	}
}

// revokedAt returns when a key was revoked; 0: it was not. inRow is what its row says.
func (l *lost) revokedAt(key id.Key, inRow instant.Millis) instant.Millis {
	return cmp.Or(inRow, l.revoked[key])
}

// disabledAt returns when a key was disabled; 0: it is not. inRow is what its row says.
func (l *lost) disabledAt(key id.Key, inRow instant.Millis) instant.Millis {
	return cmp.Or(inRow, l.disabled[key])
}

// graceEndsAt returns when the grace period of a replaced key ends; 0: the key was not replaced.
// inRow is what its row says. A grace period never gets longer, so the earlier end counts.
func (l *lost) graceEndsAt(key id.Key, inRow instant.Millis) instant.Millis {
	if ends := l.rotated[key]; ends != 0 && (inRow == 0 || inRow > ends) {
		return ends
	}
	return inRow
}

// touched reports whether events may have changed the list of lost refusals.
func (l *lost) touched(events []keystore.EventRow) bool {
	return len(l.revoked)+len(l.disabled)+len(l.rotated)+len(l.suspended) > 0 ||
		slices.ContainsFunc(events, func(e keystore.EventRow) bool { return e.Kind == keystore.RefusalLost })
}

// compare returns what s refuses and next does not; next was read from an older copy of the
// database. The caller must impose the lost bans again. A key that next does not have is refused
// anyway.
func (s *state) compare(next *state, now instant.Millis) (refusals []keystore.LostRefusal, bans []keystore.BanRow) {
	for ref := range uint32(s.tenants.len) {
		t := s.tenants.at(ref)
		at, isThere := next.findTenant(&t.id)
		if isThere && t.terms.Load().Suspended && !next.tenants.at(at).terms.Load().Suspended {
			refusals = append(refusals, keystore.LostRefusal{Kind: keystore.LostSuspension, Tenant: t.id})
		}
	}
	for ref := range uint32(s.keys.len) {
		k := s.keys.at(ref)
		at, known := next.findKey(&k.id)
		if !known {
			continue
		}
		after, owner := next.keys.at(at), s.tenants.at(k.tenant).id
		add := func(kind string, at instant.Millis) {
			refusals = append(refusals, keystore.LostRefusal{Kind: kind, Tenant: owner, Key: k.id, At: at})
		}
		revoked, disabled := instant.Millis(k.revokedAt.Load()), s.rareOf(k).disabledAt
		switch {
		case after.revokedAt.Load() != 0:
		case revoked != 0:
			add(keystore.LostRevocation, revoked)
		case disabled != 0 && next.rareOf(after).disabledAt == 0:
			add(keystore.LostPause, disabled)
		}
		// A grace period never gets longer: a later end is older than the change.
		if ends, is := k.graceEndsAt.Load(), after.graceEndsAt.Load(); ends != 0 && (is == 0 || is > ends) {
			add(keystore.LostRotation, instant.Millis(ends))
		}
		if ban := s.ban(k); ban.Until > now && next.ban(after).Until < ban.Until {
			bans = append(bans, *ban)
		}
	}
	return refusals, bans
}

// force applies refusals, even if the rows contradict them.
func (s *state) force(refusals []keystore.LostRefusal) {
	s.lost.add(refusals)
	for _, r := range refusals {
		if ref, known := s.findTenant(&r.Tenant); known && r.Kind == keystore.LostSuspension {
			t := s.tenants.at(ref)
			suspended := *t.terms.Load()
			suspended.Suspended = true
			t.terms.Store(&suspended)
		}
		if ref, known := s.findKey(&r.Key); known { // not for a suspension, which has no key
			k := s.keys.at(ref)
			k.revokedAt.Store(int64(s.lost.revokedAt(r.Key, instant.Millis(k.revokedAt.Load()))))
			k.graceEndsAt.Store(int64(s.lost.graceEndsAt(r.Key, instant.Millis(k.graceEndsAt.Load()))))
			now := *s.rareOf(k)
			now.disabledAt = s.lost.disabledAt(r.Key, now.disabledAt)
			s.setRare(k, now)
		}
	}
}

// keepLost makes next refuse everything that before refused. next was read from an older copy of
// the database. Refusals are listed in the database, where an operator decides on them. Bans end by
// themselves, so they are imposed again.
func (d *Directory) keepLost(ctx context.Context, before, next *state) error {
	now := instant.Of(d.cfg.Clock())
	refusals, bans := before.compare(next, now)
	for _, r := range refusals {
		d.cfg.Log.Error(
			"directory: the database has lost a refusal; it stays in force until an operator repeats or drops it",
			"kind", r.Kind, "tenant", r.Tenant, "key", r.Key)
	}
	if len(refusals) > 0 {
		if _, err := d.store.ReportLost(ctx, refusals); err != nil {
			return err
		}
	}
	next.force(refusals)
	d.bansMu.Lock()
	defer d.bansMu.Unlock()
	for _, b := range bans {
		d.cfg.Log.Error("directory: the database has lost a ban; it is imposed again", "key", b.Key, "until", b.Until)
		d.pending[b.Key] = keystore.Ban{
			Key: b.Key, Until: b.Until, Automatic: b.Automatic, Notice: b.Notice,
			Reason: "imposed again: the database had lost it", By: d.cfg.GatewayID, ImposedAt: now,
		}
	}
	if len(bans) > 0 {
		d.wakeBanWriter()
	}
	return nil
}
