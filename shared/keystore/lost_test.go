package keystore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

// A load returns the lost refusals as they are in the snapshot that it reads. So the events after the snapshot show every later
// change of the list.
func TestLoadHasTheLostRefusalsOfItsSnapshot(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		acme := newTenant(t, s, "acme")
		var lost []keystore.LostRefusal
		rows := keystore.Rows{
			Lost: func(l []keystore.LostRefusal) { lost = l },
			Plan: func(keystore.Plan) {}, Tenant: func(*keystore.TenantRow) {},
		}
		var reported keystore.Change
		rows.Expect = func(int, int) { // the snapshot is from before the report
			reported = must.Get[keystore.Change](t)(s.ReportLost(t.Context(), []keystore.LostRefusal{{Kind: keystore.LostSuspension, Tenant: acme.ID}}))
		}
		for _, want := range []int{0, 1} {
			if last, _, err := s.Load(t.Context(), rows); err != nil || len(lost) != want || (last >= reported) != (want == 1) {
				t.Errorf("load up to %d: %+v, %v; want %d; reported in %d", last, lost, err, want, reported)
			}
			rows.Expect = func(int, int) {}
		}
	})
}

// Each lost refusal ends separately: when an operator repeats it or drops it, all others stay in force.
func TestLostRefusals(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		acme, other := newTenant(t, s, "acme"), newTenant(t, s, "other")
		key := func(tenant id.Tenant) id.Key { return keyOf(t, s, tenant, "one").ID }
		revoked, rotated, others := key(acme.ID), key(acme.ID), key(other.ID)
		names := strings.NewReplacer(acme.ID.String(), "acme", other.ID.String(), "other",
			revoked.String(), "/revoked", rotated.String(), "/rotated", others.String(), "/others")
		want := func(what string, err error, left ...string) {
			t.Helper()
			must.Do(t, err)
			var listed []string
			for _, l := range must.Get[[]keystore.LostRefusal](t)(s.LostRefusals(t.Context())) {
				if at := map[id.Key]instant.Millis{revoked: 1, rotated: 2, others: 3}[l.Key]; l.At != at || l.ReportedBy != "ada" || l.ReportedAt != c.millis() {
					t.Errorf("%+v, want one at %d", l, at)
				}
				key, _ := l.Key.Value()
				listed = append(listed, names.Replace(fmt.Sprint(l.Kind, " ", l.Tenant, key)))
			}
			slices.Sort(listed)
			slices.Sort(left)
			wantEqual(t, what, listed, left)
		}
		_, err := s.ReportLost(t.Context(), []keystore.LostRefusal{
			{Kind: keystore.LostRevocation, Tenant: acme.ID, Key: revoked, At: 1},
			{Kind: keystore.LostRotation, Tenant: acme.ID, Key: rotated, At: 2},
			{Kind: keystore.LostSuspension, Tenant: acme.ID},
			{Kind: keystore.LostRevocation, Tenant: other.ID, Key: others, At: 3},
			{Kind: keystore.LostSuspension, Tenant: other.ID},
		})
		want("reported", err, "revoked acme/revoked", "rotated acme/rotated", "suspended acme", "revoked other/others", "suspended other")
		_, err = s.DropLost(t.Context(), acme.ID, rotated)
		want("a key's is dropped", err, "revoked acme/revoked", "suspended acme", "revoked other/others", "suspended other")
		_, _, err = s.Suspend(t.Context(), acme.ID)
		want("the suspension is repeated", err, "revoked acme/revoked", "revoked other/others", "suspended other")
		_, _, err = s.Resume(t.Context(), acme.ID)
		want("and ended", err, "revoked acme/revoked", "revoked other/others", "suspended other")
		_, _, err = s.Resume(t.Context(), other.ID)
		want("one that was not repeated is not ended", err, "revoked acme/revoked", "revoked other/others", "suspended other")
		_, err = s.DropLost(t.Context(), other.ID, id.Key{})
		want("a tenant's is dropped", err, "revoked acme/revoked", "revoked other/others")
		_, _, err = s.RevokeKey(t.Context(), revoked)
		want("a revocation is repeated", err, "revoked other/others")
		refused(t, keystore.ErrNotFound)(s.DropLost(t.Context(), acme.ID, others))
	})
}
