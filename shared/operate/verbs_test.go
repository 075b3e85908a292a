package operate_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/golden"
	"petgate/shared/testkit/must"
)

// noon is when the tests begin.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// operator returns an operator of a new database with tenant acme on plan free and its key ci.
// clock is its time.
func operator(t *testing.T) (o operate.Operator, ci operate.KeyRef, clock *time.Time) {
	t.Helper()
	return operatorOf(t, testkit.Open(t, testkit.SQLite(t), schema.Migrations))
}

func operatorOf(t *testing.T, db *database.DB) (o operate.Operator, ci operate.KeyRef, clock *time.Time) {
	t.Helper()
	now := noon
	clock = &now
	read := func() time.Time { return *clock }
	o = operate.Operator{Store: keystore.New(db, read, nil, "ada"), Clock: read}
	done(t, o, operate.CreateTenant{Name: "acme", Plan: "free"})
	return o, keyOf(t, done(t, o, operate.CreateKey{TenantRef: acme, Name: "ci"})), clock
}

// keyOf is the key that was created.
func keyOf(t *testing.T, r operate.Outcome) (key operate.KeyRef) {
	t.Helper()
	v, isNew := r.NewKey()
	if !isNew {
		t.Fatal("a new key has no token")
	}
	must.Do(t, key.Key.UnmarshalText([]byte(v.ID)))
	return key
}

var acme = operate.TenantRef{Tenant: "acme"}

// done makes a change.
func done(t *testing.T, o operate.Operator, verb operate.Preparer) operate.Outcome {
	t.Helper()
	return must.Get[operate.Outcome](t)(
		must.Get[operate.Operation](t)(verb.Prepare(t.Context(), o)).Change(t.Context()),
	)
}

var (
	random = regexp.MustCompile(
		`ptg_(live|test)_\w{20,}|"hint":"\w+"|("ageMillis":|127.0.0.1:)\d{5,}|"registeredAt":"2[^"]+"`,
	)
	named = regexp.MustCompile(`(key_|ten_)[0-9a-z]{16}|\d{5,} days`)
)

// plain replaces what differs from run to run.
func plain(text string) string {
	return named.ReplaceAllStringFunc(random.ReplaceAllString(text, ""), func(s string) string {
		return map[bool]string{s[0] == 'k': "KEY", s[0] == 't': "TENANT", s[0] <= '9': "AGE"}[true]
	})
}

// verbTables are the tables that verbs read.
var verbTables = []string{"plans", "tenants", "tenant_keys", "bans", "events", "gateways", "lost_refusals"}

// withoutTables asks the same without each of the tables: what cannot be read is not taken for an
// answer.
func withoutTables(t *testing.T, db *database.DB, tables []string, ask func(away string) (string, error)) string {
	t.Helper()
	want := must.Get[string](t)(ask(""))
	for _, away := range tables {
		must.Get[sql.Result](t)(db.Exec("ALTER TABLE " + away + " RENAME TO away"))
		if got, err := ask(away); err == nil && got != want {
			t.Errorf("without %s: %s\nwant an error, or %s", away, got, want)
		}
		must.Get[sql.Result](t)(db.Exec("ALTER TABLE away RENAME TO " + away))
	}
	return want
}

func asJSON(t *testing.T, view any) string {
	t.Helper()
	return plain(string(must.Get[[]byte](t)(json.Marshal(view))))
}

func init() { operate.AskWithin = time.Minute } // on a busy machine, too

// What each verb asks, what it says when it has made its change, and what it says when it is
// repeated. The rows follow one another. What else programs get is in testdata/verbs.golden.
func TestVerbs(t *testing.T) {
	t.Parallel()
	db := testkit.Open(t, testkit.SQLite(t), schema.Migrations)
	o, ci, clock := operatorOf(t, db)
	b := keyOf(t, done(t, o, operate.CreateKey{TenantRef: acme, Name: "b"}))
	tenant := must.Get[operate.Owner](t)(o.Tenant(t.Context(), "acme")).ID
	for _, gateway := range []keystore.Registration{
		{ID: "gw-1", Incarnation: "a", AdminAddress: "10.0.0.5:9090"},
		{ID: "gw-2", Incarnation: "a"},
		{ID: "gw-2", Incarnation: "b"},
	} {
		must.Get[int64](t)(o.Store.Register(t.Context(), gateway, nil))
	}
	must.Get[sql.Result](t)(db.Exec("UPDATE gateways SET seen_at = 1000"))
	must.Get[keystore.Change](t)(o.Store.ReportLost(t.Context(), []keystore.LostRefusal{
		{Kind: keystore.LostRevocation, Tenant: tenant, Key: ci.Key.Key, At: instant.Of(*clock)},
		{Kind: keystore.LostPause, Tenant: tenant, Key: b.Key.Key, At: instant.Of(*clock)},
		{Kind: keystore.LostSuspension, Tenant: tenant},
	}))
	const (
		noQuota = "\nTenant acme has no quota: plan enterprise has no limits. " +
			"Its requests are refused with 403 quota_not_set.\n" +
			"Set its limits: keyadmin tenant set-quota acme --minute N --day N"
		begins  = " Its month still begins on day 15: --month-starts 1 changes that."
		cleared = " In force: 300 requests per minute, 10,000 per day." + begins
		own     = " Limits belong to the tenant: all its keys share 60 requests per minute, 1,000 per day."
		noToken = "\nThe new token cannot be shown again. If it is lost: keyadmin key rotate KEY"
	)
	limits := func(minute, day, month operate.LimitChange) operate.LimitChanges {
		return operate.LimitChanges{Minute: minute, Day: day, Month: month}
	}
	starts := func(day operate.MonthStarts) operate.MonthStart { return operate.MonthStart{MonthStarts: day} }
	once := operate.Repeatable{IfNotExists: true}
	grace := func(d time.Duration) operate.Delay { return operate.Delay{Given: true, Length: d} }
	var got strings.Builder
	for _, c := range []struct {
		verb                  operate.Preparer
		question, done, again string // again is empty: it is not repeated
	}{
		{
			operate.DropLost{ID: tenant.String()},
			"Accept TENANT again? The database has lost its refusal. It was suspended, as gateway ada reported at 2026-03-01T12:00:00Z.",
			"Dropped the lost refusal of TENANT.", "",
		},
		{
			operate.DropLost{ID: ci.Key.String()},
			"Accept KEY again? The database has lost its refusal. " +
				"It was revoked at 2026-03-01T12:00:00Z, as gateway ada reported at 2026-03-01T12:00:00Z.",
			"Dropped the lost refusal of KEY.", "",
		},
		{
			operate.DropLost{ID: b.Key.String()},
			"Accept KEY again? The database has lost its refusal. " +
				"It was disabled at 2026-03-01T12:00:00Z, as gateway ada reported at 2026-03-01T12:00:00Z.",
			"Dropped the lost refusal of KEY.", "",
		},
		{
			operate.CreateTenant{Name: "glo bex", Plan: "pro", Repeatable: once},
			"", "Created tenant glo bex on plan pro. Its first key: keyadmin key create 'glo bex'",
			"Tenant glo bex already exists. It was not changed.",
		},
		{
			operate.RenameTenant{TenantRef: operate.TenantRef{Tenant: "glo bex"}, Name: "globex"},
			"",
			"Renamed tenant glo bex to globex.", "",
		},
		{
			operate.RenameTenant{TenantRef: operate.TenantRef{Tenant: "globex"}, Name: "globex"},
			"",
			"The tenant already has the name globex.", "",
		},
		{
			operate.DeleteTenant{TenantRef: operate.TenantRef{Tenant: "globex"}},
			"Delete tenant globex and the records of its keys? It cannot be undone. The audit log and its usage stay, under TENANT.",
			"Deleted tenant globex. Its usage and its changes stay, under TENANT.", "",
		},
		{
			operate.SuspendTenant{TenantRef: acme},
			"Suspend tenant acme? All its keys will be refused.",
			"Suspended tenant acme.", "Tenant acme was already suspended.",
		},
		{
			operate.CreateKey{TenantRef: acme, Name: "ci", Repeatable: once},
			"",
			`Key KEY "ci" of tenant acme already exists. Its token cannot be shown again.`, "",
		},
		{
			operate.CreateKey{TenantRef: acme, Name: "t", Minute: 60, Environment: apikey.Test},
			"",
			`Created test key KEY "t" of tenant acme. ` +
				"Its own limit of 60 requests per minute never binds: its tenant has 60." + own +
				" This key's own limits: 60 requests per minute." +
				"\nTenant acme is suspended: its keys are refused. To resume it: keyadmin tenant resume acme", "",
		},
		{operate.ResumeTenant{TenantRef: acme}, "", "Resumed tenant acme.", "Tenant acme was not suspended."},
		{operate.ResetUsage{TenantRef: acme}, "Set the usage of tenant acme back to zero?", "Reset the usage of tenant acme.", ""},

		{
			operate.SetLimits{TenantRef: acme, LimitChanges: limits(200, 5000, 0)},
			"",
			"Changed the limits of tenant acme: 60 → 200 requests per minute, 1,000 → 5,000 requests per day. " +
				"In force: 200 requests per minute, 5,000 per day.",
			"Tenant acme already had these limits. In force: 200 requests per minute, 5,000 per day.",
		},
		{
			operate.SetLimits{TenantRef: acme, LimitChanges: limits(100, 0, 0), MonthStart: starts(15)},
			"Lower the limits of tenant acme: 200 → 100 requests per minute?",
			"Changed the limits of tenant acme: 200 → 100 requests per minute. " +
				"The month of tenant acme begins on day 15. In force: 100 requests per minute, 5,000 per day.",
			"Tenant acme already had these limits. In force: 100 requests per minute, 5,000 per day.",
		},
		{
			operate.SetLimits{TenantRef: acme, LimitChanges: limits(0, 0, plan.None), MonthStart: starts(15)},
			"", "Tenant acme already had these limits. In force: 100 requests per minute, 5,000 per day.", "",
		},
		{
			operate.MoveTenant{TenantRef: acme, Plan: "pro"},
			"",
			"Tenant acme moved from plan free to pro. Its own limits stay: 100 requests per minute, 5,000 per day." +
				"\nTo clear them: keyadmin tenant set-quota acme --clear",
			"Tenant acme was already on plan pro.",
		},
		{
			operate.MoveTenant{TenantRef: acme, Plan: "free", NewLimits: operate.NewLimits{Minute: 90}},
			"Move tenant acme from plan pro to free, which lowers its limits: 100 → 90 requests per minute?",
			"Tenant acme moved from plan pro to free: 100 → 90 requests per minute.", "",
		},
		{
			operate.MoveTenant{TenantRef: acme, Plan: "pro", NewLimits: operate.NewLimits{Minute: 100}},
			"", "Tenant acme moved from plan free to pro: 90 → 100 requests per minute.", "",
		},
		{
			operate.SetLimits{TenantRef: acme, Clear: true},
			"", "Changed the limits of tenant acme: 100 → 300 requests per minute, 5,000 → 10,000 requests per day." + cleared,
			"Tenant acme already had these limits." + cleared,
		},
		{
			operate.SetLimits{TenantRef: acme, LimitChanges: limits(300, 0, 0)},
			"",
			"Changed the limits of tenant acme. They are the same as its plan's. " +
				"In force: 300 requests per minute, 10,000 per day.",
			"",
		},
		{operate.ClearLimits{TenantRef: acme}, "", "Changed the limits of tenant acme. They are the same as its plan's." + cleared, ""},
		{
			operate.MoveTenant{TenantRef: acme, Plan: "enterprise"},
			"Move tenant acme to plan enterprise, which has no limits? " +
				"Unless it gets limits of its own with this change, all its requests will be refused.",
			"Tenant acme moved from plan pro to enterprise: 300 → not set requests per minute, " +
				"10,000 → not set requests per day." + noQuota,
			"Tenant acme was already on plan enterprise." + noQuota,
		},
		{
			operate.MoveTenant{TenantRef: acme, Plan: "enterprise", NewLimits: operate.NewLimits{Month: 70}},
			"", "Changed the limits of tenant acme: not set → 70 requests per month.", "",
		},
		{
			operate.ClearLimits{TenantRef: acme},
			"Remove the limits of tenant acme, so that those of plan enterprise apply (it has no limits: " +
				"all requests of the tenant are refused)?",
			"Changed the limits of tenant acme: 70 → not set requests per month." + begins + noQuota, "",
		},
		{operate.CreatePlan{Name: "bespoke"}, "", "Created plan bespoke without limits: each of its tenants needs limits of its own.", ""},
		{
			operate.MoveTenant{TenantRef: acme, Plan: "bespoke"},
			"", "Tenant acme moved from plan enterprise to bespoke." + strings.Replace(noQuota, "enterprise", "bespoke", 1), "",
		},
		{
			operate.MoveTenant{TenantRef: acme, Plan: "business"},
			"",
			"Tenant acme moved from plan bespoke to business: not set → 1,000 requests per minute, " +
				"not set → 100,000 requests per day.",
			"",
		},
		{
			operate.MoveTenant{TenantRef: acme, Plan: "free"},
			"Move tenant acme from plan business to free, which lowers its limits: 1,000 → 60 requests per minute, " +
				"100,000 → 1,000 requests per day?",
			"Tenant acme moved from plan business to free: 1,000 → 60 requests per minute, 100,000 → 1,000 requests per day.", "",
		},

		{
			operate.CreatePlan{
				Name: "gold", Repeatable: once,
				NewLimits: operate.NewLimits{Minute: 600, Month: 3_000_000}, TestMinute: 60,
			},
			"", "Created plan gold: 600 requests per minute, 3,000,000 per month.", "Plan gold already exists. It was not changed.",
		},
		{
			operate.UpdatePlan{Plan: "gold", LimitChanges: limits(500, 0, 0)},
			"", "Changed plan gold for its 0 tenants: 600 → 500 requests per minute.",
			"Plan gold already had these limits.",
		},
		{
			operate.UpdatePlan{Plan: "free", LimitChanges: limits(50, 0, 0)},
			"Lower plan free for its 1 tenant: 60 → 50 requests per minute?",
			"Changed plan free for its 1 tenant: 60 → 50 requests per minute.", "",
		},
		{
			operate.UpdatePlan{Plan: "free", LimitChanges: limits(55, 0, 0)},
			"",
			"Changed plan free for its 1 tenant: 50 → 55 requests per minute.", "",
		},
		{
			operate.UpdatePlan{Plan: "free", TestMinute: 20},
			"Lower plan free for its 1 tenant: of test keys: not set → 20 requests per minute?",
			"Changed plan free for its 1 tenant: of test keys: not set → 20 requests per minute.", "",
		},
		{
			operate.UpdatePlan{Plan: "gold", LimitChanges: limits(0, 0, plan.None), TestMinute: plan.None},
			"",
			"Changed plan gold for its 0 tenants: 3,000,000 → not set requests per month, of test keys: " +
				"60 → not set requests per minute.",
			"",
		},
		{
			operate.SetLimits{TenantRef: acme, LimitChanges: limits(0, 0, plan.None), MonthStart: starts(1)},
			"", "The month of tenant acme begins on day 1. In force: 55 requests per minute, 1,000 per day.", "",
		},
		{
			operate.ClearLimits{TenantRef: acme},
			"",
			"Tenant acme already had these limits. In force: 55 requests per minute, 1,000 per day.", "",
		},
		{operate.DeletePlan{Plan: "gold"}, "Delete plan gold?", "Deleted plan gold.", ""},

		{
			operate.UpdateKey{
				KeyRef: ci, Name: "build", Scopes: []operate.Scope{"pets:read"},
				Allow: blocks(t, "10.0.0.0/8"), Minute: 5, Day: 50,
			},
			`Lower the limits of key KEY "ci" of tenant acme: allowed from - → 10.0.0.0/8, limit per day - → 50, ` +
				`limit per minute - → 5, name "ci" → "build", scopes pets:read pets:write → pets:read?`,
			`Changed key KEY "ci" of tenant acme: allowed from - → 10.0.0.0/8, limit per day - → 50, ` +
				`limit per minute - → 5, name "ci" → "build", scopes pets:read pets:write → pets:read.`,
			`Key KEY "build" of tenant acme already has these settings.`,
		},
		{
			operate.UpdateKey{KeyRef: ci, Minute: 4, AllowAny: true},
			`Lower the limits of key KEY "build" of tenant acme: allowed from 10.0.0.0/8 → -, limit per minute 5 → 4?`,
			`Changed key KEY "build" of tenant acme: allowed from 10.0.0.0/8 → -, limit per minute 5 → 4.`, "",
		},
		{
			operate.DisableKey{KeyRef: ci},
			`Disable key KEY "build" of tenant acme? It is refused until it is enabled.`,
			`Disabled key KEY "build" of tenant acme.`, `Key KEY "build" of tenant acme was already disabled.`,
		},
		{operate.EnableKey{KeyRef: ci}, "", `Enabled key KEY "build" of tenant acme.`, `Key KEY "build" of tenant acme was not disabled.`},
		{
			operate.AddBan{KeyRef: ci, For: operate.Period(time.Hour), Reason: "scraping", Tell: "Write to us."},
			`Ban key KEY "build" of tenant acme until 2026-03-01T13:00:00Z?`,
			`Banned key KEY "build" of tenant acme until 2026-03-01T13:00:00Z.`, "",
		},
		{
			operate.AddBan{KeyRef: ci, For: operate.Period(time.Minute), Reason: "again"},
			`Ban key KEY "build" of tenant acme until 2026-03-01T12:01:00Z?`,
			`Key KEY "build" of tenant acme is already banned for longer, by ada until 2026-03-01T13:00:00Z.`, "",
		},
		{
			operate.LiftBan{KeyRef: ci},
			"", `Lifted the ban of key KEY "build" of tenant acme.`,
			`Key KEY "build" of tenant acme is not banned.`,
		},
		{
			operate.RotateKey{KeyRef: ci, Grace: grace(3 * time.Hour)},
			`Rotate key KEY "build" of tenant acme? The old token works until 2026-03-01T15:00:00Z.`,
			`Rotated key KEY "build" of tenant acme: KEY "build" replaces it. The old key works until 2026-03-01T15:00:00Z.`,
			`Key KEY "build" of tenant acme was already rotated: KEY "build" replaces it. ` +
				"The old key works until 2026-03-01T15:00:00Z. " +
				"A grace period does not get longer. To end it now: keyadmin key revoke KEY" + noToken,
		},
		{
			operate.RotateKey{KeyRef: ci, Grace: grace(2 * time.Hour)},
			`Key KEY "build" of tenant acme was already rotated: KEY replaces it. ` +
				`Let the old token end at 2026-03-01T14:00:00Z, not at 2026-03-01T15:00:00Z?`,
			`The old key KEY "build" of tenant acme works until 2026-03-01T14:00:00Z, ` +
				`not until 2026-03-01T15:00:00Z: KEY "build" replaces it.` + noToken,
			"",
		},
		{
			operate.RotateKey{KeyRef: ci},
			"", `Key KEY "build" of tenant acme was already rotated: KEY "build" replaces it. ` +
				"The old key works until 2026-03-01T14:00:00Z. To end it now: keyadmin key revoke KEY" + noToken, "",
		},
		{
			operate.RotateKey{KeyRef: ci, Grace: grace(0)},
			`Key KEY "build" of tenant acme was already rotated: KEY replaces it. ` +
				`Let the old token end at 2026-03-01T12:00:00Z, not at 2026-03-01T14:00:00Z?`,
			`Ended the old key KEY "build" of tenant acme: KEY "build" replaces it.` + noToken, "",
		},
		{
			operate.RevokeKey{KeyRef: b},
			`Revoke key KEY "b" of tenant acme? It cannot be undone.`,
			`Revoked key KEY "b" of tenant acme.`, `Key KEY "b" of tenant acme was already revoked.`,
		},
		{
			operate.CreateKey{TenantRef: acme, Name: "b", Repeatable: once},
			"",
			`Created live key KEY "b" of tenant acme.` + strings.Replace(own, "60", "55", 1), "",
		},
		{
			operate.ForgetGateway{Gateway: "gw-2"},
			"Forget gateway gw-2? It is replaced, was last seen AGE ago, and has yet to apply 51 changes. " +
				"If it still runs, it may accept revoked keys.",
			"Forgot gateway gw-2.", "",
		},
		{
			operate.ForgetGateway{Gateway: "gw-1"},
			"Forget gateway gw-1 (10.0.0.5)? It is silent, was last seen AGE ago, and has yet to apply 52 changes. " +
				"If it still runs, it may accept revoked keys.",
			"Forgot gateway gw-1 (10.0.0.5).", "",
		},
	} {
		for _, want := range []string{c.done, c.again} {
			if want == "" {
				continue
			}
			withoutTables(t, db, verbTables, func(away string) (string, error) {
				op, err := c.verb.Prepare(t.Context(), o)
				if err == nil && away == "events" { // every change is one
					_, err = op.Change(t.Context())
				}
				return fmt.Sprint(op.Question, away == "events" && err == nil), err
			})
			op := must.Get[operate.Operation](t)(c.verb.Prepare(t.Context(), o))
			r, err := op.Change(t.Context())
			fmt.Fprintf(&got, "%T: harmless %t, %s; asks %q; event %d, %q\n%s\n", c.verb, op.Harmless, op.Laggard,
				plain(op.Question), r.Change, plain(r.Line), asJSON(t, r.View))
			if got := plain(r.Done + r.Hint); err != nil || got != want ||
				want == c.done && plain(op.Question) != c.question {
				t.Errorf("%#v: %v\nasks %q\nwant %q\nsays %q\nwant %q", c.verb, err, plain(op.Question), c.question,
					got, want)
			}
		}
	}
	golden.Check(t, "verbs", got.String())
	revoked := keyOf(t, done(t, o, operate.CreateKey{TenantRef: acme, Name: "c"}))
	done(t, o, operate.RotateKey{KeyRef: revoked})
	done(t, o, operate.RevokeKey{KeyRef: revoked})
	for _, gone := range []operate.Preparer{
		operate.DropLost{ID: b.Key.String()},
		operate.ForgetGateway{Gateway: "gw-1"},
		operate.AddBan{},
		operate.LiftBan{},
		operate.DisableKey{},
		operate.EnableKey{},
		operate.RevokeKey{},
		operate.RotateKey{},
		operate.UpdateKey{},
		operate.CreateKey{},
		operate.UpdatePlan{},
		operate.RenameTenant{},
		operate.SuspendTenant{},
		operate.ResumeTenant{},
		operate.DeleteTenant{},
		operate.ResetUsage{},
		operate.MoveTenant{},
		operate.ClearLimits{},
	} {
		if _, err := gone.Prepare(t.Context(), o); !errors.As(err, new(operate.NotFoundError)) {
			t.Errorf("%#v of what does not exist: %v", gone, err)
		}
	}
	for _, refused := range []operate.Preparer{
		operate.RotateKey{KeyRef: revoked, Grace: grace(time.Hour)}, operate.UpdateKey{KeyRef: ci, Minute: 3, Day: 2},
	} {
		must.Equal(t, must.Get[operate.Operation](t)(refused.Prepare(t.Context(), o)).Question, "",
			"what %#v asks before it refuses", refused)
	}
}

func blocks(t *testing.T, texts ...string) []operate.Block {
	t.Helper()
	all := make([]operate.Block, len(texts))
	for i, text := range texts {
		must.Do(t, all[i].UnmarshalText([]byte(text)))
	}
	return all
}

// Every verb that sets limits refuses those that can never admit a request of some operation, and a
// tenant's own limits that do not fit those of its plan.
func TestRefusedLimits(t *testing.T) {
	t.Parallel()
	o, ci, _ := operator(t)
	done(t, o, operate.CreatePlan{Name: "tiny", NewLimits: operate.NewLimits{Minute: 19, Day: 100}})
	done(t, o, operate.CreatePlan{Name: "probe", NewLimits: operate.NewLimits{Minute: 60}, TestMinute: 19})
	few := keyOf(t, done(t, o, operate.CreateKey{TenantRef: acme, Minute: 19}))
	created := done(t, o, operate.CreateTenant{Name: "small", Plan: "tiny", NewLimits: operate.NewLimits{Month: 150}})
	small := operate.TenantRef{Tenant: created.Line}
	done(t, o, operate.UpdatePlan{Plan: "tiny", LimitChanges: operate.LimitChanges{Day: 200}})
	r := keystore.Registration{ID: "gw-1", Incarnation: "a"}
	must.Get[int64](t)(o.Store.Register(t.Context(), r, nil))
	must.Do(t, o.Store.DescribeGateway(t.Context(), r, keystore.Document{Costs: map[string]int64{"searchPets": 20}}))
	const (
		minute = "gateway gw-1: a request of operation searchPets costs 20, so a minute limit of 19 never admits it"
		day    = "gateway gw-1: a request of operation searchPets costs 20, so a day limit of 19 never admits it"
		inPlan = "in force with plan free, a "
	)
	own := func(minute, day, month operate.LimitChange) operate.SetLimits {
		return operate.SetLimits{
			TenantRef:    acme,
			LimitChanges: operate.LimitChanges{Minute: minute, Day: day, Month: month},
		}
	}
	for _, c := range []struct {
		verb operate.Preparer
		want string // empty: it is not refused
	}{
		{operate.CreatePlan{Name: "small", NewLimits: operate.NewLimits{Minute: 19}}, minute},
		{operate.CreatePlan{Name: "small", NewLimits: operate.NewLimits{Day: 100}, TestMinute: 19}, minute},
		{operate.UpdatePlan{Plan: "free", LimitChanges: operate.LimitChanges{Minute: 19}}, minute},
		{operate.UpdatePlan{Plan: "free", TestMinute: 19}, minute},
		{operate.CreateTenant{Name: "globex", Plan: "free", NewLimits: operate.NewLimits{Day: 19}}, day},
		{operate.MoveTenant{TenantRef: acme, Plan: "tiny"}, minute},
		{operate.MoveTenant{TenantRef: acme, Plan: "probe"}, minute},
		{operate.MoveTenant{TenantRef: acme, Plan: "free", NewLimits: operate.NewLimits{Minute: 19}}, minute},
		{own(19, 25, 0), minute},
		{operate.CreateKey{TenantRef: acme, Minute: 19}, minute},
		{operate.UpdateKey{KeyRef: ci, Day: 19}, day},
		{operate.UpdateKey{KeyRef: ci, Minute: 20}, ""},
		{operate.UpdateKey{KeyRef: few, Name: "few"}, ""}, // what is refused now, and stays as it is, stops no other change
		{operate.SetLimits{TenantRef: small, MonthStart: operate.MonthStart{MonthStarts: 5}}, ""},
		{own(0, 0, 999), inPlan + "month limit of 999 is below the day limit of 1000"},
		{own(0, 59, 0), inPlan + "day limit of 59 is below the minute limit of 60"},
		{own(1001, 0, 0), inPlan + "day limit of 1000 is below the minute limit of 1001"},
		{own(1001, 1001, 1001), ""},
		{operate.ClearLimits{TenantRef: acme}, ""},
		{operate.MoveTenant{TenantRef: acme, Plan: "tiny", NewLimits: operate.NewLimits{Minute: 20}}, ""},
	} {
		before := must.Get[keystore.Change](t)(o.Store.LastEvent(t.Context()))
		op, err := c.verb.Prepare(t.Context(), o)
		if err == nil {
			_, err = op.Change(t.Context())
		}
		after, _ := o.Store.LastEvent(t.Context())
		if (err == nil) != (c.want == "") || err != nil && !errors.Is(err, keystore.ErrInvalid) ||
			(after == before) == (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%#v: %v, %d changes; want %q", c.verb, err, after-before, c.want)
		}
	}
	done(t, o, operate.MoveTenant{TenantRef: small, Plan: "tiny"}) // it is on it
	done(t, o, operate.UpdateKey{KeyRef: few, Expires: operate.Moment{Period: operate.Period(time.Hour)}})
	is, _ := done(t, o, operate.UpdateKey{KeyRef: few, NoExpires: true}).View.(operate.KeyView)
	must.Equal(t, is.Name+is.ExpiresAt, "few", "a key whose expiry was removed")
}

// Each argument alone is a change.
func TestOneArgumentIsEnough(t *testing.T) {
	t.Parallel()
	for _, verb := range []operate.Checker{
		operate.UpdateKey{Name: "x"},
		operate.UpdateKey{Scopes: []operate.Scope{"x"}},
		operate.UpdateKey{Allow: blocks(t, "::1")},
		operate.UpdateKey{AllowAny: true},
		operate.UpdateKey{Expires: operate.Moment{At: 1}},
		operate.UpdateKey{NoExpires: true},
		operate.UpdateKey{Minute: 1},
		operate.UpdateKey{Day: 1},
		operate.UpdatePlan{TestMinute: 1},
		operate.UpdatePlan{LimitChanges: operate.LimitChanges{Month: 1}},
		operate.SetLimits{Clear: true},
		operate.SetLimits{LimitChanges: operate.LimitChanges{Month: 1}},
		operate.SetLimits{MonthStart: operate.MonthStart{MonthStarts: 1}},
	} {
		must.Equal(t, verb.Check(), nil, "the check of %#v", verb)
	}
}

// A key may have the scopes that gateways report, and those that it has already. Without any, it
// gets all but the gateway's own.
func TestScopesThatGatewaysReport(t *testing.T) {
	t.Parallel()
	o, ci, _ := operator(t)
	r := keystore.Registration{ID: "gw-1", Incarnation: "a"}
	must.Get[int64](t)(o.Store.Register(t.Context(), r, nil))
	create := func(scopes ...operate.Scope) operate.CreateKey {
		return operate.CreateKey{TenantRef: acme, Scopes: scopes, Minute: 60}
	}
	update := func(scopes ...operate.Scope) operate.UpdateKey { return operate.UpdateKey{KeyRef: ci, Scopes: scopes} }
	for _, c := range []struct {
		reported []string
		verb     operate.Preparer
		want     string // the scopes, or an error
	}{
		{nil, create("future:read"), "future:read"},
		{
			[]string{"read", "orders:write"},
			create("read", "pets:read"),
			`no operation of the registered gateways needs the scope "pets:read": use orders:write, read, usage:read`,
		},
		{[]string{"read", "orders:write"}, create(), "orders:write read"},
		{[]string{"read", "orders:write"}, create("usage:read", "read"), "read usage:read"},
		{[]string{"read", "orders:write"}, update("orders:write", "pets:read"), "orders:write pets:read"},
		{[]string{"read"}, update("orders:write", "read"), "orders:write read"},
		{[]string{"read"}, update("pets:write"), `needs the scope "pets:write"`},
	} {
		if c.reported != nil {
			must.Do(t,
				o.Store.DescribeGateway(t.Context(), r, keystore.Document{Hash: "0123456789ab", Scopes: c.reported}))
		}
		made, err := must.Get[operate.Operation](t)(c.verb.Prepare(t.Context(), o)).Change(t.Context())
		got := fmt.Sprint(err)
		if v, isKey := made.View.(operate.KeyView); isKey && err == nil {
			got = strings.Join(v.Scopes, " ")
		}
		if isRefused := strings.Contains(c.want, "needs the scope"); isRefused != (err != nil) ||
			!isRefused && got != c.want ||
			!strings.Contains(got, c.want) {
			t.Errorf("%v reported, %#v: %s, want %s", c.reported, c.verb, got, c.want)
		}
	}
}
