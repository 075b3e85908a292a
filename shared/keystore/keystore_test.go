package keystore_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// clock is a clock that a test sets.
type clock struct{ now time.Time }

func (c *clock) read() time.Time        { return c.now }
func (c *clock) millis() instant.Millis { return instant.Of(c.now) }

func open(t testing.TB, url string) *database.DB {
	t.Helper()
	return testkit.Open(t, url, keystore.Migrations)
}

func run(t testing.TB, db *database.DB, statement string, args ...any) {
	t.Helper()
	_, err := db.Exec(statement, args...)
	must.Do(t, err)
}

// eachStore runs f with a migrated store on each database.
func eachStore(t *testing.T, f func(t *testing.T, s *keystore.Store, c *clock)) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		c := &clock{now: time.UnixMilli(1_800_000_000_000)}
		f(t, keystore.New(open(t, url), c.read, nil, "ada"), c)
	})
}

// wantError checks an error's kind, and that its text contains the given texts.
func wantError(t *testing.T, err, kind error, texts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got error %v, want one that is %q", err, kind)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func newTenant(t *testing.T, s *keystore.Store, name string) keystore.Tenant {
	t.Helper()
	tenant, _, err := s.CreateTenant(t.Context(), keystore.TenantSpec{Name: name, Plan: "free"})
	must.Do(t, err)
	return tenant
}

func newKey(t *testing.T, s *keystore.Store, spec keystore.KeySpec) (keystore.Key, string) {
	t.Helper()
	k, token, _, err := s.CreateKey(t.Context(), spec)
	must.Do(t, err)
	return k, token
}

func kinds(t *testing.T, s *keystore.Store) (kinds []string) {
	t.Helper()
	for i, e := range must.Get[[]keystore.Event](t)(keystore.Collect(s.Events(t.Context(), keystore.EventFilter{}, 0))) {
		if int(e.ID) != i+1 {
			t.Errorf("event %d has ID %d", i+1, e.ID)
		}
		if len(e.UUID) != 26 || e.Actor != "ada" || e.At == 0 {
			t.Errorf("event %d lacks its UUID, actor or time: %+v", e.ID, e)
		}
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func TestSchema(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := testkit.Open(t, url)
		s := keystore.New(db, nil, nil, "ada")
		wantError(t, s.CheckSchema(t.Context()), keystore.ErrSchema, "migrate")
		for range 2 { // a second time changes nothing
			must.Do(t, db.Migrate(t.Context(), keystore.Migrations))
		}
		must.Do(t, s.CheckSchema(t.Context()))
		run(t, db, "UPDATE keystore_schema SET version_id = 99 WHERE version_id = 1")
		wantError(t, s.CheckSchema(t.Context()), keystore.ErrSchema, "upgrade")
	})
}

// Another application has a table whose name Petgate needs.
func TestNameOfATableIsTaken(t *testing.T) {
	db, err := database.Open(testkit.Postgres(t))
	must.Do(t, err)
	defer db.Close()
	run(t, db, "CREATE TABLE events (id BIGINT)")
	err = db.Migrate(t.Context(), keystore.Migrations)
	if err == nil || !strings.Contains(err.Error(), `"events"`) || !strings.Contains(err.Error(), "create a database for Petgate alone") {
		t.Errorf("migrate beside a table events: %v", err)
	}
}

func TestPlans(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		seeded := []keystore.Plan{
			{Name: "business", Limits: plan.Limits{Minute: 1000, Day: 100_000}},
			{Name: "enterprise"},
			{Name: "free", Limits: plan.Limits{Minute: 60, Day: 1000}},
			{Name: "pro", Limits: plan.Limits{Minute: 300, Day: 10_000}},
		}
		wantEqual(t, "plans", must.Get[[]keystore.Plan](t)(s.Plans(t.Context())), seeded)

		made, change, err := s.CreatePlan(t.Context(), keystore.Plan{Name: "gold", Limits: plan.Limits{Minute: 5, Day: 50}})
		if err != nil || change != 1 || made.CreatedAt != c.millis() {
			t.Errorf("create: %+v, change %d, %v", made, change, err)
		}
		_, _, err = s.CreatePlan(t.Context(), keystore.Plan{Name: "gold"})
		wantError(t, err, keystore.ErrExists, "gold", "update it")
		_, _, err = s.CreatePlan(t.Context(), keystore.Plan{Name: "Gold"})
		wantError(t, err, keystore.ErrInvalid, "lower-case")
		_, _, err = s.UpdatePlan(t.Context(), "gold", plan.Limits{Minute: -2}, plan.Limits{})
		wantError(t, err, keystore.ErrInvalid, "-2")
		_, _, err = s.UpdatePlan(t.Context(), "silver", plan.Limits{Minute: 1}, plan.Limits{})
		wantError(t, err, keystore.ErrNotFound, "silver", "no plan")

		updated, change, err := s.UpdatePlan(t.Context(), "gold", plan.Limits{Day: 70}, plan.Limits{})
		if err != nil || change != 2 || updated.Limits != (plan.Limits{Minute: 5, Day: 70}) {
			t.Errorf("update: %+v, change %d, %v", updated, change, err)
		}
		_, change, err = s.UpdatePlan(t.Context(), "gold", plan.Limits{Day: 70}, plan.Limits{})
		if err != nil || change != 2 {
			t.Errorf("the same update again: change %d, %v", change, err)
		}
		wantEqual(t, "gold", must.Get[keystore.Plan](t)(s.Plan(t.Context(), "gold")), updated)
		wantEqual(t, "events", kinds(t, s), []string{keystore.PlanCreated, keystore.PlanUpdated})
	})
}

func TestTenants(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		const name = `acme 'ü"\ $2 {rows}` // a statement may have it in its text
		tenant := newTenant(t, s, name)
		wantEqual(t, "by ID", must.Get[keystore.Tenant](t)(s.Tenant(ctx, tenant.ID.String())), tenant)
		wantEqual(t, "by name", must.Get[keystore.Tenant](t)(s.Tenant(ctx, name)), tenant)

		for name, text := range map[string]string{
			"": "empty", " x": "space", "ten_x": "prefix of IDs", "key_x": "prefix of IDs", "a\nb": "control", "a\u200bb": "control",
			strings.Repeat("ü", 101): "100", "\xff": "control",
		} {
			_, _, err := s.CreateTenant(ctx, keystore.TenantSpec{Name: name, Plan: "free"})
			wantError(t, err, keystore.ErrInvalid, text)
		}
		_, _, err := s.CreateTenant(ctx, keystore.TenantSpec{Name: name, Plan: "free"})
		wantError(t, err, keystore.ErrExists, "acme ")
		_, _, err = s.CreateTenant(ctx, keystore.TenantSpec{Name: "b", Plan: "none"})
		wantError(t, err, keystore.ErrNotFound, "no plan")
		_, err = s.Tenant(ctx, "nobody")
		wantError(t, err, keystore.ErrNotFound, "nobody", "no tenant")
		_, _, err = s.Suspend(ctx, id.Tenant{1})
		wantError(t, err, keystore.ErrNotFound)

		want := tenant
		step := func(what string, got keystore.Tenant, change keystore.Change, err error, wantChange keystore.Change) {
			t.Helper()
			if err != nil || change != wantChange {
				t.Errorf("%s: change %d, want %d; %v", what, change, wantChange, err)
			}
			wantEqual(t, what, got, want)
		}
		want.Plan = "pro"
		got, change, err := s.SetTerms(ctx, tenant.ID, "pro", plan.Limits{})
		step("set plan", got, change, err, 2)
		want.Override = plan.Limits{Minute: 7}
		got, change, err = s.SetQuota(ctx, tenant.ID, plan.Limits{Minute: 7}, 0)
		step("set quota", got, change, err, 3)
		want.Override.Day = 9
		got, change, err = s.SetQuota(ctx, tenant.ID, plan.Limits{Day: 9}, 0)
		step("set the other quota", got, change, err, 4)
		want.Override = plan.Limits{}
		got, change, err = s.SetQuota(ctx, tenant.ID, plan.NoLimits, 0)
		step("clear quota", got, change, err, 5)
		want.Suspended = true
		got, change, err = s.Suspend(ctx, tenant.ID)
		step("suspend", got, change, err, 6)
		got, change, err = s.Suspend(ctx, tenant.ID)
		step("suspend again", got, change, err, 6)
		want.Suspended = false
		got, change, err = s.Resume(ctx, tenant.ID)
		step("resume", got, change, err, 7)
		wantEqual(t, "tenants", must.Get[[]keystore.Tenant](t)(s.FindTenants(ctx, keystore.TenantFilter{}, "", 999)), []keystore.Tenant{want})
		wantEqual(t, "events", kinds(t, s), []string{
			keystore.TenantCreated, keystore.TenantPlanSet, keystore.TenantQuotaSet, keystore.TenantQuotaSet, keystore.TenantQuotaSet,
			keystore.TenantSuspended, keystore.TenantResumed,
		})
		events := must.Get[[]keystore.Event](t)(keystore.Collect(s.Events(ctx, keystore.EventFilter{}, 0)))
		if e := events[1]; !strings.Contains(e.Before, `"plan":"free"`) || !strings.Contains(e.After, `"plan":"pro"`) {
			t.Errorf("the event does not show the plan before and after: %s %s", e.Before, e.After)
		}
		if later := must.Get[[]keystore.Event](t)(keystore.Collect(s.Events(ctx, keystore.EventFilter{Since: c.millis() + 1}, 0))); len(later) != 0 {
			t.Errorf("%d events after the last", len(later))
		}
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		tenant := newTenant(t, s, "acme")
		plain, token := newKey(t, s, keystore.KeySpec{Tenant: tenant.ID})
		if env, err := apikey.Parse([]byte(token)); err != nil || env != apikey.Live {
			t.Errorf("the token is %s, %v", env, err)
		}
		wantEqual(t, "key", must.Get[keystore.Key](t)(s.Key(ctx, plain.ID)), keystore.Key{
			ID: plain.ID, Tenant: tenant.ID, Name: "default", Hint: token[len(token)-4:], Environment: apikey.Live,
			Scopes: "pets:read pets:write", CreatedAt: c.millis(),
		})
		spec := keystore.KeySpec{
			Tenant: tenant.ID, Name: "ci", Environment: apikey.Test, Scopes: "pets:read", ExpiresAt: c.millis() + 1000,
			Allow: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("2001:db8::/32")},
		}
		c.now = c.now.Add(time.Millisecond)
		full, fullToken := newKey(t, s, spec)
		byToken := must.Get[keystore.Key](t)(s.KeyByToken(ctx, fullToken))
		wantEqual(t, "allow-list", byToken.Allow, keystore.Prefixes{netip.MustParsePrefix("10.0.0.0/8"), spec.Allow[1]})
		wantEqual(t, "by token", byToken, full)
		wantEqual(t, "keys", must.Get[[]keystore.Key](t)(keystore.Collect(s.Keys(ctx, tenant.ID))), []keystore.Key{plain, full})
		wantEqual(t, "all keys", must.Get[[]keystore.Key](t)(keystore.Collect(s.Keys(ctx, id.Tenant{}))), []keystore.Key{plain, full})

		_, err := s.KeyByToken(ctx, fullToken[:40])
		wantError(t, err, keystore.ErrInvalid, "38 characters")
		unknown, _ := apikey.Draw(apikey.Beginning(apikey.DefaultPrefix, apikey.Live), strings.NewReader(strings.Repeat("unknown!", 50)))
		_, err = s.KeyByToken(ctx, unknown)
		wantError(t, err, keystore.ErrNotFound)
		if strings.Contains(err.Error(), unknown) {
			t.Errorf("the error shows the token: %v", err)
		}
		_, _, _, err = s.CreateKey(ctx, keystore.KeySpec{Tenant: id.Tenant{1}})
		wantError(t, err, keystore.ErrNotFound, "no tenant")
		_, _, _, err = s.CreateKey(ctx, keystore.KeySpec{Tenant: tenant.ID, ExpiresAt: c.millis()})
		wantError(t, err, keystore.ErrInvalid, "past")

		c.now = c.now.Add(time.Second)
		revoked, change, err := s.RevokeKey(ctx, plain.ID)
		if err != nil || change != 4 || revoked.RevokedAt != c.millis() {
			t.Errorf("revoke: %+v, change %d, %v", revoked, change, err)
		}
		again, change, err := s.RevokeKey(ctx, plain.ID)
		if err != nil || change != 4 {
			t.Errorf("revoke again: change %d, %v", change, err)
		}
		wantEqual(t, "revoked", again, revoked)
		_, _, err = s.RevokeKey(ctx, id.Key{1})
		wantError(t, err, keystore.ErrNotFound, "no key")
		wantEqual(t, "events", kinds(t, s), []string{
			keystore.TenantCreated, keystore.KeyCreated, keystore.KeyCreated, keystore.KeyRevoked,
		})
		wantNoSecret(t, s, token, fullToken)
	})
}

// A disabled key can be enabled again. Programs that do not know this see a revoked key.
func TestDisable(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		key, _ := newKey(t, s, keystore.KeySpec{Tenant: newTenant(t, s, "acme").ID})
		enable := func(what string) {
			t.Helper()
			if got := must.Get[keystore.Key](t)(first(s.EnableKey(ctx, key.ID))); got.RevokedAt != 0 || !got.InUse(c.millis()) {
				t.Errorf("%s: enabled: %+v", what, got)
			}
		}
		enable("a key that was not disabled")
		at := c.millis()
		for _, what := range []string{"disabled", "disabled again"} {
			got := must.Get[keystore.Key](t)(first(s.DisableKey(ctx, key.ID)))
			if got.DisabledAt() != at || got.InUse(at) || got.RevokedAt == 0 {
				t.Errorf("%s: %+v", what, got)
			}
			c.now = c.now.Add(time.Minute)
		}
		_, _, _, err := s.RotateKey(ctx, key.ID, c.millis().Add(time.Hour))
		wantError(t, err, keystore.ErrConflict, "is disabled; enable it first")
		enable("once")

		// The database lost the change, gateways reported it, and it was repeated.
		must.Get[keystore.Change](t)(s.ReportLost(ctx, []keystore.LostRefusal{{Kind: keystore.LostRevocation, Tenant: key.Tenant, Key: key.ID, At: -at}}))
		must.Get[keystore.Key](t)(first(s.DisableKey(ctx, key.ID)))
		enable("a disabling that was lost")
		if lost := must.Get[[]keystore.LostRefusal](t)(s.LostRefusals(ctx)); len(lost) > 0 {
			t.Errorf("it stays in force: %+v", lost)
		}

		must.Get[keystore.Key](t)(first(s.DisableKey(ctx, key.ID)))
		if got := must.Get[keystore.Key](t)(first(s.RevokeKey(ctx, key.ID))); got.RevokedAt != c.millis() {
			t.Errorf("revoked: %+v", got)
		}
		for _, change := range []func(context.Context, id.Key) (keystore.Key, keystore.Change, error){s.EnableKey, s.DisableKey} {
			_, _, err = change(ctx, key.ID)
			wantError(t, err, keystore.ErrConflict, "was revoked")
		}
		wantEqual(t, "events", kinds(t, s), []string{
			keystore.TenantCreated, keystore.KeyCreated, keystore.KeyDisabled, keystore.KeyEnabled, keystore.RefusalLost, keystore.KeyDisabled,
			keystore.KeyEnabled, keystore.KeyDisabled, keystore.KeyRevoked,
		})
	})
}

// A deleted tenant leaves its events and its usage. A backup from before brings its keys back as revoked.
func TestDeleteTenant(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		acme := newTenant(t, s, "acme")
		key, _ := newKey(t, s, keystore.KeySpec{Tenant: acme.ID})
		must.Get[keystore.Ban](t)(first(s.AddBan(ctx, keystore.Ban{Key: key.ID, Until: c.millis().Add(time.Hour), Reason: "test"})))
		add(t, s, registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a"}), 1,
			[]keystore.UsageRow{{Tenant: acme.ID, Key: key.ID, Outcome: "ok", Charged: true, Hour: c.millis().Truncate(time.Hour), Requests: 3}})
		b, _ := backup(t, s)
		must.Get[keystore.Key](t)(first(s.DisableKey(ctx, key.ID)))
		_, _, err := s.DeleteTenant(ctx, acme.ID)
		wantError(t, err, keystore.ErrConflict, "keys that have not ended: 1")
		must.Get[keystore.Key](t)(first(s.RevokeKey(ctx, key.ID)))
		must.Get[keystore.Tenant](t)(first(s.DeleteTenant(ctx, acme.ID)))
		_, _, err = s.DeleteTenant(ctx, acme.ID)
		wantError(t, err, keystore.ErrNotFound)
		wantEqual(t, "the deleted tenant", must.Get[keystore.Tenant](t)(s.DeletedTenant(ctx, acme.ID)), acme)
		if rows := must.Get[[]keystore.UsageRow](t)(s.Usage(ctx, acme.ID, 0)); len(rows) != 1 {
			t.Errorf("its usage: %+v", rows)
		}
		newTenant(t, s, "acme") // the name is free

		must.Get[keystore.Change](t)(prepare(t, s, b).Commit(ctx, false, false))
		if k := must.Get[keystore.Key](t)(s.Key(ctx, key.ID)); k.RevokedAt != c.millis() {
			t.Errorf("after a restore, its key: %+v", k)
		}
	})
}

// Only a plan that no tenant has is deleted, and a name that is taken is not given twice.
func TestDeletePlanAndRename(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, _ *clock) {
		ctx := t.Context()
		acme := newTenant(t, s, "acme")
		newTenant(t, s, "globex")
		_, _, err := s.RenameTenant(ctx, acme.ID, "globex")
		wantError(t, err, keystore.ErrExists, "choose another name")
		_, _, err = s.RenameTenant(ctx, acme.ID, acme.ID.String())
		wantError(t, err, keystore.ErrInvalid)
		renamed := must.Get[keystore.Tenant](t)(first(s.RenameTenant(ctx, acme.ID, "acme inc")))
		wantEqual(t, "the renamed tenant", must.Get[keystore.Tenant](t)(s.Tenant(ctx, "acme inc")), renamed)
		_, _, err = s.DeletePlan(ctx, acme.Plan)
		wantError(t, err, keystore.ErrConflict, "move them to another plan first")
		must.Get[keystore.Plan](t)(first(s.DeletePlan(ctx, "enterprise")))
		_, _, err = s.DeletePlan(ctx, "enterprise")
		wantError(t, err, keystore.ErrNotFound)
	})
}

func wantNoSecret(t *testing.T, s *keystore.Store, tokens ...string) {
	t.Helper()
	for _, e := range must.Get[[]keystore.Event](t)(keystore.Collect(s.Events(t.Context(), keystore.EventFilter{}, 0))) {
		for _, token := range tokens {
			hash := apikey.Sum([]byte(token))
			text := string(e.Before) + string(e.After)
			if strings.Contains(text, token[9:41]) || strings.Contains(text, string(hash[:])) || strings.Contains(text, "hash") {
				t.Errorf("event %d holds a secret: %s", e.ID, text)
			}
		}
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		tenant := newTenant(t, s, "acme")
		old, oldToken := newKey(t, s, keystore.KeySpec{
			Tenant: tenant.ID, Name: "ci", Scopes: "pets:read", ExpiresAt: c.millis() + 10_000,
		})
		c.now = c.now.Add(time.Second)
		graceEndsAt := c.millis() + 5000
		fresh, token, change, err := s.RotateKey(ctx, old.ID, graceEndsAt)
		if err != nil || change != 4 || token == "" || token == oldToken {
			t.Fatalf("rotate: change %d, %v", change, err)
		}
		if fresh.Scopes != "pets:read" || fresh.Name != "ci" || fresh.ExpiresAt != c.millis()+10_000 || fresh.Tenant != tenant.ID {
			t.Errorf("the new key does not take after the old one: %+v", fresh)
		}
		was := must.Get[keystore.Key](t)(s.Key(ctx, old.ID))
		if was.GraceEndsAt != graceEndsAt || was.ReplacedBy != fresh.ID || was.RevokedAt != 0 {
			t.Errorf("the old key: %+v", was)
		}
		wantEqual(t, "by the new token", must.Get[keystore.Key](t)(s.KeyByToken(ctx, token)).ID, fresh.ID)

		again, noToken, change, err := s.RotateKey(ctx, old.ID, graceEndsAt+1000)
		if err != nil || noToken != "" || change != 4 || again.ID != fresh.ID {
			t.Errorf("rotate again: %s, token %q, change %d, %v", again.ID, noToken, change, err)
		}
		if keys := must.Get[[]keystore.Key](t)(keystore.Collect(s.Keys(ctx, id.Tenant{}))); len(keys) != 2 {
			t.Errorf("%d keys, want 2", len(keys))
		}
		wantEqual(t, "the old key after that", must.Get[keystore.Key](t)(s.Key(ctx, old.ID)), was)
		c.now = graceEndsAt.Time()
		_, _, _, err = s.RotateKey(ctx, old.ID, graceEndsAt+1000)
		wantError(t, err, keystore.ErrConflict, fresh.ID.String())
		must.Get[keystore.Key](t)(first(s.RevokeKey(ctx, fresh.ID)))
		_, _, _, err = s.RotateKey(ctx, fresh.ID, graceEndsAt+1000)
		wantError(t, err, keystore.ErrConflict, "revoked")
		short, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant.ID, ExpiresAt: c.millis() + 1})
		c.now = c.now.Add(time.Second)
		_, _, _, err = s.RotateKey(ctx, short.ID, graceEndsAt+1000)
		wantError(t, err, keystore.ErrConflict, "expired")

		leaked, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant.ID})
		if fresh, _, _, err = s.RotateKey(ctx, leaked.ID, c.millis()); err != nil {
			t.Fatal(err)
		}
		if was := must.Get[keystore.Key](t)(s.Key(ctx, leaked.ID)); was.RevokedAt != c.millis() {
			t.Errorf("without a grace, the old key is not revoked: %+v", was)
		}
		_, _, _, err = s.RotateKey(ctx, leaked.ID, c.millis())
		wantError(t, err, keystore.ErrConflict, fresh.ID.String())
		wantNoSecret(t, s, oldToken, token)
	})
}

func TestBans(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		key, _ := newKey(t, s, keystore.KeySpec{Tenant: newTenant(t, s, "acme").ID})
		imposed := keystore.Ban{Key: key.ID, Until: c.millis() + 60_000, Automatic: true, Reason: "30 strikes", By: "gw-1", ImposedAt: c.millis() - 5}
		ban, change, err := s.AddBan(ctx, imposed)
		if err != nil || change != 3 || ban.Tenant != key.Tenant {
			t.Fatalf("add: %+v, change %d, %v", ban, change, err)
		}
		add := func(what string, b, want keystore.Ban, wantChange keystore.Change) {
			t.Helper()
			got, change, err := s.AddBan(ctx, b)
			if err != nil || change != wantChange {
				t.Errorf("%s: change %d, want %d; %v", what, change, wantChange, err)
			}
			wantEqual(t, what, got, want)
		}
		add("the same again", imposed, ban, 3)
		add("a shorter one", keystore.Ban{Key: key.ID, Until: c.millis() + 1000, Reason: "x"}, ban, 3)
		longer := keystore.Ban{Key: key.ID, Tenant: key.Tenant, Until: c.millis() + 90_000, Reason: "abuse", Notice: "Stop.", By: "ada", ImposedAt: c.millis()}
		add("a longer one", keystore.Ban{Key: key.ID, Until: longer.Until, Reason: "abuse", Notice: "Stop."}, longer, 4)
		wantEqual(t, "bans", must.Get[[]keystore.NamedBan](t)(s.FindBans(ctx, id.Tenant{}, "", 99)), []keystore.NamedBan{{Ban: longer, KeyName: key.Name, TenantName: "acme"}})
		wantEqual(t, "number of bans", must.Get[int](t)(s.CountBans(ctx)), 1)

		change, err = s.LiftBan(ctx, key.ID)
		if err != nil || change != 5 {
			t.Errorf("lift: change %d, %v", change, err)
		}
		change, err = s.LiftBan(ctx, key.ID)
		if err != nil || change != 5 {
			t.Errorf("lift again: change %d, %v", change, err)
		}
		if _, change, err := s.AddBan(ctx, longer); err != nil || change != 5 {
			t.Errorf("a lifted ban came back: change %d, %v", change, err)
		}
		wantEqual(t, "bans", must.Get[[]keystore.NamedBan](t)(s.FindBans(ctx, id.Tenant{}, "", 99)), []keystore.NamedBan{})
		wantEqual(t, "number of bans", must.Get[int](t)(s.CountBans(ctx)), 0)
		_, _, err = s.AddBan(ctx, keystore.Ban{Key: id.Key{1}, Until: c.millis() + 1})
		wantError(t, err, keystore.ErrNotFound)
		_, _, err = s.AddBan(ctx, keystore.Ban{Key: key.ID, Until: c.millis() - 1})
		wantError(t, err, keystore.ErrInvalid)
	})
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		one, two := newTenant(t, s, "one").ID, newTenant(t, s, "two").ID
		save := func(now instant.Millis, records ...keystore.QuotaRecord) {
			t.Helper()
			must.Do(t, s.SaveQuotas(ctx, now, records))
		}
		load := func() map[keystore.QuotaName]string {
			records := map[keystore.QuotaName]string{}
			for _, r := range must.Get[[]keystore.QuotaRecord](t)(s.LoadQuotas(ctx)) {
				records[r.QuotaName] = string(r.Record)
			}
			return records
		}
		save(1000, keystore.QuotaRecord{QuotaName: keystore.QuotaName{Tenant: one}, Record: []byte("a\x00")}, keystore.QuotaRecord{QuotaName: keystore.QuotaName{Tenant: two}, Record: []byte("b")})
		save(2000, keystore.QuotaRecord{QuotaName: keystore.QuotaName{Tenant: one}, Record: []byte("c")})
		save(1000, keystore.QuotaRecord{QuotaName: keystore.QuotaName{Tenant: one, Since: 7}, Record: []byte("e")})
		save(1000, keystore.QuotaRecord{QuotaName: keystore.QuotaName{Tenant: two, Test: true}, Record: []byte("t")},
			keystore.QuotaRecord{QuotaName: keystore.QuotaName{Tenant: two, Key: id.Key{5}}, Record: []byte("k")},
			keystore.QuotaRecord{QuotaName: keystore.QuotaName{Tenant: two, Test: true, Key: id.Key{5}, Since: 9}, Record: []byte("a")})
		wantEqual(t, "records", load(), map[keystore.QuotaName]string{
			{Tenant: one}: "c", {Tenant: one, Since: 7}: "e", {Tenant: two}: "b", {Tenant: two, Test: true}: "t",
			{Tenant: two, Key: id.Key{5}}: "k", {Tenant: two, Test: true, Key: id.Key{5}, Since: 9}: "a",
		})
		if change, err := s.ResetUsage(ctx, one); err != nil || change != 3 {
			t.Errorf("reset: change %d, %v", change, err)
		}
		save(2000 + 745*3_600_000 + 1)
		wantEqual(t, "records a month later", load(), map[keystore.QuotaName]string{})
		save(1000, keystore.QuotaRecord{QuotaName: keystore.QuotaName{Tenant: two}, Record: []byte("d")})
		save(2000 + 745*3_600_000 + 2)
		wantEqual(t, "old records are removed once an hour", load(), map[keystore.QuotaName]string{{Tenant: two}: "d"})
		save(2000 + 746*3_600_000 + 1)
		wantEqual(t, "records an hour later", load(), map[keystore.QuotaName]string{})
		_, err := s.ResetUsage(ctx, id.Tenant{1})
		wantError(t, err, keystore.ErrNotFound)
	})
}

func TestUnavailable(t *testing.T) {
	server := testkit.StartPostgres(t)
	s := keystore.New(open(t, server.URL), nil, nil, "ada")
	server.Kill(t)
	_, err := s.FindTenants(context.Background(), keystore.TenantFilter{}, "", 999)
	wantError(t, err, keystore.ErrUnavailable, "DATABASE_URL")
	_, _, err = s.CreateTenant(context.Background(), keystore.TenantSpec{Name: "x", Plan: "free"})
	wantError(t, err, keystore.ErrUnavailable)
}
