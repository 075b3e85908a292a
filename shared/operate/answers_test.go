package operate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/golden"
	"petgate/shared/testkit/must"
)

// What operators ask has the answers in testdata/answers.golden. Whatever table cannot be read, an
// answer is an error, or it is the same.
func TestAnswers(t *testing.T) {
	t.Parallel()
	db := testkit.Open(t, testkit.SQLite(t), schema.Migrations)
	o, ci, clock := operatorOf(t, db)
	makes := func(verb operate.Preparer) operate.Outcome {
		*clock = clock.Add(time.Second)
		return done(t, o, verb)
	}
	created := makes(operate.CreateTenant{Name: "globex", Plan: "pro", NewLimits: operate.NewLimits{Month: 70000}})
	globex := operate.TenantRef{Tenant: created.Line}
	other := makes(operate.CreateKey{
		TenantRef: globex, Name: "other", Expires: operate.Moment{Period: operate.Period(time.Hour)},
		Allow: blocks(t, "10.0.0.0/8"), Minute: 5, Day: 50,
	})
	token, _ := other.NewKey()
	rotated := keyOf(t, makes(operate.CreateKey{TenantRef: acme, Name: "rotated", Test: true}))
	makes(operate.RotateKey{KeyRef: rotated})
	makes(operate.AddBan{KeyRef: ci, For: operate.Period(time.Hour), Reason: "scraping", Tell: "Write to us."})
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"environment":"live","mode":"shared","operations":[{"id":"searchPets"},`+
			`{"id":"getPet","isDeprecated":true},{"id":"listPets","deprecatedAt":1},`+
			`{"id":"createPet","sunsetAt":1772755200000,"successor":"/v1/pets"},`+
			`{"id":"deletePet","deprecatedAt":1,"sunsetAt":1767225600000}]}`)
	}))
	t.Cleanup(admin.Close)
	gateway := keystore.Registration{ID: "gw-1", Incarnation: "a", AdminAddress: admin.URL}
	away := keystore.Registration{ID: "gw-0", Incarnation: "a", AdminAddress: "127.0.0.1:1"}
	must.Get[int64](t)(o.Store.Register(t.Context(), away, nil))
	must.Get[int64](t)(o.Store.Register(t.Context(), gateway, nil))
	document := keystore.Document{Scopes: []string{"pets:read", "pets:write"}, Costs: map[string]int64{"getPet": 2}}
	must.Do(t, o.Store.DescribeGateway(t.Context(), gateway, document))
	tenant := must.Get[operate.Owner](t)(o.Tenant(t.Context(), "acme")).ID
	since := instant.Of(*clock).Truncate(time.Hour)
	row := func(ref operate.KeyRef, operation, outcome string, ago int, requests int64) usage.Row {
		of := must.Get[keystore.Key](t)(o.Store.Key(t.Context(), ref.Key.Key))
		return usage.Row{
			Tenant: of.Tenant, Key: of.ID, Operation: operation, Outcome: outcome, Charged: outcome == "ok",
			IsTest: of.Environment == apikey.Test, Requests: requests, MoreUnits: 2 * requests,
			Hour:   since.Add(time.Duration(-ago) * time.Hour),
			LastAt: since.Add(time.Duration(requests) * time.Minute),
		}
	}
	must.Do(t, usage.Of(o.Store).AddUsage(t.Context(), gateway, 1, []usage.Row{
		row(ci, "getPet", "ok", 0, 5),
		row(ci, "getPet", "ok", 1, 6),
		row(ci, "getPet", "key_banned", 0, 7),
		row(ci, "createPet", "ok", 0, 8),
		row(ci, "createPet", "ok", 168, 1),
		row(ci, "createPet", "ok", 169, 2),
		row(ci, "createPet", "ok", 336, 9),
		row(ci, "createPet", "ok", 337, 3),
		{Tenant: id.Tenant{1}, Operation: "deletePet", Outcome: "ok", Hour: since, Requests: 1},
		{Tenant: tenant, Outcome: "ok", Hour: since, Requests: 1},
		row(keyOf(t, other), "getPet", "ok", 0, 10),
		row(rotated, "getPet", "ok", 0, 11),
		row(ci, "getPet", "ok", -1, 12),
	}, []usage.Minutes{
		{Tenant: tenant, Hour: since, Attempts: [60]int64{0: 7, 1: 8, 59: 9}},
		{Tenant: tenant, Hour: since.Add(-time.Hour), Attempts: [60]int64{58: 11, 59: 12}},
	}))
	lost := keystore.LostRefusal{Kind: keystore.LostRevocation, Tenant: tenant, Key: ci.Key.Key, At: since}
	must.Get[keystore.Change](t)(o.Store.ReportLost(t.Context(), []keystore.LostRefusal{lost}))

	must.Get[sql.Result](t)(db.Exec("UPDATE gateways SET seen_at = 1000"))
	gone := operate.OfTenant{Tenant: makes(operate.CreateTenant{Name: "gone", Plan: "free"}).Line}
	makes(operate.DeleteTenant{TenantRef: operate.TenantRef(gone)})
	var answers strings.Builder
	asks := func(name string, ask func(context.Context) (any, error)) {
		t.Helper()
		fmt.Fprintf(
			&answers,
			"%s: %s\n",
			name,
			withoutTables(t, db, append(verbTables, "usage_hours", "usage_minutes"), func(string) (string, error) {
				answer, err := ask(t.Context())
				return asJSON(t, answer), err
			}),
		)
	}
	of := operate.OfTenant{Tenant: tenant.String()}
	finds(asks, o, operate.FindEvents{OfTenant: gone})
	finds(asks, o, operate.FindTenants{})
	finds(asks, o, operate.FindTenants{Search: "e", Plan: "free", State: "active", Newest: true})
	finds(asks, o, operate.FindTenants{Newest: true})
	finds(asks, o, operate.FindTenants{State: "suspended"})
	finds(asks, o, operate.FindKeys{})
	finds(asks, o, operate.FindKeys{OfTenant: of})
	finds(asks, o, operate.FindBans{OfTenant: of})
	finds(
		asks,
		o,
		operate.FindEvents{
			OfTenant: of,
			Since:    operate.Moment{Period: operate.Period(2 * time.Second)},
			Key:      ci.Key,
			Actor:    "ada",
			Kind:     "ban",
		},
	)
	finds(asks, o, operate.FindEvents{OfTenant: operate.OfTenant{Tenant: "globex"}})
	for _, call := range []operate.NextCall{{Key: keyOf(t, other).Key}, {Token: token.Token}, {Tenant: "acme"}} {
		asks("explain", func(ctx context.Context) (any, error) { return call.Explain(ctx, o) })
	}
	asks("key", func(ctx context.Context) (any, error) { return o.ShowKey(ctx, ci.Key.Key) })
	asks("any tenant", func(ctx context.Context) (any, error) { return o.AnyTenant(ctx, tenant.String()) })
	asks("top", func(ctx context.Context) (any, error) {
		return o.TopUsage(ctx, since.Add(-time.Hour), since.Add(time.Hour), 9)
	})
	asks("minutes", func(ctx context.Context) (any, error) {
		return o.Minutes(ctx, tenant, apikey.Live, since-1, since.Add(59*time.Minute))
	})
	asks("owners", func(ctx context.Context) (any, error) { return o.Owners(ctx, []id.Tenant{tenant, {}}) })
	asks("gateways", func(ctx context.Context) (any, error) { _, views, err := o.ViewGateways(ctx); return views, err })
	asks("deprecated", func(ctx context.Context) (any, error) {
		views, ids, err := o.ViewDeprecated(ctx)
		return []any{views, ids}, err
	})
	asks("usage", func(ctx context.Context) (any, error) {
		by := operate.Grouping{Period: time.Hour, Operation: true, Key: true, Outcome: true}
		views, total, rows, err := o.Usage(ctx, tenant, apikey.Live, since.Add(-time.Hour), since.Add(time.Hour), by)
		return []any{views, total, len(rows)}, err
	})
	golden.Check(t, "answers", answers.String())
	for _, after := range []string{"0", "x"} {
		_, err := operate.FindEvents{}.Page(t.Context(), o, after, 1)
		must.Equal(t, err, error(operate.NoPage), "changes after %s", after)
	}
}

// finds asks for pages of a list, each of one row.
func finds[V any](asks func(string, func(context.Context) (any, error)), o operate.Operator, f operate.Finder[V]) {
	asks(fmt.Sprintf("%T", f), func(ctx context.Context) (any, error) {
		var all []operate.Page[V]
		for after := ""; ; {
			p, err := f.Page(ctx, o, after, 1)
			all = append(all, p)
			if err != nil || p.Next == "" {
				return all, err
			}
			after = p.Next
		}
	})
}

// An address that claims to be a gateway cannot make keyadmin ask another one.
func TestAskAdminFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			t.Error("the redirect is followed")
		}
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	t.Cleanup(server.Close)
	for _, path := range []string{"/about", operate.ReadyPath} {
		gateway := keystore.Gateway{AdminAddress: server.Listener.Addr().String()}
		if err := operate.AskAdmin(t.Context(), gateway, path, &struct{}{}); err == nil {
			t.Errorf("%s: a redirect is an answer", path)
		}
	}
}

// A gateway that hangs delays a refresh by the limit, and the others have all of the limit to
// answer.
func TestWatchOfAHangingGateway(t *testing.T) {
	before := operate.LiveWithin
	t.Cleanup(func() { operate.LiveWithin = before })
	operate.LiveWithin = 200 * time.Millisecond
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
	must.Do(t, err)
	defer mute.Close()
	server := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"requests":7}`)) }),
	)
	t.Cleanup(server.Close)
	var w operate.Watch
	all := w.Ask(t.Context(),
		[]keystore.Gateway{{AdminAddress: mute.Addr().String()}, {AdminAddress: server.Listener.Addr().String()}}, 1)
	if !errors.Is(all[0].Err, context.DeadlineExceeded) || all[1].Err != nil || all[1].Requests != 7 {
		t.Errorf("%+v", all)
	}
}
