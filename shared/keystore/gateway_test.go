package keystore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// registered registers a process and returns it with its generation.
func registered(t *testing.T, s *keystore.Store, r keystore.Registration, dead ...string) keystore.Registration {
	t.Helper()
	r.Generation = must.Get[int64](t)(s.Register(t.Context(), r, dead))
	return r
}

func gateways(t *testing.T, s *keystore.Store) []keystore.Gateway {
	t.Helper()
	return must.Get[[]keystore.Gateway](t)(s.Gateways(t.Context()))
}

func TestGateways(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		one := registered(
			t,
			s,
			keystore.Registration{
				ID:           "gw-1",
				Incarnation:  "a",
				AdminAddress: "10.0.0.1:9090",
				MaxAge:       7 * time.Second,
				UsageThrough: 5,
			},
		)
		two := registered(t, s, keystore.Registration{ID: "gw-2", Incarnation: "b"})
		beat, err := s.Heartbeat(ctx, one, 0, "")
		if err != nil || beat.Registry != two.Generation || time.Since(beat.Now.Time()).Abs() > time.Minute {
			t.Errorf("heartbeat before the first event: %+v, %v", beat, err)
		}
		wantEqual(t, "before the first event", must.Get[keystore.Change](t)(s.LastEvent(ctx)), keystore.Change(0))
		newTenant(t, s, "acme")
		event := events(t, s)[0]
		wantEqual(t, "the last event", must.Get[keystore.Change](t)(s.LastEvent(ctx)), event.ID)
		must.Get[keystore.Beat](t)(s.Heartbeat(ctx, one, event.ID, event.UUID))
		for id, uuid := range map[keystore.Change]string{event.ID: "another", event.ID + 1: event.UUID} {
			refused(t, keystore.ErrRewound)(s.Heartbeat(ctx, one, id, uuid))
			refused(t, keystore.ErrRewound)(s.Tail(ctx, id, uuid, 10, keystore.Rows{}))
		}

		all := gateways(t, s)
		for i, g := range all { // by the database's clock
			if now := g.SeenAt.Add(time.Duration(g.Age) * time.Millisecond).Time(); g.Age < 0 ||
				g.RegisteredAt > g.SeenAt ||
				time.Since(now).Abs() > time.Minute {
				t.Errorf("seen and registered: %+v", g)
			}
			all[i].Age, all[i].SeenAt, all[i].RegisteredAt = 0, 0, 0
		}
		wantEqual(t, "gateways", all, []keystore.Gateway{
			{
				ID:           "gw-1",
				Incarnation:  "a",
				Generation:   one.Generation,
				AdminAddress: "10.0.0.1:9090",
				Applied:      event.ID,
				MaxAge:       7000,
				UsageThrough: 5,
			},
			{ID: "gw-2", Incarnation: "b", Generation: two.Generation},
		})
		for range 2 { // the second time as after a lost answer
			must.Do(t, s.SignOff(ctx, one))
		}
		must.Get[keystore.Change](t)(s.ForgetGateway(ctx, "gw-2"))
		wantEqual(t, "gateways", gateways(t, s), []keystore.Gateway{})
		refused(t, keystore.ErrNotFound)(s.Heartbeat(ctx, two, event.ID, event.UUID))
		refused(t, keystore.ErrNotFound, "no gateway")(s.ForgetGateway(ctx, "gw-2"))
	})
}

// What a gateway leaves is taken by one other gateway, once. If it cannot keep it, it stays.
func TestUnreportedRequests(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		here := registered(t, s, keystore.Registration{ID: "gw-9", Incarnation: "here"})
		wantLeft := func(want ...string) {
			t.Helper()
			wantEqual(t, "left", must.Get[[]string](t)(s.Unreported(ctx)), append([]string{}, want...))
		}
		wantLeft()
		for _, incarnation := range []string{"a", "b", "c"} {
			r := keystore.Registration{ID: "gw-1", Incarnation: incarnation, Unreported: "requests of " + incarnation}
			if incarnation != "c" { // an operator has forgotten c
				r = registered(t, s, r)
			}
			must.Do(t, s.SignOff(ctx, r))
			must.Do(t, s.SignOff(ctx, r))
		}
		all := []string{"requests of a", "requests of b", "requests of c"}
		wantLeft(all...)
		failed := errors.New("no room")
		refused(t, failed)(s.TakeUnreported(ctx, func(texts []string) error { return failed }))
		wantLeft(all...)

		before := must.Get[keystore.Beat](t)(s.Heartbeat(ctx, here, 0, "")).Registry
		var takers sync.WaitGroup
		var mu sync.Mutex
		var taken []string
		for range 4 {
			takers.Go(func() {
				if err := s.TakeUnreported(ctx, func(texts []string) error {
					mu.Lock()
					defer mu.Unlock()
					taken = append(taken, texts...)
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		takers.Wait()
		slices.Sort(taken)
		wantEqual(t, "taken", taken, all)
		wantLeft()
		// The others learn that all is taken, and learn nothing of what takes nothing.
		wantEqual(t, "the registry's generation", must.Get[keystore.Beat](t)(s.Heartbeat(ctx, here, 0, "")).Registry,
			before+1)
	})
}

// A silent process is removed only if it has not been seen since.
func TestSilentProcessIsRemoved(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		r := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a", MaxAge: time.Second})
		silent := gateways(t, s)[0]
		seen := silent
		for seen.SeenAt == silent.SeenAt { // the database's clock goes in milliseconds
			must.Get[keystore.Beat](t)(s.Heartbeat(ctx, r, 0, ""))
			seen = gateways(t, s)[0]
		}
		remove := func(what string, g keystore.Gateway, want bool, left int) {
			t.Helper()
			if removed := must.Get[bool](t)(s.RemoveFenced(ctx, g)); removed != want || len(gateways(t, s)) != left {
				t.Errorf("%s is removed: %t", what, removed)
			}
		}
		remove("a process that was seen again", silent, false, 1)
		remove("a silent process", seen, true, 0)
		remove("what is removed", seen, false, 0)
	})
}

// An earlier process of an ID counts until it signs off, is forgotten, or is known to have ended.
func TestReplacedProcessesCount(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		want := func(what string, incarnations ...string) {
			t.Helper()
			var found []string
			for _, g := range gateways(t, s) {
				found = append(found, g.Incarnation)
				must.Equal(t, g.Replaced, g.Incarnation != incarnations[len(incarnations)-1], "%s: %s is replaced",
					what, g.Incarnation)
			}
			wantEqual(t, what, found, incarnations)
		}
		process := func(incarnation string) keystore.Registration {
			return keystore.Registration{ID: "gw-1", Incarnation: incarnation}
		}
		a := registered(t, s, process("a"))
		b := registered(t, s, process("b"))
		if a.Generation >= b.Generation {
			t.Errorf("generations %d, %d do not grow", a.Generation, b.Generation)
		}
		want("both count", "a", "b")
		refused(t, keystore.ErrDisplaced, "GATEWAY_ID")(s.Heartbeat(ctx, a, 0, ""))
		must.Get[keystore.Beat](t)(s.Heartbeat(ctx, b, 0, ""))
		must.Do(t, s.SignOff(ctx, a))
		want("signed off", "b")
		registered(t, s, process("c"))
		want("not signed off", "b", "c")
		must.Get[keystore.Change](t)(s.ForgetGateway(ctx, "gw-1"))
		want("only the replaced one is forgotten", "c")
		registered(t, s, process("d"), "c", "nothing")
		want("known to have ended", "d")
	})
}

// A restored or failed-over database displaces no gateway: it has only smaller generations, or an
// equal one of another process.
func TestRestoredDatabaseDisplacesNobody(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := open(t, url)
		s := keystore.New(db, nil, nil, "ada")
		process := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "now"})
		for incarnation, behind := range map[string]int64{
			"before": 1, "elsewhere": 0, "now": 1, // an earlier process, another one of the same generation, this one before it registered again
		} {
			run(t, db, "UPDATE gateways SET incarnation = $1, generation = $2", incarnation, process.Generation-behind)
			run(t, db, "UPDATE gateway_registry SET generation = $1", process.Generation-behind)
			refused(t, keystore.ErrNotFound)(s.Heartbeat(t.Context(), process, 0, ""))
			again := registered(t, s, process)
			if _, err := s.Heartbeat(t.Context(), again, 0, ""); err != nil || again.Generation <= process.Generation {
				t.Errorf("%s: generation %d after %d: %v", incarnation, again.Generation, process.Generation, err)
			}
			run(t, db, "DELETE FROM gateways WHERE incarnation <> 'now'")
			process = again
		}
	})
}

// A Watch measures by its own clock how long ago it first saw a heartbeat.
func TestWatch(t *testing.T) {
	const maxAge = 7000
	begun := time.Now()
	var w keystore.Watch
	f := func(what string, atMs int64, seenAt instant.Millis, age int64, want bool) {
		t.Helper()
		g := keystore.Gateway{ID: "gw-1", Incarnation: "a", MaxAge: maxAge, SeenAt: seenAt, Age: age}
		must.Equal(t, w.Fenced(g, begun.Add(time.Duration(atMs)*time.Millisecond)), want, "%s: fenced", what)
	}
	f("the database's clock alone", 0, 100, 1<<40, false)
	f("its maximum age, a second and a thousandth are not over", maxAge+1007, 100, 0, false)
	f("they are over", maxAge+1008, 100, 0, true)
	f("another heartbeat", maxAge+1009, 101, 1<<40, false)
	f("a second time", 2*maxAge+2018, 101, 0, true)
	w.Keep(nil)
	f("what was forgotten", 3*maxAge, 101, 1<<40, false)
	if never := (keystore.Gateway{ID: "gw-2", Age: 1 << 40}); w.Fenced(never, begun.Add(1<<40)) {
		t.Error("fenced without a maximum age")
	}
	silent := keystore.Gateway{MaxAge: maxAge, Age: 60_000, Replaced: true}
	wantEqual(t, "a process that was replaced and is silent for long", silent.State(1), keystore.GatewayReplaced)
	for g, want := range map[*keystore.Gateway]string{
		{Age: 3000, Applied: 1}: keystore.GatewayLive, {Age: 3001, Applied: 1}: keystore.GatewaySilent, {}: keystore.GatewayStarting,
		{MaxAge: maxAge, Age: maxAge + 1007}: keystore.GatewaySilent, {MaxAge: maxAge, Age: maxAge + 1008}: keystore.GatewayFenced,
	} {
		wantEqual(t, fmt.Sprintf("%+v", *g), g.State(1), want)
	}
	wantEqual(t, "before the first event", keystore.Gateway{}.State(0), keystore.GatewayLive)
}

// The scopes of new keys are those of the documents that gateways serve, and the prefix is that of
// the gateway that registered last.
func TestScopesOfGateways(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		tenant := newTenant(t, s, "acme")
		prefix := apikey.DefaultPrefix
		f := func(want apikey.Scopes, wantKnown bool) {
			t.Helper()
			if got, isKnown, err := s.Scopes(ctx); got != want || isKnown != wantKnown || err != nil {
				t.Errorf("the scopes are %q, known: %t, %v; want %q", got, isKnown, err, want)
			}
			k, token, _, err := s.CreateKey(ctx, keystore.KeySpec{Tenant: tenant.ID})
			if err != nil || k.Scopes != want || !strings.HasPrefix(token, prefix+"_live_") {
				t.Errorf("a new key has %q, %.10s, %v; want %q, %s", k.Scopes, token, err, want, prefix)
			}
			if _, token, _, err = s.RotateKey(ctx, k.ID, c.millis()+1000); err != nil ||
				!strings.HasPrefix(token, prefix+"_live_") {
				t.Errorf("after a rotation: %.10s, %v; want %s", token, err, prefix)
			}
		}
		f("pets:read pets:write", false)
		one := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a"})
		two := registered(t, s, keystore.Registration{ID: "gw-2", Incarnation: "b"})
		f("pets:read pets:write", false) // an earlier version says nothing
		document := keystore.Document{
			Hash:    "0123456789ab",
			Title:   `Orders "and" more`,
			Version: "7",
			Scopes:  []string{"write", "orders:read"},
		}
		must.Do(t, s.DescribeGateway(ctx, one, document))
		f("orders:read write", true)
		must.Do(
			t,
			s.DescribeGateway(ctx, two,
				keystore.Document{Hash: "ff", Scopes: []string{"read", "write"}, KeyPrefix: "acme"}),
		)
		prefix = "acme"
		f("orders:read read write", true)
		wantEqual(t, "document", gateways(t, s)[0].Document, document)
		must.Do(t, s.SignOff(ctx, two))
		prefix = apikey.DefaultPrefix
		f("orders:read write", true)
		if _, token := newKey(t, s, keystore.KeySpec{Tenant: tenant.ID, Prefix: "own"}); !strings.HasPrefix(
			token, "own_live_",
		) {
			t.Errorf("a token with a prefix of its own: %.10s", token)
		}
	})
}
