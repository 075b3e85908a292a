package keystore_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/database"
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

func TestGateways(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		one := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a", AdminAddress: "10.0.0.1:9090", MaxAge: 7 * time.Second})
		two := registered(t, s, keystore.Registration{ID: "gw-2", Incarnation: "b"})
		beat, err := s.Heartbeat(ctx, one, 0, "")
		if err != nil || beat.Registry != two.Generation || time.Since(beat.Now.Time()).Abs() > 10*time.Second {
			t.Errorf("heartbeat before the first event: %+v, %v", beat, err)
		}
		if last, err := s.LastEvent(ctx); err != nil || last != 0 {
			t.Errorf("before the first event: %d, %v", last, err)
		}
		newTenant(t, s, "acme")
		event := must.Get[[]keystore.Event](t)(keystore.Collect(s.Events(ctx, keystore.EventFilter{}, 0)))[0]
		if last, err := s.LastEvent(ctx); err != nil || last != event.ID {
			t.Errorf("the last event: %d, %v", last, err)
		}
		must.Get[keystore.Beat](t)(s.Heartbeat(ctx, one, event.ID, event.UUID))
		for id, uuid := range map[keystore.Change]string{event.ID: "another", event.ID + 1: event.UUID} {
			_, err = s.Heartbeat(ctx, one, id, uuid)
			wantError(t, err, keystore.ErrRewound)
			_, err = s.Tail(ctx, id, uuid, 10, keystore.Rows{})
			wantError(t, err, keystore.ErrRewound)
		}

		gateways := must.Get[[]keystore.Gateway](t)(s.Gateways(ctx))
		if len(gateways) != 2 {
			t.Fatalf("gateways: %+v", gateways)
		}
		g := gateways[0]
		if g.ID != "gw-1" || g.AdminAddress != "10.0.0.1:9090" || g.Applied != event.ID || g.MaxAge != 7000 || g.Age < 0 || g.Age > 5000 ||
			time.Since(g.SeenAt.Time()).Abs() > 10*time.Second || g.Replaced || gateways[1].Applied != 0 {
			t.Errorf("gateways: %+v", gateways)
		}
		must.Do(t, s.SignOff(ctx, one))
		if err := s.SignOff(ctx, one); err != nil { // as after a lost answer
			t.Error(err)
		}
		must.Get[keystore.Change](t)(s.ForgetGateway(ctx, "gw-2"))
		wantEqual(t, "gateways", must.Get[[]keystore.Gateway](t)(s.Gateways(ctx)), []keystore.Gateway{})
		_, err = s.Heartbeat(ctx, two, event.ID, event.UUID)
		wantError(t, err, keystore.ErrNotFound)
		_, err = s.ForgetGateway(ctx, "gw-2")
		wantError(t, err, keystore.ErrNotFound, "no gateway")
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
		wantError(t, s.TakeUnreported(ctx, func(texts []string) error { return failed }), failed)
		wantLeft(all...)

		before := must.Get[keystore.Beat](t)(s.Heartbeat(ctx, here, 0, "")).Registry
		taken := make(chan string, 10)
		var takers sync.WaitGroup
		for range 4 {
			takers.Go(func() {
				err := s.TakeUnreported(ctx, func(texts []string) error {
					for _, text := range texts {
						taken <- text
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		takers.Wait()
		close(taken)
		var got []string
		for text := range taken {
			got = append(got, text)
		}
		slices.Sort(got)
		wantEqual(t, "taken", got, all)
		wantLeft()
		if after := must.Get[keystore.Beat](t)(s.Heartbeat(ctx, here, 0, "")).Registry; after != before+1 {
			t.Errorf("the registry has generation %d after %d: the others do not learn that all is taken, or learn it for nothing", after, before)
		}
	})
}

// A silent process is removed only if it has not been seen since.
func TestSilentProcessIsRemoved(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		ctx := t.Context()
		r := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a", MaxAge: time.Second})
		silent := must.Get[[]keystore.Gateway](t)(s.Gateways(ctx))[0]
		seen := silent
		for seen.SeenAt == silent.SeenAt { // the database's clock goes in milliseconds
			must.Get[keystore.Beat](t)(s.Heartbeat(ctx, r, 0, ""))
			seen = must.Get[[]keystore.Gateway](t)(s.Gateways(ctx))[0]
		}
		if must.Get[bool](t)(s.RemoveFenced(ctx, silent)) || len(must.Get[[]keystore.Gateway](t)(s.Gateways(ctx))) != 1 {
			t.Error("a process that was seen again is removed")
		}
		if !must.Get[bool](t)(s.RemoveFenced(ctx, seen)) || len(must.Get[[]keystore.Gateway](t)(s.Gateways(ctx))) != 0 {
			t.Error("a silent process is not removed")
		}
		if must.Get[bool](t)(s.RemoveFenced(ctx, seen)) {
			t.Error("it is removed twice")
		}
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
			for _, g := range must.Get[[]keystore.Gateway](t)(s.Gateways(ctx)) {
				found = append(found, g.Incarnation)
				if g.Replaced != (g.Incarnation != incarnations[len(incarnations)-1]) {
					t.Errorf("%s: %s is replaced: %t", what, g.Incarnation, g.Replaced)
				}
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
		_, err := s.Heartbeat(ctx, a, 0, "")
		wantError(t, err, keystore.ErrDisplaced, "GATEWAY_ID")
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

// A restored or failed-over database displaces no gateway: it has only smaller generations, or an equal one of another process.
func TestRestoredDatabaseDisplacesNobody(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := open(t, url)
		s := keystore.New(db, nil, nil, "ada")
		process := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "now"})
		for _, restored := range []struct {
			what        string
			incarnation string
			generation  int64
		}{
			{"an earlier process", "before", process.Generation - 1},
			{"another process of the same generation", "elsewhere", process.Generation},
			{"this process, before it registered again", "now", process.Generation - 1},
		} {
			restore(t, db, restored.incarnation, restored.generation)
			_, err := s.Heartbeat(t.Context(), process, 0, "")
			wantError(t, err, keystore.ErrNotFound)
			again := registered(t, s, process)
			if again.Generation <= process.Generation {
				t.Errorf("%s: generation %d after %d", restored.what, again.Generation, process.Generation)
			}
			if _, err := s.Heartbeat(t.Context(), again, 0, ""); err != nil {
				t.Errorf("%s: %v", restored.what, err)
			}
			process = again
		}
	})
}

// restore replaces all gateways by one.
func restore(t *testing.T, db *database.DB, incarnation string, generation int64) {
	t.Helper()
	run(t, db, "DELETE FROM gateways WHERE incarnation <> 'now'")
	run(t, db, "UPDATE gateways SET incarnation = $1, generation = $2", incarnation, generation)
	run(t, db, "UPDATE gateway_registry SET generation = $1", generation)
}

// A Watch measures by its own clock how long ago it first saw a heartbeat.
func TestWatch(t *testing.T) {
	const maxAge = 7000
	begun := time.Now()
	at := func(ms int64) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }
	gateway := func(seenAt instant.Millis, age int64) (g keystore.Gateway) {
		g = keystore.Gateway{ID: "gw-1", Incarnation: "a", MaxAge: maxAge}
		g.SeenAt, g.Age = seenAt, age
		return g
	}
	silent := gateway(0, 60_000)
	if silent.Replaced = true; silent.State(1) != keystore.GatewayReplaced {
		t.Errorf("a process that was replaced and is silent for long is %s", silent.State(1))
	}
	var w keystore.Watch
	if w.Fenced(gateway(100, 1<<40), at(0)) {
		t.Error("fenced by the database's clock alone")
	}
	if w.Fenced(gateway(100, 0), at(maxAge+1007)) {
		t.Error("fenced before its maximum age, a second and a thousandth have passed")
	}
	if !w.Fenced(gateway(100, 0), at(maxAge+1008)) {
		t.Error("not fenced after its maximum age has passed")
	}
	if w.Fenced(gateway(101, 1<<40), at(maxAge+1009)) {
		t.Error("fenced after another heartbeat")
	}
	if !w.Fenced(gateway(101, 0), at(2*maxAge+2018)) {
		t.Error("not fenced a second time")
	}
	w.Keep(nil)
	if w.Fenced(gateway(101, 1<<40), at(3*maxAge)) {
		t.Error("fenced by what was forgotten")
	}
	if never := (keystore.Gateway{ID: "gw-2", Age: 1 << 40}); w.Fenced(never, at(1<<40)) {
		t.Error("fenced without a maximum age")
	}
}

// The scopes of new keys are those of the documents that gateways serve, and the prefix is that of the gateway that registered last.
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
			if _, token, _, err = s.RotateKey(ctx, k.ID, c.millis()+1000); err != nil || !strings.HasPrefix(token, prefix+"_live_") {
				t.Errorf("after a rotation: %.10s, %v; want %s", token, err, prefix)
			}
		}
		f("pets:read pets:write", false)
		one := registered(t, s, keystore.Registration{ID: "gw-1", Incarnation: "a"})
		two := registered(t, s, keystore.Registration{ID: "gw-2", Incarnation: "b"})
		f("pets:read pets:write", false) // an earlier version says nothing
		document := keystore.Document{Hash: "0123456789ab", Title: `Orders "and" more`, Version: "7", Scopes: []string{"write", "orders:read"}}
		must.Do(t, s.DescribeGateway(ctx, one, document))
		f("orders:read write", true)
		must.Do(t, s.DescribeGateway(ctx, two, keystore.Document{Hash: "ff", Scopes: []string{"read", "write"}, KeyPrefix: "acme"}))
		prefix = "acme"
		f("orders:read read write", true)
		wantEqual(t, "document", must.Get[[]keystore.Gateway](t)(s.Gateways(ctx))[0].Document, document)
		must.Do(t, s.SignOff(ctx, two))
		prefix = apikey.DefaultPrefix
		f("orders:read write", true)
	})
}
