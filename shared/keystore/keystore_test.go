package keystore_test

import (
	stdcmp "cmp"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/google/go-cmp/cmp"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/schema"
	"petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// clock is a clock that a test sets.
type clock struct{ now time.Time }

func (c *clock) read() time.Time        { return c.now }
func (c *clock) millis() instant.Millis { return instant.Of(c.now) }

func open(t testing.TB, url string) *database.DB {
	t.Helper()
	return testkit.Open(t, url, schema.Migrations)
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

// refused returns a function that checks the error of a call: its kind, and that its text contains
// the given texts.
func refused(t *testing.T, kind error, texts ...string) func(results ...any) {
	return func(results ...any) {
		t.Helper()
		err, _ := results[len(results)-1].(error)
		if !errors.Is(err, kind) {
			t.Fatalf("got error %v, want one that is %q", err, kind)
		}
		for _, text := range texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("error %q does not say %q", err, text)
			}
		}
	}
}

// did returns a function that checks that a call has succeeded, and the event with which it is in
// force.
func did(t *testing.T, want keystore.Change) func(results ...any) {
	return func(results ...any) {
		t.Helper()
		if n := len(results); results[n-1] != nil || results[n-2] != want {
			t.Errorf("%+v, want change %d", results, want)
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
	return must.First[keystore.Tenant](t)(s.CreateTenant(t.Context(), keystore.TenantSpec{Name: name, Plan: "free"}))
}

func newKey(t *testing.T, s *keystore.Store, spec keystore.KeySpec) (keystore.Key, string) {
	t.Helper()
	k, token, _, err := s.CreateKey(t.Context(), spec)
	must.Do(t, err)
	return k, token
}

func events(t *testing.T, s *keystore.Store) []keystore.Event {
	t.Helper()
	return must.Get[[]keystore.Event](t)(keystore.Collect(lists.Of(s).Events(t.Context(), lists.EventFilter{}, 0)))
}

// wantEvents checks the kinds of all events. An event of a plan, a tenant or a key names it, and
// has before it what the event before left.
func wantEvents(t *testing.T, s *keystore.Store, want ...string) {
	t.Helper()
	var kinds []string
	last := map[string]string{}
	for i, e := range events(t, s) {
		if int(e.ID) != i+1 || len(e.UUID) != 26 || e.Actor != "ada" || e.At == 0 {
			t.Errorf("event %d lacks its ID, UUID, actor or time: %+v", i+1, e)
		}
		kinds = append(kinds, e.Kind)
		group, _, _ := strings.Cut(e.Kind, ".")
		about := map[string]string{"plan": `{"name":"` + e.Plan, "tenant": `{"id":"` + e.Tenant.String(), "key": `{"id":"` + e.Key.String() + `","tenantId":"` + e.Tenant.String()}[group]
		if about != "" &&
			(e.Before != last[about] || e.Before == e.After || !strings.HasPrefix(e.Before+e.After, about+`"`)) {
			t.Errorf("event %d after %q: %+v", i+1, last[about], e)
		}
		last[about] = e.After
	}
	wantEqual(t, "events", kinds, want)
}

func TestSchema(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := testkit.Open(t, url)
		s := keystore.New(db, nil, nil, "ada")
		refused(t, keystore.ErrSchema, "migrate")(s.CheckSchema(t.Context()))
		for range 2 { // a second time changes nothing
			var programs sync.WaitGroup
			for range 2 {
				programs.Go(func() {
					if err := db.Migrate(t.Context(), schema.Migrations); err != nil {
						t.Error(err)
					}
				})
			}
			programs.Wait()
			must.Do(t, s.CheckSchema(t.Context()))
			must.Equal(t, len(must.Get[[]keystore.Plan](t)(s.Plans(t.Context()))), 4, "plans")
		}
		run(t, db, "UPDATE keys_schema SET version_id = 99 WHERE version_id = 1")
		refused(t, keystore.ErrSchema, "upgrade")(s.CheckSchema(t.Context()))

		run(t, db, "ALTER TABLE keys_schema RENAME TO keystore_schema") // as before 1.0.0
		refused(t, keystore.ErrSchema, "create another database")(s.CheckSchema(t.Context()))
		if err := db.Migrate(t.Context(), schema.Migrations); !errors.Is(err, database.ErrEarlier) {
			t.Errorf("migrate earlier tables: %v", err)
		}
	})
}

// Another application has a table whose name Petgate needs.
func TestNameOfATableIsTaken(t *testing.T) {
	db := must.Get[*database.DB](t)(database.Open(testkit.Postgres(t)))
	defer db.Close()
	run(t, db, "CREATE TABLE events (id BIGINT)")
	err := db.Migrate(t.Context(), schema.Migrations)
	if err == nil || !strings.Contains(err.Error(), `"events"`) ||
		!strings.Contains(err.Error(), "create a database for Petgate alone") {
		t.Errorf("migrate beside a table events: %v", err)
	}
}

// docs/api.md lists the plans of a new database.
func TestPlans(t *testing.T) {
	t.Parallel()
	docs := string(must.Get[[]byte](t)(os.ReadFile("../../docs/api.md")))
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		seeded := must.Get[[]keystore.Plan](t)(s.Plans(ctx))
		wantEqual(t, "plans", seeded, []keystore.Plan{
			{Name: "business", Limits: plan.Limits{Minute: 1000, Day: 100_000}},
			{Name: "enterprise"},
			{Name: "free", Limits: plan.Limits{Minute: 60, Day: 1000}},
			{Name: "pro", Limits: plan.Limits{Minute: 300, Day: 10_000}},
		})
		for _, p := range seeded {
			row := "| " + p.Name + " | as agreed | as agreed |"
			if p.Limits.IsSet() {
				row = "| " + p.Name + " | " + humanize.Comma(p.Limits.Minute) + " | " + humanize.Comma(
					p.Limits.Day,
				) + " |"
			}
			if !strings.Contains(docs, row+"\n") {
				t.Errorf("docs/api.md does not have %q", row)
			}
		}
		did(t, 1)(s.CreatePlan(ctx, keystore.Plan{Name: "gold", Limits: plan.Limits{Minute: 5, Day: 50}}))
		refused(t, keystore.ErrExists, "gold", "update it")(s.CreatePlan(ctx, keystore.Plan{Name: "gold"}))
		refused(t, keystore.ErrInvalid, "lower-case")(s.CreatePlan(ctx, keystore.Plan{Name: "Gold"}))
		refused(t, keystore.ErrInvalid, "-2")(s.UpdatePlan(ctx, "gold", plan.Limits{Minute: -2}, plan.Limits{}))
		refused(t, keystore.ErrInvalid, "for test keys", "-2")(
			s.UpdatePlan(ctx, "gold", plan.Limits{}, plan.Limits{Minute: -2}),
		)
		refused(t, keystore.ErrNotFound, "silver", "no plan")(
			s.UpdatePlan(ctx, "silver", plan.Limits{Minute: 1}, plan.Limits{}),
		)
		for range 2 { // the second time changes nothing
			did(t, 2)(s.UpdatePlan(ctx, "gold", plan.Limits{Day: 70}, plan.Limits{}))
		}
		gold := keystore.Plan{Name: "gold", Limits: plan.Limits{Minute: 5, Day: 70}, CreatedAt: c.millis()}
		wantEqual(t, "gold", must.Get[keystore.Plan](t)(s.Plan(ctx, "gold")), gold)
		acme := newTenant(t, s, "acme")
		refused(t, keystore.ErrConflict, "move them to another plan first")(s.DeletePlan(ctx, acme.Plan))
		did(t, 4)(s.DeletePlan(ctx, "gold"))
		refused(t, keystore.ErrNotFound)(s.DeletePlan(ctx, "gold"))
		wantEvents(t, s, keystore.PlanCreated, keystore.PlanUpdated, keystore.TenantCreated, keystore.PlanDeleted)
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
			refused(t, keystore.ErrInvalid, text)(s.CreateTenant(ctx, keystore.TenantSpec{Name: name, Plan: "free"}))
			refused(t, keystore.ErrInvalid, text)(s.RenameTenant(ctx, tenant.ID, name))
		}
		refused(t, keystore.ErrExists, "acme ", "choose another name")(
			s.CreateTenant(ctx, keystore.TenantSpec{Name: name, Plan: "free"}),
		)
		refused(t, keystore.ErrNotFound, "no plan")(s.CreateTenant(ctx, keystore.TenantSpec{Name: "b", Plan: "none"}))
		refused(t, keystore.ErrNotFound, "nobody", "no tenant")(s.Tenant(ctx, "nobody"))
		refused(t, keystore.ErrNotFound)(s.Suspend(ctx, id.Tenant{1}))

		change, want := keystore.Change(1), tenant
		step := func(isEvent bool, edit func(*keystore.Tenant)) func(keystore.Tenant, keystore.Change, error) {
			return func(got keystore.Tenant, c keystore.Change, err error) {
				t.Helper()
				if isEvent {
					change++
				}
				edit(&want)
				did(t, change)(c, err)
				wantEqual(t, "the tenant", got, want)
			}
		}
		step(true, func(t *keystore.Tenant) { t.Plan = "pro" })(s.SetTerms(ctx, tenant.ID, "pro", plan.Limits{}))
		step(true, func(t *keystore.Tenant) { t.Override.Minute, t.MonthStarts = 7, 5 })(
			s.SetQuota(ctx, tenant.ID, plan.Limits{Minute: 7}, 5),
		)
		step(true, func(t *keystore.Tenant) { t.Override.Day = 9 })(s.SetQuota(ctx, tenant.ID, plan.Limits{Day: 9}, 0))
		step(true, func(t *keystore.Tenant) { t.Override = plan.Limits{} })(
			s.SetQuota(ctx, tenant.ID, plan.NoLimits, 0),
		)
		step(true, func(t *keystore.Tenant) { t.Suspended = true })(s.Suspend(ctx, tenant.ID))
		step(false, func(*keystore.Tenant) {})(s.Suspend(ctx, tenant.ID))
		step(true, func(t *keystore.Tenant) { t.Suspended = false })(s.Resume(ctx, tenant.ID))
		longest := strings.Repeat("ü", keystore.NameRunesMax)
		step(true, func(t *keystore.Tenant) { t.Name = longest })(s.RenameTenant(ctx, tenant.ID, longest))
		// A plan and limits of the tenant's own are set in one event, so there is no moment without
		// a quota.
		step(true, func(t *keystore.Tenant) { t.Plan, t.Override = "enterprise", plan.Limits{Minute: 5, Day: 50} })(
			s.SetTerms(ctx, tenant.ID, "enterprise", plan.Limits{Minute: 5, Day: 50}))
		refused(t, keystore.ErrNotFound, "nosuch")(s.SetTerms(ctx, tenant.ID, "nosuch", plan.Limits{}))
		refused(t, keystore.ErrInvalid)(s.SetTerms(ctx, tenant.ID, "pro", plan.Limits{Minute: -2}))
		wantEqual(t, "tenants", must.Get[[]keystore.Tenant](t)(lists.Of(s).FindTenants(ctx, lists.TenantFilter{}, "", 999)),
			[]keystore.Tenant{want})
		wantEvents(t, s, keystore.TenantCreated, keystore.TenantPlanSet, keystore.TenantQuotaSet,
			keystore.TenantQuotaSet, keystore.TenantQuotaSet, keystore.TenantSuspended, keystore.TenantResumed,
			keystore.TenantRenamed, keystore.TenantPlanSet)
		wantEqual(t, "the last event", events(t, s)[8].After, string(must.Get[[]byte](t)(json.Marshal(want))))
		full := errors.New("no room")
		refused(t, full)(
			s.PassState(
				ctx,
				keystore.StateRows{
					Plans:  func([]keystore.Plan) error { return nil },
					Tenant: func(keystore.Tenant) error { return full },
				},
			),
		)
		if later := must.Get[[]keystore.Event](t)(keystore.Collect(lists.Of(s).Events(ctx, lists.EventFilter{Since: c.millis() + 1}, 0))); len(
			later,
		) != 0 {
			t.Errorf("%d events after the last", len(later))
		}
		newTenant(t, s, "globex")
		refused(t, keystore.ErrExists, "choose another name")(s.RenameTenant(ctx, tenant.ID, "globex"))
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
		for _, of := range []id.Tenant{tenant.ID, {}} {
			wantEqual(t, "keys", must.Get[[]keystore.Key](t)(keystore.Collect(lists.Of(s).Keys(ctx, of))),
				[]keystore.Key{plain, full})
		}

		refused(t, keystore.ErrInvalid, "38 characters")(s.KeyByToken(ctx, fullToken[:40]))
		unknown, _ := apikey.Draw(apikey.Beginning(apikey.DefaultPrefix, apikey.Live),
			strings.NewReader(strings.Repeat("unknown!", 50)))
		if _, err := s.KeyByToken(ctx, unknown); !errors.Is(err, keystore.ErrNotFound) ||
			strings.Contains(err.Error(), unknown) {
			t.Errorf("an unknown token: %v", err)
		}
		refused(t, keystore.ErrNotFound, "no tenant")(s.CreateKey(ctx, keystore.KeySpec{Tenant: id.Tenant{1}}))
		refused(t, keystore.ErrInvalid, "past")(
			s.CreateKey(ctx, keystore.KeySpec{Tenant: tenant.ID, ExpiresAt: c.millis()}),
		)
		refused(t, keystore.ErrInvalid, "the name of the key: ")(
			s.CreateKey(ctx, keystore.KeySpec{Tenant: tenant.ID, Name: " "}),
		)
		tight := plan.Limits{Minute: 60, Day: 59}
		refused(t, keystore.ErrInvalid, "below the minute limit")(
			s.CreateKey(ctx, keystore.KeySpec{Tenant: tenant.ID, Limits: tight}),
		)
		refused(t, keystore.ErrInvalid, "below the minute limit")(
			s.UpdateKey(ctx, plain.ID, func(k *keystore.Key) { k.Limits = tight }),
		)

		expiring := func(within time.Duration, n int, want ...keystore.Key) {
			t.Helper()
			wantEqual(t, "keys that expire",
				must.Get[[]keystore.Key](t)(keystore.Collect(lists.Of(s).KeysExpiring(ctx, within, n))),
				append([]keystore.Key{}, want...))
		}
		expiring(998*time.Millisecond, 9) // it was created a millisecond ago
		expiring(999*time.Millisecond, 9, full)

		revoked := plain
		revoked.RevokedAt = c.millis()
		for range 2 { // the second time changes nothing
			did(t, 4)(s.RevokeKey(ctx, plain.ID))
			wantEqual(t, "revoked", must.Get[keystore.Key](t)(s.Key(ctx, plain.ID)), revoked)
			c.now = c.now.Add(time.Second)
		}
		refused(t, keystore.ErrNotFound, "no key")(s.RevokeKey(ctx, id.Key{1}))
		c.now = full.ExpiresAt.Time()
		expiring(time.Hour, 9)
		wantEvents(t, s, keystore.TenantCreated, keystore.KeyCreated, keystore.KeyCreated, keystore.KeyRevoked)
		wantNoSecret(t, s, token, fullToken)
	})
}

// A disabled key can be enabled again.
func TestDisable(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		key, _ := newKey(t, s, keystore.KeySpec{Tenant: newTenant(t, s, "acme").ID})
		enable := func(what string) {
			t.Helper()
			if got := must.First[keystore.Key](t)(s.EnableKey(ctx, key.ID)); !got.IsEnabled() ||
				!got.InUse(c.millis()) {
				t.Errorf("%s: enabled: %+v", what, got)
			}
		}
		enable("a key that was not disabled")
		at := c.millis()
		for _, what := range []string{"disabled", "disabled again"} {
			got := must.First[keystore.Key](t)(s.DisableKey(ctx, key.ID))
			if got.DisabledAt != at || got.InUse(at) || got.RevokedAt != 0 {
				t.Errorf("%s: %+v", what, got)
			}
			c.now = c.now.Add(time.Minute)
		}
		refused(t, keystore.ErrConflict, "is disabled; enable it first")(
			s.RotateKey(ctx, key.ID, c.millis().Add(time.Hour)),
		)
		enable("once")

		// The database lost the change, gateways reported it, and it was repeated.
		lost := keystore.LostRefusal{Kind: keystore.LostPause, Tenant: key.Tenant, Key: key.ID, At: at}
		did(t, 5)(s.ReportLost(ctx, []keystore.LostRefusal{lost, lost})) // it is listed once
		did(t, 6)(s.DisableKey(ctx, key.ID))
		wantEqual(t, "what is left of it", must.Get[[]keystore.LostRefusal](t)(s.LostRefusals(ctx)),
			[]keystore.LostRefusal{})
		enable("a disabling that was lost")
		wantEqual(t, "what stays in force", must.Get[[]keystore.LostRefusal](t)(s.LostRefusals(ctx)),
			[]keystore.LostRefusal{})

		did(t, 8)(s.DisableKey(ctx, key.ID))
		did(t, 9)(s.UpdateKey(ctx, key.ID, func(k *keystore.Key) { k.Name = "paused" }))
		revoked := must.First[keystore.Key](t)(s.RevokeKey(ctx, key.ID))
		must.Equal(t, revoked.RevokedAt, c.millis(), "when it was revoked")
		must.Equal(t, revoked.DisabledAt, 0, "since when a revoked key is disabled")
		refused(t, keystore.ErrConflict, "was revoked")(s.EnableKey(ctx, key.ID))
		refused(t, keystore.ErrConflict, "was revoked")(s.DisableKey(ctx, key.ID))
		wantEvents(t, s, keystore.TenantCreated, keystore.KeyCreated, keystore.KeyDisabled, keystore.KeyEnabled,
			keystore.RefusalLost, keystore.KeyDisabled, keystore.KeyEnabled, keystore.KeyDisabled, keystore.KeyUpdated,
			keystore.KeyRevoked)
	})
}

// Each event of a change of many parts has the record as the event before left it, and the last one
// has it as it is stored.
func TestEventsOfOneChange(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		acme := newTenant(t, s, "acme")
		key, _ := newKey(t, s, keystore.KeySpec{Tenant: acme.ID})
		rotated, _ := newKey(t, s, keystore.KeySpec{Tenant: acme.ID})
		apply := func(change func(*keystore.Tenant, *keystore.Key), made ...keystore.Edit[keystore.Tenant]) {
			t.Helper()
			must.Get[keystore.Change](t)(s.Apply(t.Context(), func(state keystore.State) (keystore.Edits, error) {
				was, k := acme, key
				change(&acme, &key)
				return keystore.Edits{
					Tenants: append(made, keystore.Edit[keystore.Tenant]{Before: &was, After: acme}),
					Keys:    []keystore.Edit[keystore.Key]{{Before: &k, After: key}},
				}, nil
			}))
		}
		apply(func(a *keystore.Tenant, k *keystore.Key) {
			a.Name, a.Plan, a.Suspended = "initech", "pro", true
			k.Name, k.DisabledAt = "ci", c.millis()
		}, keystore.Edit[keystore.Tenant]{After: keystore.Tenant{Name: "globex", Plan: "free", Suspended: true}})
		apply(func(a *keystore.Tenant, k *keystore.Key) {
			a.Override, a.Suspended = plan.Limits{Minute: 7}, false
			*k = k.Revoked(c.millis())
			k.Name = "old"
			k.GraceEndsAt = c.millis()
			k.ReplacedBy = rotated.ID
		})
		wantEvents(t, s, keystore.TenantCreated, keystore.KeyCreated, keystore.KeyCreated, keystore.TenantCreated,
			keystore.TenantSuspended, keystore.TenantRenamed, keystore.TenantPlanSet, keystore.TenantSuspended,
			keystore.KeyUpdated, keystore.KeyDisabled, keystore.TenantQuotaSet, keystore.TenantResumed,
			keystore.KeyUpdated, keystore.KeyRotated)
		all := events(t, s)
		stored := []any{
			must.Get[keystore.Tenant](t)(s.Tenant(t.Context(), "initech")),
			must.Get[keystore.Key](t)(s.Key(t.Context(), key.ID)),
		}
		wantEqual(t, "the records", []any{acme, key}, stored)
		for i, at := range []int{11, 13} {
			wantEqual(t, all[at].Kind, all[at].After, string(must.Get[[]byte](t)(json.Marshal(stored[i]))))
		}
	})
}

// A deleted tenant leaves its events and its usage. A backup from before brings its keys back as
// revoked.
func TestDeleteTenant(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		acme := newTenant(t, s, "acme")
		key, _ := newKey(t, s, keystore.KeySpec{Tenant: acme.ID})
		did(t, 3)(s.AddBan(ctx, keystore.Ban{Key: key.ID, Until: c.millis().Add(time.Hour), Reason: "test"}))
		add(
			t,
			s,
			registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a"}),
			1,
			[]usage.Row{
				{Tenant: acme.ID, Key: key.ID, Outcome: "ok", Charged: true, Hour: c.millis().Truncate(time.Hour), Requests: 3},
			},
		)
		b := backedUp(t, s)
		did(t, 4)(s.DisableKey(ctx, key.ID))
		refused(t, keystore.ErrConflict, "keys that have not ended: 1")(s.DeleteTenant(ctx, acme.ID))
		did(t, 5)(s.RevokeKey(ctx, key.ID))
		did(t, 6)(s.DeleteTenant(ctx, acme.ID))
		refused(t, keystore.ErrNotFound)(s.DeleteTenant(ctx, acme.ID))
		wantEqual(t, "the deleted tenant", must.Get[keystore.Tenant](t)(lists.Of(s).DeletedTenant(ctx, acme.ID)), acme)
		wantEqual(t, "rows of its usage", len(must.Get[[]usage.Row](t)(usage.Of(s).Usage(ctx, acme.ID, 0))), 1)
		newTenant(t, s, "acme") // the name is free

		globex := newTenant(t, s, "globex").ID
		newKey(t, s, keystore.KeySpec{Tenant: globex, ExpiresAt: c.millis() + 1000})
		fresh := rotate(t, s, keyOf(t, s, globex, "rotated").ID, c.millis()+1000)
		must.First[keystore.Key](t)(s.RevokeKey(ctx, fresh.ID))
		c.now = c.now.Add(999 * time.Millisecond)
		refused(t, keystore.ErrConflict, "tenant globex has keys that have not ended: 2. Revoke them first")(
			s.DeleteTenant(ctx, globex),
		)
		c.now = c.now.Add(time.Millisecond)
		must.First[keystore.Tenant](t)(s.DeleteTenant(ctx, globex))

		must.Get[keystore.Change](t)(prepare(t, s, b).Commit(ctx, false, false))
		must.Equal(t, must.Get[keystore.Key](t)(s.Key(ctx, key.ID)).RevokedAt, c.millis(),
			"after a restore, when its key was revoked")
	})
}

func wantNoSecret(t *testing.T, s *keystore.Store, tokens ...string) {
	t.Helper()
	for _, e := range events(t, s) {
		for _, token := range tokens {
			hash := apikey.Sum([]byte(token))
			text := string(e.Before) + string(e.After)
			if strings.Contains(text, token[9:41]) || strings.Contains(text, string(hash[:])) ||
				strings.Contains(text, "hash") {
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
			Tenant: tenant.ID, Name: "ci", Environment: apikey.Test, Scopes: "pets:read", Allow: keystore.Prefixes{netip.MustParsePrefix("203.0.113.0/24")},
			ExpiresAt: c.millis() + 10_000, Limits: plan.Limits{Minute: 5},
		})
		c.now = c.now.Add(time.Second)
		graceEndsAt := c.millis() + 5000
		fresh, token, change, err := s.RotateKey(ctx, old.ID, graceEndsAt)
		if err != nil || change != 4 || token == "" || token == oldToken {
			t.Fatalf("rotate: change %d, %v", change, err)
		}
		want := old
		want.ID, want.Hint, want.CreatedAt, want.ExpiresAt = fresh.ID, fresh.Hint, c.millis(), c.millis()+10_000
		wantEqual(t, "the new key", fresh, want)
		was := must.Get[keystore.Key](t)(s.Key(ctx, old.ID))
		if was.GraceEndsAt != graceEndsAt || was.ReplacedBy != fresh.ID || was.RevokedAt != 0 {
			t.Errorf("the old key: %+v", was)
		}
		wantEqual(t, "by the new token", must.Get[keystore.Key](t)(s.KeyByToken(ctx, token)).ID, fresh.ID)

		again, noToken, change, err := s.RotateKey(ctx, old.ID, graceEndsAt+1000)
		if err != nil || noToken != "" || change != 4 {
			t.Errorf("rotate again: token %q, change %d, %v", noToken, change, err)
		}
		wantEqual(t, "the new key after that", again, fresh)
		wantEqual(t, "all keys after that", must.Get[[]keystore.Key](t)(keystore.Collect(lists.Of(s).Keys(ctx, id.Tenant{}))),
			[]keystore.Key{was, fresh})
		c.now = graceEndsAt.Time()
		refused(t, keystore.ErrConflict, fresh.ID.String())(s.RotateKey(ctx, old.ID, graceEndsAt+1000))
		expiring := func() []keystore.Key {
			return must.Get[[]keystore.Key](t)(keystore.Collect(lists.Of(s).KeysExpiring(ctx, time.Hour, 9)))
		}
		wantEqual(t, "keys that expire", expiring(), []keystore.Key{fresh})
		did(t, 5)(s.RevokeKey(ctx, fresh.ID))
		wantEqual(t, "keys that expire after a revocation", expiring(), []keystore.Key{})
		refused(t, keystore.ErrConflict, "was revoked at "+c.millis().String()+"; create another key")(
			s.RotateKey(ctx, fresh.ID, graceEndsAt+1000),
		)
		short, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant.ID, ExpiresAt: c.millis() + 1})
		c.now = c.now.Add(time.Second)
		refused(t, keystore.ErrConflict, "expired")(s.RotateKey(ctx, short.ID, graceEndsAt+1000))

		leaked, _ := newKey(t, s, keystore.KeySpec{Tenant: tenant.ID})
		fresh = rotate(t, s, leaked.ID, c.millis())
		must.Equal(t, must.Get[keystore.Key](t)(s.Key(ctx, leaked.ID)).RevokedAt, c.millis(),
			"without a grace, when the old key was revoked")
		refused(t, keystore.ErrConflict, fresh.ID.String())(s.RotateKey(ctx, leaked.ID, c.millis()))
		refused(t, keystore.ErrInvalid, "a grace period needs an end")(s.RotateKey(ctx, fresh.ID, 0))
		wantNoSecret(t, s, oldToken, token)
	})
}

func TestBans(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		key, _ := newKey(t, s, keystore.KeySpec{Tenant: newTenant(t, s, "acme").ID})
		imposed := keystore.Ban{
			Key:       key.ID,
			Until:     c.millis() + 60_000,
			Automatic: true,
			Reason:    "30 strikes",
			By:        "gw-1",
			ImposedAt: c.millis() - 5,
		}
		ban := imposed
		ban.Tenant = key.Tenant
		add := func(what string, b, want keystore.Ban, wantChange keystore.Change) {
			t.Helper()
			got, change, err := s.AddBan(ctx, b)
			did(t, wantChange)(change, err)
			wantEqual(t, what, got, want)
		}
		add("a ban", imposed, ban, 3)
		add("the same again", imposed, ban, 3)
		add("one that is as long", keystore.Ban{Key: key.ID, Until: c.millis() + 60_000, Reason: "x"}, ban, 3)
		longer := keystore.Ban{
			Key:       key.ID,
			Tenant:    key.Tenant,
			Until:     c.millis() + 90_000,
			Reason:    "abuse",
			Notice:    "Stop.",
			By:        "ada",
			ImposedAt: c.millis(),
		}
		add("a longer one", keystore.Ban{Key: key.ID, Until: longer.Until, Reason: "abuse", Notice: "Stop."}, longer, 4)
		wantEqual(t, "bans", must.Get[[]lists.NamedBan](t)(lists.Of(s).FindBans(ctx, id.Tenant{}, "", 99)),
			[]lists.NamedBan{{Ban: longer, KeyName: key.Name, TenantName: "acme"}})
		wantEqual(t, "number of bans", must.Get[int](t)(lists.Of(s).CountBans(ctx)), 1)

		for range 2 { // the second time changes nothing
			did(t, 5)(s.LiftBan(ctx, key.ID))
		}
		did(t, 5)(s.AddBan(ctx, longer)) // it does not come back
		var read []keystore.BanRow
		rows := keystore.Rows{
			Expect: func(int, int) {}, Lost: func([]keystore.LostRefusal) {}, Plan: func(keystore.Plan) {}, Tenant: func(*keystore.TenantRow) {},
			Key: func(*keystore.KeyRow) {}, Ban: func(b keystore.BanRow) { read = append(read, b) },
		}
		must.Get[[]keystore.EventRow](t)(s.Tail(ctx, 4, events(t, s)[3].UUID, 9, rows))
		wantEqual(t, "the lifted ban", read, []keystore.BanRow{{Key: key.ID, Notice: "Stop."}})
		wantBans := func(n, loaded int) {
			t.Helper()
			read = nil
			must.First[keystore.Change](t)(s.Load(ctx, rows))
			wantEqual(t, "bans that gateways load", len(read), loaded)
			wantEqual(t, "number of bans", must.Get[int](t)(lists.Of(s).CountBans(ctx)), n)
			wantEqual(t, "bans of keys", len(must.Get[map[id.Key]keystore.Ban](t)(lists.Of(s).BansOf(ctx, []id.Key{key.ID}))), n)
			for _, of := range []id.Tenant{{}, key.Tenant} {
				wantEqual(t, "bans", len(must.Get[[]lists.NamedBan](t)(lists.Of(s).FindBans(ctx, of, "", 99))), n)
			}
		}
		wantBans(0, 0)
		others := longer
		others.By = "bob" // at the same instant
		add("another operator's", others, others, 6)
		wantBans(1, 1)
		refused(t, keystore.ErrNotFound)(s.AddBan(ctx, keystore.Ban{Key: id.Key{1}, Until: c.millis() + 1}))
		refused(t, keystore.ErrInvalid)(s.AddBan(ctx, keystore.Ban{Key: key.ID, Until: c.millis()}))
		c.now = longer.Until.Time()
		wantBans(0, 1)                    // the clock of a gateway may be ahead
		did(t, 6)(s.LiftBan(ctx, key.ID)) // it has ended
		c.now = c.now.Add(time.Second)
		late := keystore.Ban{
			Key:       key.ID,
			Tenant:    key.Tenant,
			Until:     c.millis() - 1,
			Reason:    "30 strikes",
			By:        "gw-1",
			ImposedAt: c.millis() - 2,
		}
		add("one that ended before it is stored", late, late, 7)
		var history [][2]keystore.Ban // before and after
		for _, e := range events(t, s)[2:] {
			var bans [2]keystore.Ban
			for i, text := range []string{e.Before, e.After} {
				must.Do(t, json.Unmarshal([]byte(stdcmp.Or(text, "{}")), &bans[i]))
			}
			if history = append(history, bans); e.Tenant != key.Tenant || e.Key != key.ID {
				t.Errorf("an event of a ban is about %s of %s", e.Key, e.Tenant)
			}
		}
		none := keystore.Ban{}
		wantEqual(t, "history", history,
			[][2]keystore.Ban{{none, ban}, {ban, longer}, {longer, none}, {none, others}, {none, late}})
	})
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		quotas := usage.Of(s)
		one, two := newTenant(t, s, "one").ID, newTenant(t, s, "two").ID
		type name = usage.QuotaName
		save := func(now instant.Millis, texts map[name]string) {
			t.Helper()
			var records []usage.QuotaRecord
			for name, text := range texts {
				records = append(records, usage.QuotaRecord{QuotaName: name, Record: []byte(text)})
			}
			must.Do(t, quotas.SaveQuotas(ctx, now, records))
		}
		load := func() map[name]string {
			records := map[name]string{}
			for _, r := range must.Get[[]usage.QuotaRecord](t)(quotas.LoadQuotas(ctx)) {
				records[r.QuotaName] = string(r.Record)
			}
			return records
		}
		all := map[name]string{
			{Tenant: one}: "a\x00", {Tenant: one, Since: 7}: "e", {Tenant: two}: "b", {Tenant: two, Test: true}: "t",
			{Tenant: two, Key: id.Key{5}}: "k", {Tenant: two, Test: true, Key: id.Key{5}, Since: 9}: "a",
		}
		save(1000, all)
		save(2000, map[name]string{{Tenant: one}: "c"})
		all[name{Tenant: one}] = "c"
		wantEqual(t, "records", load(), all)
		did(t, 3)(s.ResetUsage(ctx, one))
		save(2000+745*hour+1, nil)
		wantEqual(t, "records a month later", load(), map[name]string{})
		last := map[name]string{{Tenant: two}: "d"}
		save(1000, last)
		save(2000+745*hour+2, nil)
		wantEqual(t, "old records are removed once an hour", load(), last)
		save(2000+746*hour+1, nil)
		wantEqual(t, "records an hour later", load(), map[name]string{})
		refused(t, keystore.ErrNotFound)(s.ResetUsage(ctx, id.Tenant{1}))
	})
}
