// Package verbs checks that a front does with each verb of operate what operate does: keyadmin, the
// console and the operators' API. A front gives a table of its verbs. What the verbs ask and say is
// tested in operate alone.
package verbs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/schema"
	"petgate/shared/keystore/sessions"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Noon is the time in every world.
var Noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// World is a database in which every verb has something to do. A front uses it as its own.
type World struct {
	URL   string // of a SQLite file
	DB    *database.DB
	Token string            // of operator prog, who may do everything
	names *strings.Replacer // puts IDs in place of the names of keys

	random io.Reader
}

// Given are the arguments of a verb by their names, as people and programs write them.
type Given = map[string][]string

// verbCase is one use of a verb. In its arguments, CI is the ID of a key, and so are the other
// names that template gives.
type verbCase struct {
	verb  operate.Preparer // without arguments
	given Given
	plant func(*testing.T, *World) // adds what the verb needs beside the usual records; may be nil
}

// given reads "name=acme allow=::1,10.0.0.0/8".
func given(text string) Given {
	all := Given{}
	for _, field := range strings.Fields(text) {
		name, values, _ := strings.Cut(field, "=")
		all[name] = strings.Split(values, ",")
	}
	return all
}

// cases use each argument of each verb, and each verb that can ask is used once so that it asks.
// Where a verb does not always ask, another case has a change about which it does not.
var cases = []verbCase{
	{operate.CreateTenant{}, given("name=globex plan=pro minute=400 day=20000 month=90000 monthStarts=15"), nil},
	{operate.RenameTenant{}, given("tenant=acme name=globex"), nil},
	{operate.SuspendTenant{}, given("tenant=acme"), nil},
	{operate.ResumeTenant{}, given("tenant=suspended"), nil},
	{operate.DeleteTenant{}, given("tenant=empty"), nil},
	{operate.ResetUsage{}, given("tenant=acme"), nil},
	{operate.MoveTenant{}, given("tenant=acme plan=enterprise"), nil},
	{operate.MoveTenant{}, given("tenant=acme plan=pro minute=400 day=20000 month=300000"), nil},
	{operate.SetLimits{}, given("tenant=acme minute=70 day=2000 month=50000 monthStarts=15"), nil},
	{operate.SetLimits{}, given("tenant=acme minute=5"), nil},
	{operate.SetLimits{}, given("tenant=rich clear=true"), nil},
	{operate.ClearLimits{}, given("tenant=rich"), nil},
	{operate.CreateKey{}, given("tenant=acme name=new expires=90d scopes=pets:read,pets:write allow=10.0.0.0/8,::1 " +
		"minute=5 day=50 environment=test"), nil},
	{operate.UpdateKey{}, given("key=CI name=new scopes=pets:read allow=10.0.0.0/8,::1 expires=2026-12-31 " +
		"minute=5 day=50"), nil},
	{operate.UpdateKey{}, given("key=BOUND allowAny=true noExpires=true"), nil},
	{operate.RotateKey{}, given("key=CI grace=36h"), nil},
	{operate.RotateKey{}, given("key=CI grace=0"), nil},
	{operate.DisableKey{}, given("key=CI"), nil},
	{operate.EnableKey{}, given("key=DISABLED"), nil},
	{operate.RevokeKey{}, given("key=CI"), nil},
	{operate.AddBan{}, given("key=CI for=1h reason=scraping tell=write-to-us"), nil},
	{operate.LiftBan{}, given("key=BANNED"), nil},
	{operate.CreatePlan{}, given("name=team minute=120 day=4000 month=60000 testMinute=9"), nil},
	{operate.UpdatePlan{}, given("plan=free minute=50 day=900 month=9000 testMinute=20"), nil},
	{operate.UpdatePlan{}, given("plan=free minute=70"), nil},
	{operate.DeletePlan{}, given("plan=business"), nil},
	{operate.ForgetGateway{}, given("gateway=gw-9"), func(t *testing.T, w *World) {
		r := keystore.Registration{ID: "gw-9", Incarnation: "a", AdminAddress: "10.0.0.9:9090"}
		must.Get[int64](t)(w.Store("gw-9").Register(t.Context(), r, nil))
		_, err := w.DB.Exec("UPDATE gateways SET seen_at = 1000")
		must.Do(t, err)
	}},
	{operate.DropLost{}, given("id=CI"), func(t *testing.T, w *World) {
		key := must.Get[id.Key](t)(id.ParseKey(w.names.Replace("CI")))
		k := must.Get[keystore.Key](t)(w.Store("gw-1").Key(t.Context(), key))
		lost := keystore.LostRefusal{Kind: keystore.LostRevocation, Tenant: k.Tenant, Key: k.ID, At: instant.Of(Noon)}
		must.Get[keystore.Change](t)(w.Store("gw-1").ReportLost(t.Context(), []keystore.LostRefusal{lost}))
	}},
}

// template is the file of a world, and the IDs of its keys by their names.
type template struct {
	file  []byte
	token string   // of operator prog
	keys  []string // a name and an ID in turn
}

var (
	once   sync.Once
	shared template
)

// newTemplate makes the usual records.
func newTemplate(t *testing.T) (made template) {
	t.Helper()
	url := testkit.SQLite(t)
	db := testkit.Open(t, url, schema.Migrations)
	w := World{DB: db, random: rand.NewChaCha8([32]byte{})}
	key := func(name string, spec string, then operate.Preparer) {
		t.Helper()
		arguments := given(spec)
		arguments["name"] = []string{name}
		v, _ := w.do(t, "keyadmin:alice", read(t, operate.CreateKey{}, arguments)).NewKey()
		made.keys = append(made.keys, name, v.ID)
		if then != nil {
			w.do(t, "keyadmin:alice", read(t, then, Given{"key": {v.ID}, "for": {"1h"}, "reason": {"scraping"}}))
		}
	}
	for _, tenant := range []string{
		"name=acme", "name=empty", "name=suspended", "name=rich minute=600 day=60000 month=600000",
	} {
		w.do(t, "keyadmin:alice", read(t, operate.CreateTenant{}, given(tenant)))
	}
	w.do(t, "keyadmin:alice", operate.SuspendTenant{TenantRef: operate.TenantRef{Tenant: "suspended"}})
	key("CI", "tenant=acme", nil)
	key("BOUND", "tenant=acme allow=10.0.0.0/8 expires=30d", nil)
	key("DISABLED", "tenant=acme", operate.DisableKey{})
	key("BANNED", "tenant=acme", operate.AddBan{})
	prog := sessions.OperatorToken{Name: "prog", Role: sessions.RoleAdmin}
	made.token = must.First[string](t)(sessions.Of(w.Store("keyadmin:alice")).CreateOperator(t.Context(), prog))
	must.Do(t, db.Close()) // so that the file has everything
	made.file = must.Get[[]byte](t)(os.ReadFile(strings.TrimPrefix(url, "sqlite:")))
	return made
}

// newWorld returns a world of its own.
func newWorld(t *testing.T) *World {
	t.Helper()
	once.Do(func() { shared = newTemplate(t) })
	path := filepath.Join(t.TempDir(), "keys.db")
	must.Do(t, os.WriteFile(path, shared.file, 0o600))
	url := "sqlite:" + path
	return &World{
		URL: url, DB: testkit.Open(t, url), Token: shared.token,
		names: strings.NewReplacer(shared.keys...), random: rand.NewChaCha8([32]byte{1}),
	}
}

// Store is the world's database in the hands of an actor.
func (w *World) Store(actor string) *keystore.Store {
	return keystore.New(w.DB, func() time.Time { return Noon }, w.random, actor)
}

func (w *World) operator(actor string) operate.Operator {
	return operate.Operator{Store: w.Store(actor), Clock: func() time.Time { return Noon }}
}

// do carries out a verb of operate.
func (w *World) do(t *testing.T, actor string, verb operate.Preparer) operate.Outcome {
	t.Helper()
	op := must.Get[operate.Operation](t)(verb.Prepare(t.Context(), w.operator(actor)))
	return must.Get[operate.Outcome](t)(op.Change(t.Context()))
}

// read returns a verb with its arguments.
func read(t *testing.T, verb operate.Preparer, given Given) operate.Preparer {
	t.Helper()
	into := reflect.New(reflect.TypeOf(verb)).Elem()
	if mistakes := operate.ReadArguments(into, given); len(mistakes) > 0 {
		t.Fatalf("%T: %+v", verb, mistakes)
	}
	return into.Interface().(operate.Preparer)
}

// events writes the changes after the first n, and returns how many there are now. What a front
// needs to know its caller is not one of them.
func (w *World) events(t *testing.T, n int) (text string, now int) {
	t.Helper()
	all, err := keystore.Collect(lists.Of(w.Store("")).Events(t.Context(), lists.EventFilter{}, 0))
	must.Do(t, err)
	var out strings.Builder
	for _, e := range all {
		noun, _, _ := strings.Cut(e.Kind, ".")
		if noun == "operator" || noun == "console" {
			continue
		}
		if now++; now > n {
			fmt.Fprintln(&out, e.Kind, e.Actor, e.Tenant, e.Key, e.Plan, e.Before, e.After)
		}
	}
	return w.plain(out.String()), now
}

// unstable is what differs between two worlds: what is new and random, and the database's clock.
var unstable = regexp.MustCompile(
	`ptg_(?:live|test)_\w+|\b(?:key|ten)_[0-9a-z]{16}\b|"(?:hint|registeredAt|seenAt)": ?"[^"]*"|` +
		`"(?:registeredAt|seenAt|age|ageMillis)": ?-?\d+`)

// plain leaves out what differs between two worlds.
func (w *World) plain(text string) string {
	return unstable.ReplaceAllStringFunc(text, func(found string) string {
		if bytes.Contains(shared.file, []byte(found)) && !strings.HasPrefix(found, `"`) { // the ID is not new
			return found
		}
		return "-"
	})
}

// Verb is one verb of a front.
type Verb struct {
	Name      string           // how the front calls it
	Arguments operate.Preparer // its zero value
	NeverAsks bool             // the call alone says that something is taken away

	Send func(t *testing.T, w *World, c Call) Answer
}

// Call is what a person or a program wants of a front.
type Call struct {
	Given    Given
	Sure     bool // the answer to a question
	Harmless bool // a script need not answer the question
}

// Answer is what a front says.
type Answer struct {
	IsQuestion bool   // and nothing was changed
	Text       string // for a person
	JSON       string // for a program; empty: there is none
}

// Check carries out all verbs of a front, with each argument. It asks if and only if there is a
// question, every argument reaches its field, and programs get the JSON of operate.
func Check(t *testing.T, actor string, verbs []Verb) {
	for _, v := range verbs {
		of := casesOf(v.Arguments)
		if len(of) == 0 {
			t.Errorf("%s: package verbs has no case for %T", v.Name, v.Arguments)
		}
		for i, c := range of {
			t.Run(fmt.Sprintf("%s %d", v.Name, i+1), func(t *testing.T) { c.check(t, actor, v) })
		}
	}
}

func casesOf(verb operate.Preparer) (of []verbCase) {
	for _, c := range cases {
		if reflect.TypeOf(c.verb) == reflect.TypeOf(verb) {
			of = append(of, c)
		}
	}
	return of
}

// world returns a new world for a case, and the case's arguments in it.
func (c verbCase) world(t *testing.T) (*World, Given) {
	t.Helper()
	w, given := newWorld(t), Given{}
	if c.plant != nil {
		c.plant(t, w)
	}
	for name, values := range c.given {
		for _, value := range values {
			given[name] = append(given[name], w.names.Replace(value))
		}
	}
	return w, given
}

func (c verbCase) check(t *testing.T, actor string, v Verb) {
	w, arguments := c.world(t)
	_, before := w.events(t, 0)
	op := must.Get[operate.Operation](t)(read(t, c.verb, arguments).Prepare(t.Context(), w.operator(actor)))
	made := must.Get[operate.Outcome](t)(op.Change(t.Context()))
	changes, _ := w.events(t, before)
	view := must.Get[[]byte](t)(json.MarshalIndent(made.View, "", "  "))
	wantJSON := w.plain(string(view))

	w, arguments = c.world(t)
	got := v.Send(t, w, Call{Given: maps.Clone(arguments), Harmless: op.Harmless})
	asks := op.Question != "" && !v.NeverAsks
	if got.IsQuestion != asks || asks && !strings.Contains(got.Text, op.Question) {
		t.Fatalf("asks: %t, want the question %q in\n%s", got.IsQuestion, op.Question, got.Text)
	}
	if got.IsQuestion {
		if early, n := w.events(t, before); n > before {
			t.Fatalf("before the answer, it has made these changes:\n%s", early)
		}
		got = v.Send(t, w, Call{Given: arguments, Sure: true})
	}
	if done, _ := w.events(t, before); got.IsQuestion || done != changes || changes == "" {
		t.Errorf("it has made these changes:\n%s\nwant\n%s\nit says\n%s", done, changes, got.Text)
	}
	if isJSON := strings.TrimSpace(w.plain(got.JSON)); got.JSON != "" && isJSON != wantJSON {
		t.Errorf("programs get\n%s\nwant\n%s", isJSON, wantJSON)
	}
}
