package e2e_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// keyShown is what keyadmin shows of a key.
type keyShown struct {
	fleet.Key
	Status      string    `json:"status"`
	ExpiresAt   time.Time `json:"expiresAt"`
	GraceEndsAt time.Time `json:"graceEndsAt"`
	ReplacedBy  string    `json:"replacedBy"`
	LastUsedAt  time.Time `json:"lastUsedAt"`
}

// show runs a command that prints JSON.
func show[T any](t testing.TB, f *fleet.Fleet, args ...string) (shown T) {
	t.Helper()
	out := f.MustKeyadmin(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		t.Fatalf("keyadmin %s printed %q: %v", strings.Join(args, " "), out, err)
	}
	return shown
}

// byQuota are the outcomes that depend on the use of a minute. The last one is of a gateway that decides without Redis.
var byQuota = []string{"ok", "minute_quota_exceeded", "limits_degraded"}

// A key and its successor share one quota, and responses to the old key say when it ends.
func TestRotation(t *testing.T) {
	t.Parallel()
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: redis, RedisPrefix: prefix, Gateways: 2, Upstreams: fleet.FixedUpstream(t),
		GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=0s", "GATEWAY_BAN_AFTER=0"},
	})
	one, two := f.Gateways[0], f.Gateways[1]
	s, admitted := &quotaSite{Fleet: f, t: t}, 0
	ask := func(g *fleet.Program, token string) (expires string) {
		t.Helper()
		reply := g.MustAsk(t, token)
		if reply.Status == 200 {
			admitted++
		} else if !slices.Contains(byQuota, reply.Code()) {
			t.Errorf("%s answers %v", g.ID, reply)
		}
		return reply.Header.Get("X-Key-Expires")
	}
	old := f.NewTenant("acme", "--minute", "10", "--day", "1000")
	if at := show[keyShown](t, f, "key", "show", old.ID).LastUsedAt; !at.IsZero() {
		t.Errorf("a new key was last used at %v", at)
	}
	for range 5 {
		if expires := ask(one, old.Token); expires != "" {
			t.Errorf("X-Key-Expires: %s of a key that was not rotated", expires)
		}
	}

	fresh := show[keyShown](t, f, "key", "rotate", old.ID, "--grace", "1h", "--yes")
	again := show[keyShown](t, f, "key", "rotate", old.ID, "--grace", "1h", "--yes")
	if fresh.Token == "" || again.Token != "" || again.ID != fresh.ID {
		t.Errorf("rotated to %s, and again to %s, with a token: %t, %t", fresh.ID, again.ID, fresh.Token != "", again.Token != "")
	}
	if keys := show[[]keyShown](t, f, "key", "list", "acme"); len(keys) != 2 {
		t.Errorf("%d keys after a rotation, want 2", len(keys))
	}
	shown := show[keyShown](t, f, "key", "show", old.ID)
	if left := time.Until(shown.GraceEndsAt); shown.ReplacedBy != fresh.ID || left > time.Hour || left < 50*time.Minute {
		t.Errorf("the old key is replaced by %s, with a grace of %v", shown.ReplacedBy, left)
	}
	for range 5 {
		if expires := ask(two, fresh.Token); expires != "" {
			t.Errorf("X-Key-Expires: %s of the new key", expires)
		}
	}
	// The header has whole seconds, and is not later than the end.
	field := ask(one, old.Token)
	expires, err := http.ParseTime(field)
	if late := expires.Sub(shown.GraceEndsAt); err != nil || late > 0 || late < -time.Second {
		t.Errorf("X-Key-Expires: %s, %v after the grace's end: %v", field, late, err)
	}
	if ask(two, fresh.Token); !s.exactly(admitted, 10) { // used up by both together
		t.Errorf("%d of 12 requests were admitted, want 10", admitted)
	}
	for _, id := range []string{old.ID, fresh.ID} {
		testkit.Eventually(t, fleet.ReplyWithin, "it is known when each key was last used", func() bool {
			at := show[keyShown](t, f, "key", "show", id).LastUsedAt
			return time.Since(at) < time.Minute
		})
	}

	f.MustKeyadmin("tenant", "set-quota", "acme", "--minute", "1000")
	short := show[keyShown](t, f, "key", "rotate", fresh.ID, "--grace", "2s", "--yes")
	ends := show[keyShown](t, f, "key", "show", fresh.ID).GraceEndsAt
	var last fleet.Reply
	testkit.Eventually(t, fleet.ReplyWithin, "the grace ends", func() bool {
		last = one.MustAsk(t, fresh.Token)
		if last.Status == 401 && time.Now().Before(ends) {
			t.Errorf("refused %v before the grace's end", time.Until(ends))
		}
		return last.Status == 401
	})
	if late := time.Since(ends); late > 20*time.Second || !strings.Contains(last.Body, "was rotated and has ended") {
		t.Errorf("refused %v after the grace's end: %s", late, last.Body)
	}
	two.Want(t, short.Token, 200, "")
	t.Logf("figure: a key and its successor on two gateways: 10 requests of a quota of 10, then both refused")
}

// usageShown is a line of usage show.
type usageShown struct {
	KeyID    string `json:"key"`
	Outcome  string `json:"outcome"`
	Requests int    `json:"requests"`
}

type usageLine struct{ keyID, outcome string }

func usage(t testing.TB, f *fleet.Fleet, tenant string) map[usageLine]int {
	t.Helper()
	sums := map[usageLine]int{}
	for _, line := range show[[]usageShown](t, f, "usage", "show", tenant) {
		sums[usageLine{line.KeyID, line.Outcome}] += line.Requests
	}
	return sums
}

// usage show counts every request, after a gateway has written its usage or ended cleanly.
func TestUsageAddsUp(t *testing.T) {
	t.Parallel()
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: redis, RedisPrefix: prefix, Gateways: 2, Upstreams: fleet.FixedUpstream(t),
		GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=0s", "GATEWAY_BAN_AFTER=0"},
	})
	one, two := f.Gateways[0], f.Gateways[1]
	key := f.NewTenant("acme", "--minute", "60", "--day", "1000")
	reader := f.NewKey("acme", "--scope", "pets:read")
	s, made, requests := &quotaSite{Fleet: f, t: t}, map[usageLine]int{}, 0
	make := func(g *fleet.Program, n int, key fleet.Key, methodAndTarget, outcome string, lines ...string) {
		t.Helper()
		c := g.Client()
		defer c.Close()
		turned := 0 // the quota has decided otherwise
		for range n {
			a, err := c.Do(fleet.Request(methodAndTarget, key.Token, "", lines...))
			got := cmp.Or(a.Code(), "ok")
			if err == nil && got != outcome && slices.Contains(byQuota, got) {
				turned++
			} else if err != nil || got != outcome {
				t.Fatalf("%s: %d %q: %v", methodAndTarget, a.Status, a.Code(), err)
			}
			made[usageLine{key.ID, got}]++
		}
		requests += n
		if !s.exactly(turned, 0) {
			t.Errorf("%d of %d requests have another outcome than %s", turned, n, outcome)
		}
	}
	isShown := func() bool { return maps.Equal(usage(t, f, "acme"), made) }

	make(one, 7, key, "GET /v1/pets", "ok")
	make(two, 4, reader, "GET /v1/pets", "ok")
	make(one, 3, reader, "POST /v1/pets", "insufficient_scope", "Content-Length: 0")
	make(two, 2, key, "GET /v1/nothing", "no_such_route")
	testkit.Eventually(t, fleet.ReplyWithin, "what was asked is flushed", isShown)

	make(two, 44, key, "GET /v1/pets", "ok")
	make(two, 5, key, "GET /v1/pets", "minute_quota_exceeded")
	if code := two.Stop(); code != 0 || !isShown() {
		t.Errorf("after SIGTERM, exit code %d: made %v, shown %v", code, made, usage(t, f, "acme"))
	}
	t.Logf("figure: %d requests made on two gateways, all shown after flushes and SIGTERM", requests)
}

// Which key may call which gateway, from which address and when.
func TestWhoMayCall(t *testing.T) {
	t.Parallel()
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: redis, RedisPrefix: prefix, Gateways: 1, Upstreams: fleet.FixedUpstream(t), GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=0s"},
	})
	live := f.Gateways[0]
	staging, behindProxy := f.AddGateway("GATEWAY_ENVIRONMENT=test"), f.AddGateway("GATEWAY_TRUSTED_PROXIES=127.0.0.0/8")
	key := f.NewTenant("acme", fleet.Unlimited...)
	testKey := f.NewKey("acme", "--test")
	says := func(a fleet.Reply, message string) {
		t.Helper()
		if !strings.Contains(a.Body, message) {
			t.Errorf("%s does not say %q", a.Body, message)
		}
	}

	live.Want(t, key.Token, 200, "")
	staging.Want(t, testKey.Token, 200, "")
	says(live.Want(t, testKey.Token, 401, "invalid_api_key"), "the API key is a test key, and this gateway serves live keys")
	says(staging.Want(t, key.Token, 401, "invalid_api_key"), "the API key is a live key, and this gateway serves test keys")

	office := f.NewKey("acme", "--allow", "192.0.2.0/24", "--allow", "2001:db8::/32")
	here := f.NewKey("acme", "--allow", "127.0.0.0/8")
	live.Want(t, here.Token, 200, "")
	live.Want(t, office.Token, 403, "address_not_allowed")
	live.Want(t, office.Token, 403, "address_not_allowed", "X-Forwarded-For: 192.0.2.7") // no client is trusted to send it
	for from, status := range map[string]int{
		"192.0.2.7": 200, "192.0.3.7": 403, "2001:db8:1::7": 200, "2001:db9::7": 403, "198.51.100.1, 192.0.2.255": 200,
		"192.0.2.7, 198.51.100.1": 403,
	} {
		code := map[int]string{403: "address_not_allowed"}[status]
		behindProxy.Want(t, office.Token, status, code, "X-Forwarded-For: "+from)
	}

	f.MustKeyadmin("tenant", "suspend", "acme", "--yes")
	live.Want(t, key.Token, 403, "tenant_suspended")
	staging.Want(t, testKey.Token, 403, "tenant_suspended")
	f.MustKeyadmin("tenant", "resume", "acme")
	live.Want(t, key.Token, 200, "")
	staging.Want(t, testKey.Token, 200, "")

	// On a busy machine, a short life may end before the first request.
	accepted := 0
	for _, life := range []time.Duration{3 * time.Second, 12 * time.Second, 48 * time.Second} {
		short := f.NewKey("acme", "--expires", life.String())
		ends := show[keyShown](t, f, "key", "show", short.ID).ExpiresAt
		var last fleet.Reply
		testkit.Eventually(t, life+fleet.ReplyWithin, "the key expires", func() bool {
			last = live.MustAsk(t, short.Token)
			switch now := time.Now(); {
			case last.Status == 200:
				accepted++
			case now.Before(ends):
				t.Errorf("answered %d %v before the key expires", last.Status, ends.Sub(now))
			}
			return last.Status == 401
		})
		if says(last, "the API key has expired"); accepted > 0 {
			break
		}
	}
	if accepted == 0 {
		t.Error("no key was accepted before its end")
	}
}
