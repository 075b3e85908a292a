package declare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// rig is a key database with tenant acme on plan pro and its live key ci and test key dev.
type rig struct {
	*testing.T
	operate.Operator
	ci, dev keystore.Key
}

func newRig(t *testing.T, url string) *rig {
	t.Helper()
	clock := func() time.Time { return noon }
	store := keystore.New(testkit.Open(t, url, schema.Migrations), clock, nil, "keyadmin:alice")
	r := &rig{T: t, Operator: operate.Operator{Store: store, Clock: clock}}
	r.do(operate.CreateTenant{Name: "acme", Plan: "pro", MonthStart: operate.MonthStart{MonthStarts: 1}})
	inAQuarter := operate.Moment{Period: operate.Period(90 * 24 * time.Hour)}
	r.ci = r.newKey(operate.CreateKey{Name: "ci", Minute: 9, Expires: inAQuarter})
	r.dev = r.newKey(operate.CreateKey{Name: "dev", Test: true, Scopes: []operate.Scope{"pets:read"}})
	return r
}

// do makes a change.
func (r *rig) do(a operate.Preparer) any {
	r.Helper()
	op := must.Get[operate.Operation](r)(a.Prepare(r.Context(), r.Operator))
	return must.Get[operate.Outcome](r)(op.Change(r.Context())).View
}

func (r *rig) newKey(a operate.CreateKey) keystore.Key {
	r.Helper()
	a.Tenant = "acme"
	view := r.do(a).(operate.KeyView)
	var ref operate.KeyID
	must.Do(r, ref.UnmarshalText([]byte(view.ID)))
	return must.Get[keystore.Key](r)(r.Store.Key(r.Context(), ref.Key))
}

func (r *rig) events() keystore.Change {
	r.Helper()
	return must.Get[keystore.Change](r)(r.Store.LastEvent(r.Context()))
}

func (r *rig) export() string {
	r.Helper()
	var text bytes.Buffer
	must.Do(r, Export(r.Context(), r.Operator, &text))
	return text.String()
}

// apply applies a document. It returns what is listed, the question and the error.
func (r *rig) apply(text string, p Pruning) (listed, question string, err error) {
	r.Helper()
	text = strings.NewReplacer("CI", r.ci.ID.String(), "DEV", r.dev.ID.String()).Replace(text)
	d, err := Read("file", []byte(text))
	if err != nil {
		return "", "", err
	}
	found, err := d.Compare(r.Context(), r.Operator, p, 0)
	if err != nil {
		return "", "", err
	}
	op := d.Prepare(r.Operator, found, p, false)
	outcome, err := op.Change(r.Context())
	if err == nil {
		made, foreseen := fmt.Sprint(outcome.View), fmt.Sprint(found.ChangesView)
		must.Equal(r, made, foreseen, "what was made, and what was listed before")
		must.Equal(r, outcome.Done == "", found.HasNothing(), "done: %s", outcome.Done)
	}
	for _, c := range found.Changes {
		listed += fmt.Sprintf("%s %s %s: %s\n", c.Action, c.Kind, c.Name, c.Change)
	}
	return listed + strings.Join(found.LeftOut, "\n"), op.Question, err
}

// stated declares everything that a document can, except keys.
const stated = `version: 1
plans:
  - {name: team, minute: 120, day: 4000, testMinute: 7}
  - {name: bespoke}
tenants:
  - {name: "a: b # c", plan: bespoke, minute: 5, day: 10, month: 100, monthStarts: 15, suspended: true}
  - {name: "123", plan: free, day: 50}
  - {name: Zoë 🙂, plan: pro}
`

// A database to which an exported document is applied exports the same, on both databases. The
// document changes nothing in the database that it comes from.
func TestRoundTrip(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		r := newRig(t, url)
		_, _, err := r.apply(stated, Pruning{})
		must.Do(t, err)
		r.do(operate.DisableKey{KeyRef: operate.KeyRef{Key: operate.KeyID{Key: r.dev.ID}}})
		text := r.export()
		keys := strings.Count(text, "- id: key_")
		if !strings.HasPrefix(text, head) || keys != 2 || !strings.Contains(text, "disabled: true") {
			t.Errorf("export:\n%s", text)
		}
		before := r.events()
		listed, question, err := r.apply(text, Pruning{Prune: true})
		must.Do(t, err)
		must.Equal(t, listed+question, "", "what its own export changes")
		must.Equal(t, r.events(), before, "the last event after its own export")

		other := newRig(t, testkit.SQLite(t))
		listed, _, err = other.apply(text, Pruning{})
		must.Do(t, err)
		if !strings.Contains(listed, r.ci.ID.String()+` "ci" of tenant acme (line `) {
			t.Errorf("keys that do not exist are not named:\n%s", listed)
		}
		want, _, _ := strings.Cut(text, "    keys:") // acme is the last tenant
		is, _, _ := strings.Cut(other.export(), "    keys:")
		must.Equal(t, is, want, "exported again, without keys")
	})
}

// What takes something away asks, and nothing else does. Each document begins with what the one
// before has left.
func TestApply(t *testing.T) {
	r := newRig(t, testkit.SQLite(t))
	acme := func(ci string) string {
		return "tenants: [{name: acme, plan: pro, keys: [{id: CI, scopes: [pets:read], " + ci + "}]}]"
	}
	const dev = "}, {id: DEV, environment: test, scopes: [pets:read], name: dev"
	for _, c := range []struct {
		text, listed string
		asks         bool
	}{
		{"plans: [{name: business, minute: 5}]", "change plan business: limit per day 100,000 → -, limit per minute 1,000 → 5", false},
		{
			"plans: [{name: pro, minute: 400, day: 20000}]",
			"change plan pro: limit per day 10,000 → 20,000, limit per minute 300 → 400", false,
		},
		{"plans: [{name: pro, minute: 400, day: 19999}]", "change plan pro: limit per day 20,000 → 19,999", true},
		{
			"tenants: [{name: acme, plan: free}]",
			"change tenant acme: plan pro → free, in force: 400 → 60 requests per minute, " +
				"19,999 → 1,000 requests per day",
			true,
		},
		{
			"tenants: [{name: acme, plan: pro}]",
			"change tenant acme: plan free → pro, in force: 60 → 400 requests per minute, " +
				"1,000 → 19,999 requests per day",
			false,
		},
		{
			"tenants: [{name: acme, plan: pro, day: 20000, monthStarts: 1}]",
			"change tenant acme: own limit per day - → 20,000, in force: 19,999 → 20,000 requests per day", false,
		},
		{
			"tenants: [{name: acme, plan: pro, day: 100}, {name: new, plan: enterprise}]",
			"change tenant acme: own limit per day 20,000 → 100\n" +
				`create tenant new: name "new", plan enterprise; it will have no quota, so all its requests are refused`,
			true,
		},
		{
			"tenants: [{name: acme, plan: pro, suspended: true}]",
			"change tenant acme: own limit per day 100 → -, suspended, in force: 100 → 19,999 requests per day", true,
		},
		{"tenants: [{name: acme, plan: pro, monthStarts: 2}]", "change tenant acme: month begins on day 1 → 2, not suspended", false},
		{"tenants: [{name: acme, plan: pro}]", "change tenant acme: month begins on day 2 → -", false},
		{
			acme("name: new"),
			`change key acme: expires 2026-05-30T12:00:00Z → -, limit per minute 9 → -, name "ci" → "new", ` +
				`scopes pets:read pets:write → pets:read`,
			false,
		},
		{acme("name: new, minute: 8"), "change key acme: limit per minute - → 8", true},
		{acme("name: new, minute: 9, allow: [10.0.0.0/8]"), "change key acme: allowed from - → 10.0.0.0/8, limit per minute 8 → 9", false},
		{acme("name: new, minute: 9, disabled: true"), "change key acme: allowed from 10.0.0.0/8 → -, disabled", true},
		{acme("name: new, minute: 9, disabled: true"), "", false},
		{acme("name: new, minute: 9"), "change key acme: enabled", false},
		{acme("name: new, minute: 9" + dev), "", false},
		{"plans: [{name: pro, minute: 400, day: 19999, testMinute: 3}]", "change plan pro: test keys' limit per minute - → 3", true},
		{"plans: [{name: pro, minute: 400, day: 19999, testMinute: 4}]", "change plan pro: test keys' limit per minute 3 → 4", false},
	} {
		before := r.events()
		listed, question, err := r.apply("version: 1\n"+c.text, Pruning{})
		must.Do(t, err)
		must.Equal(t, strings.TrimSuffix(listed, "\n"), c.listed, "what %s lists", c.text)
		must.Equal(t, question != "", c.asks, "a question about %s: %s", c.text, question)
		must.Equal(t, r.events() != before, c.listed != "", "events of %s", c.text)
	}
	listed, question, err := r.apply("version: 1\ntenants: [{name: acme, plan: pro, keys: []}]", Pruning{Prune: true})
	must.Do(t, err)
	must.Equal(t, listed, strings.Repeat("change key acme: revoked, because the file does not name it\n", 2)+
		"change tenant new: suspended, because the file does not name it\n", "pruned")
	want := "Apply 3 changes? Some lower a limit, suspend a tenant, or end or disable a key."
	must.Equal(t, question, want, "question")
}

// Every problem of a document is named with its line and member, and nothing is changed.
func TestMistakes(t *testing.T) {
	r := newRig(t, testkit.SQLite(t))
	r.do(operate.CreateTenant{Name: "other", Plan: "free"})
	before := r.events()
	const ofOther = "version: 1\ntenants:\n- name: other\n  plan: free\n  keys:\n  - "
	const ofAcme = "version: 1\ntenants:\n- name: acme\n  plan: free\n  keys:\n  - "
	for _, c := range []struct{ text, want string }{
		{"", "file is empty: it needs a version"},
		{"version: [", "file is not YAML: line 1"},
		{"version: 1\n---\nversion: 1\n", "file:2: document: a file has one document"},
		{"- a", "file:1: document: it has to be a mapping: plans, tenants, version"},
		{`["a"]`, "file:1: document: it has to be a mapping: plans, tenants, version"},
		{"plans: []", `file:1: document: the member "version" is missing`},
		{"version: 2", `file:1: version: "2" is not a version of the format: this keyadmin knows version 1`},
		{"version: 1\ntenant: []", "file:2: tenant: there is no such member: use plans, tenants, version"},
		{"version: 1\nplans: []\nplans: []", "file:3: plans: it is given twice"},
		{"{\"version\": 1,\n\"plans\": [],\n\n\"plans\": []}", "file:4: plans: it is given twice"},
		{"version: 1\nplans: {}", "file:2: plans: it has to be a list"},
		{`{"version": 1, "plans": true}`, "file:1: plans: it has to be a list"},
		{"version: 1\nplans:\n- name: Gold", `file:3: plans[0].name: "Gold" is not a plan name`},
		{"version: 1\nplans:\n- name: gold\n  minute: ten", `file:4: plans[0].minute: "ten" is not a whole number`},
		{
			"{\"version\": 1,\n\t\"plans\": [\n{\"name\": \"gold\",\n\"minute\": 1.5}]}",
			`file:4: plans[0].minute: "1.5" is not a whole number`,
		},
		{"version: 1\nplans:\n- &a {name: gold}\n- *a", "file:4: plans[1]: aliases are not supported"},
		{"version: 1\nplans:\n- {name: gold}\n- {name: gold}", `file:4: plans[1]: plan "gold" is already declared in line 3`},
		{"version: 1\ntenants:\n- name: a\n", `file:3: tenants[0]: the member "plan" is missing`},
		{
			"version: 1\ntenants:\n- name: a\n  plan: gold\n",
			`file:3: tenants[0]: there is no plan "gold": use business, enterprise, free, pro`,
		},
		{"version: 1\ntenants:\n- name: ten_a\n  plan: free\n", `file:3: tenants[0].name: "ten_a": a name may not begin with ten_`},
		{"version: 1\ntenants:\n- name: [a]\n  plan: free\n", "file:3: tenants[0].name: it has to be one value"},
		{
			"version: 1\ntenants:\n- {name: a, plan: free}\n- {name: a, plan: free}\n",
			`file:4: tenants[1]: tenant "a" is already declared in line 3`,
		},
		{"version: 1\ntenants:\n- {name: a, plan: free, suspended: yes please}", `"yes please" is neither true nor false`},
		{"version: 1\ntenants:\n- {name: a, plan: free, day: 5, minute: 6}", `file:3: tenants[0]: a day limit of 5 is below`},
		{"version: 1\nplans:\n- {name: a, day: 5, minute: 3, testMinute: 6}", `file:3: plans[0]: a day limit of 5 is below`},
		{ofAcme + "{id: ci, name: a, scopes: [pets:read]}", "file:6: tenants[0].keys[0].id:"},
		{ofAcme + "{name: a, scopes: ['pets:read']}", `the member "id" is missing: only keys that exist can be named here`},
		{ofAcme + "{id: CI, name: a, scopes: []}", "a key needs a scope"},
		{ofAcme + "{id: CI, name: a, scopes: [Cats]}", `file:6: tenants[0].keys[0].scopes[0]: "Cats" is not the name of a scope`},
		{ofAcme + "{id: CI, name: a, scopes: ['pets:read'], allow: [10.0.0.1/8]}", "did you mean 10.0.0.0/8?"},
		{ofAcme + "{id: CI, name: a, scopes: ['pets:read'], expires: soon}", `"soon" is not a time`},
		{ofAcme + "{id: CI, name: a, scopes: ['pets:read'], expires: 2020-01-01}", "cannot expire in the past"},
		{
			ofAcme + "{id: CI, name: a, scopes: ['pets:read'], environment: test}",
			"is a live key. The environment of a key cannot be changed",
		},
		{
			ofAcme + "{id: CI, name: a, scopes: ['pets:read']}\n  - {id: CI, name: a, scopes: ['pets:read']}",
			"file:7: tenants[0].keys[1]: key ",
		},
		{ofOther + "{id: CI, name: a, scopes: ['pets:read']}", "belongs to another tenant"},
	} {
		_, _, err := r.apply(c.text, Pruning{Prune: true})
		if mistakes := (*Mistakes)(nil); !errors.As(err, &mistakes) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	_, _, err := r.apply("version: 1\nplans:\n"+strings.Repeat("- {name: A}\n", 13), Pruning{})
	mistakes := err.(*Mistakes)
	must.Equal(t, len(mistakes.List), ListedMax, "the mistakes that are listed")
	must.Equal(t, strings.Count(mistakes.Error(), "\n"), ListedMax+1, "line breaks in %v", mistakes)
	if !strings.HasSuffix(mistakes.Error(), "\n  and 5 more") || !strings.HasSuffix(mistakes.Line(), "; and 5 more") {
		t.Errorf("many mistakes: %v", mistakes)
	}
	must.Equal(t, r.events(), before, "the last event after bad documents")
}

// A mistake repeats the beginning of a long value. Mistakes that are not listed are counted.
func TestLongMistakes(t *testing.T) {
	text := `{"version": "` + strings.Repeat("é", 1<<16) + `", "plans": [` + strings.Repeat("{},", 9_999) + "{}]}"
	_, err := Read("body", []byte(text))
	line := err.(*Mistakes).Line()
	if len(line) > 5_000 || !strings.HasSuffix(line, "; and 9981 more") {
		t.Errorf("%d bytes, want at most 5,000, and 9,981 more:\n%.9999s", len(line), line)
	}
}

// JSON means what the same YAML means.
func TestJSON(t *testing.T) {
	r := newRig(t, testkit.SQLite(t))
	_, _, err := r.apply(`{"version": "1", "plans": null, "tenants": [{"name": "Zo\u00eb \ud83d\ude42", "plan": "free",
		"minute": 50, "day": null, "suspended": true, "keys": []}]}`, Pruning{})
	mistakes := (*Mistakes)(nil)
	if !errors.As(err, &mistakes) || !strings.Contains(err.Error(), "file:2: tenants[0].day: ") {
		t.Errorf("a limit of null: %v", err)
	}
	listed, _, err := r.apply(`{"version": 1, "tenants": [{"name": "Zo\u00eb \ud83d\ude42", "plan": "free",
		"minute": 50, "suspended": true, "keys": []}]}`, Pruning{})
	must.Do(t, err)
	want := `create tenant Zoë 🙂: name "Zoë 🙂", own limit per minute 50, plan free, suspended` + "\n"
	must.Equal(t, listed, want, "listed")
}

// Unless the operator is sure, only what was listed is changed.
func TestChangedMeanwhile(t *testing.T) {
	r := newRig(t, testkit.SQLite(t))
	d := must.Get[Document](t)(Read("file", []byte("version: 1\ntenants: [{name: acme, plan: free}]")))
	found := must.Get[Difference](t)(d.Compare(t.Context(), r.Operator, Pruning{}, 0))
	r.do(operate.MoveTenant{TenantRef: operate.TenantRef{Tenant: "acme"}, Plan: "business"})
	if _, err := d.Prepare(r.Operator, found, Pruning{}, false).Change(t.Context()); !errors.Is(err, ErrChanged) {
		t.Errorf("another change than was listed: %v", err)
	}
	outcome := must.Get[operate.Outcome](t)(d.Prepare(r.Operator, found, Pruning{}, true).Change(context.Background()))
	must.Equal(t, outcome.View.(ChangesView).Changes[0].Change,
		"plan business → free, in force: 1,000 → 60 requests per minute, 100,000 → 1,000 requests per day", "what was made")
	_, err := d.Compare(t.Context(), r.Operator, Pruning{}, 2)
	if want := "the database has more than 2 tenants and keys"; !errors.Is(err, keystore.ErrConflict) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("three rows: %v", err)
	}
	must.Get[Difference](t)(d.Compare(t.Context(), r.Operator, Pruning{}, 3))
}

// A document cannot set a limit below the cost of an operation.
func TestCosts(t *testing.T) {
	r := newRig(t, testkit.SQLite(t))
	r.do(operate.CreatePlan{Name: "tiny", NewLimits: operate.NewLimits{Minute: 19, Day: 100}})
	g := keystore.Registration{ID: "gw-1", Incarnation: "a"}
	g.Generation = must.Get[int64](t)(r.Store.Register(t.Context(), g, nil))
	must.Do(t, r.Store.DescribeGateway(t.Context(), g, keystore.Document{Costs: map[string]int64{"searchPets": 20}}))
	for _, text := range []string{
		"plans: [{name: small, minute: 19}]",
		"plans: [{name: free, minute: 60, day: 1000, testMinute: 19}]",
		"tenants: [{name: globex, plan: free, day: 19}]",
		"tenants: [{name: acme, plan: tiny}]",
		"tenants: [{name: acme, plan: pro, keys: [{id: CI, name: ci, scopes: [usage:read], minute: 19}]}]",
	} {
		_, _, err := r.apply("version: 1\n"+text, Pruning{})
		if err == nil || !strings.Contains(err.Error(), "limit of 19 never admits it") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
