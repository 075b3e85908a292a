package quotas

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// brief is a rule with windows that are short enough for a test to wait for.
var brief = quota.Rule{Slice: 25 * time.Millisecond, Slices: 20, Day: 24 * time.Hour}

// During and after every fault of a real Redis, requests are decided: by the share while Redis is
// down, then by Redis again. Each outage is logged. TestOutageBound counts what is admitted.
func TestFaults(t *testing.T) {
	f := func(name string, down bool, start, end func(t *testing.T, s *testkit.Server, p *testkit.Proxy)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, log := testkit.StartRedis(t), new(testkit.Output)
			proxy := testkit.NewProxy(t, server.Addr)
			cfg := Config{RedisURL: "redis://" + proxy.Addr, Log: slog.New(slog.NewTextHandler(log, nil))}
			if !down {
				cfg.Budget = redisBudget
			}
			l := openQuotas(t, cfg)
			// Before Redis has answered, a slow machine may refuse: the share is 1 then.
			testkit.Eventually(t, time.Minute, "Redis decides",
				func() bool { return !mustTake(t, l, asking(1, 100_000)).Degraded })
			isDegraded := func() bool {
				v := mustTake(t, l, asking(1, 100_000))
				if v.Granted != 1 {
					t.Errorf("refused: %+v", v)
				}
				return v.Degraded
			}
			start(t, server, proxy)
			if down {
				testkit.Eventually(t, 20*time.Second, "the share decides", isDegraded)
			}
			for range 100 {
				if isDegraded() != down {
					t.Fatalf("decided without Redis: %t", !down)
				}
			}
			end(t, server, proxy)
			testkit.Eventually(t, 20*time.Second, "Redis decides again", func() bool { return !isDegraded() })
			must.Equal(t, strings.Contains(log.String(), "quotas are decided without Redis"), down,
				"an outage is logged")
		})
	}
	none := func(*testing.T, *testkit.Server, *testkit.Proxy) {}
	restore := func(t *testing.T, _ *testkit.Server, p *testkit.Proxy) { p.Restore(t) }
	do := func(args ...any) func(t *testing.T, s *testkit.Server, p *testkit.Proxy) {
		return func(t *testing.T, s *testkit.Server, _ *testkit.Proxy) {
			must.Do(t, dial(t, s.URL).Do(always, args...).Err())
		}
	}
	f("kill", true, func(t *testing.T, s *testkit.Server, _ *testkit.Proxy) { s.Kill(t) },
		func(t *testing.T, s *testkit.Server, _ *testkit.Proxy) { s.Start(t) })
	f("pause", true, func(t *testing.T, s *testkit.Server, _ *testkit.Proxy) { s.Pause(t) },
		func(t *testing.T, s *testkit.Server, _ *testkit.Proxy) { s.Resume(t) })
	f("black hole", true, func(t *testing.T, _ *testkit.Server, p *testkit.Proxy) { p.BlackHole() }, restore)
	f("connections refused", true, func(t *testing.T, _ *testkit.Server, p *testkit.Proxy) { p.Kill() }, restore)
	f("connections reset", false, func(t *testing.T, _ *testkit.Server, p *testkit.Proxy) { p.Reset() }, none)
	f("flushed", false, do("FLUSHALL"), none)
	f("functions flushed", false, do("FUNCTION", "FLUSH"), none)
	f("out of memory", true, do("CONFIG", "SET", "maxmemory", "1"), do("CONFIG", "SET", "maxmemory", "0"))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestHealth(t *testing.T) {
	server := testkit.StartRedis(t, "--maxmemory-policy", "allkeys-lru")
	log := new(testkit.Output)
	l := openQuotas(t,
		Config{RedisURL: server.URL, Budget: 500 * time.Millisecond, Log: slog.New(slog.NewJSONHandler(log, nil))})
	for range 3 {
		if got := l.Health(always); len(got) != 1 || !strings.Contains(got[0].Error(), "allkeys-lru") {
			t.Errorf("an evicting Redis: %q", got)
		}
	}
	if lines := log.Lines(); len(lines) != 1 || !strings.Contains(lines[0], `"level":"ERROR"`) ||
		!strings.Contains(lines[0], "allkeys-lru") {
		t.Errorf("log: %q", lines)
	}
	must.Do(t, dial(t, server.URL).ConfigSet(always, "maxmemory-policy", "noeviction").Err())
	must.Do(t, dial(t, server.URL).Do(always, "CLIENT", "PAUSE", 1600, "ALL").Err())
	if got := l.Health(always); len(got) != 0 {
		t.Errorf("a Redis that answers after three budgets: %q", got)
	}
	server.Kill(t)
	mustTake(t, l, asking(1, 60))
	if got := l.Health(always); len(got) != 1 || !strings.Contains(got[0].Error(), "does not answer") {
		t.Errorf("no Redis: %q", got)
	}
}

// If Redis is not there when the gateway starts, this is an outage. An invalid URL is an error,
// whose text does not contain the secrets of the URL.
func TestOpen(t *testing.T) {
	l := openQuotas(t, Config{RedisURL: fmt.Sprintf("redis://127.0.0.1:%d", testkit.FreePort(t))})
	must.Equal(t, l.Mode(), modeOutage, "mode without a Redis")
	must.Equal(t, takeAll(t, l, asking(1, 60), 100), 1, "admitted by a process that has never heard of Redis")
	for _, url := range []string{
		"redis//:secret@h", "http://u:secret@h", "redis://h:1,redis://:secret@h:port", ",",
		"redis+sentinel://:secret@h:1", "redis+sentinel://:secret@h/main", "redis+sentinel://:secret@h:1/main/x",
		"redis+sentinel://%zz:secret@h:1/main",
	} {
		if _, err := Open(always, Config{RedisURL: url}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("Open(%q): %v", url, err)
		}
	}
}

// A panic in a trip is a failed trip: all requests that wait for it are decided without Redis, and
// later trips work.
func TestAPanicInATripIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := newMemory(quota.Product, time.Now)
		log := new(testkit.Output)
		panics := true
		l := newFake(t, Config{Log: slog.New(slog.NewTextHandler(log, nil))},
			func(ctx context.Context, demands []store.Demand, results []store.Result) error {
				if panics {
					panics = false
					time.Sleep(time.Millisecond) // others gather
					panic("in a library")
				}
				return records.Decide(ctx, demands, results)
			})
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { mustTake(t, l, asking(i%5, 60)) })
		}
		all.Wait()
		if l.Mode() != modeOutage || !strings.Contains(strings.Join(log.Lines(), "\n"), "in a library") {
			t.Errorf("mode %s, log %q", l.Mode(), log.Lines())
		}
		time.Sleep(time.Second)
		if v := mustTake(t, l, asking(1, 60)); v.Granted != 1 || l.Mode() != modeShared {
			t.Errorf("afterwards: %+v, mode %s", v, l.Mode())
		}
	})
}

// A wrong password in REDIS_URL is named, and the gateway is not ready before Redis has accepted it
// once. If the password changes later, the gateway stays ready.
func TestRefusedPasswordIsNamed(t *testing.T) {
	server := testkit.StartRedis(t)
	admin := dial(t, server.URL)
	do := func(args ...any) {
		t.Helper()
		must.Do(t, admin.Do(always, args...).Err())
	}
	do("ACL", "SETUSER", "petgate", "on", ">right", "~*", "+@all")
	var log testkit.Output
	const wrong = "wrong-5nCq"
	l := openQuotas(
		t,
		Config{
			RedisURL: "redis://petgate:" + wrong + "@" + server.Addr,
			Budget:   redisBudget,
			Log:      slog.New(slog.NewTextHandler(&log, nil)),
		},
	)
	named := func(l Quotas, isReady bool) {
		t.Helper()
		testkit.Eventually(t, time.Minute, "the cause is named", func() bool {
			problems := fmt.Sprint(l.Health(always))
			return strings.Contains(problems, "refuses the user or the password: correct REDIS_URL") &&
				(l.Ready() == nil) == isReady
		})
	}
	named(l, false)
	testkit.Eventually(t, time.Minute, "the log names the cause", func() bool {
		return strings.Contains(log.String(), "correct REDIS_URL") && strings.Contains(log.String(), "ERROR")
	})
	if text := log.String(); strings.Contains(text, wrong) {
		t.Errorf("the log has the password: %s", text)
	}
	if v := mustTake(t, l, asking(1, 60)); !v.Degraded {
		t.Errorf("requests that arrive all the same are decided by shares: %+v", v)
	}
	healthy := func() {
		t.Helper()
		testkit.Eventually(t, time.Minute, "Redis decides",
			func() bool { return l.Ready() == nil && len(l.Health(always)) == 0 })
	}
	do("ACL", "SETUSER", "petgate", ">"+wrong)
	healthy()
	do("ACL", "SETUSER", "petgate", "<"+wrong)
	do("CLIENT", "KILL", "USER", "petgate")
	if v := mustTake(t, l, asking(1, 60)); !v.Degraded {
		t.Errorf("after the password has changed: %+v", v)
	}
	named(l, true)
	do("ACL", "SETUSER", "petgate", ">"+wrong, "-fcall", "-eval", "-evalsha")
	testkit.Eventually(t, time.Minute, "a missing right is named", func() bool {
		return strings.Contains(fmt.Sprint(l.Health(always)), "ACL SETUSER")
	})
	do("ACL", "SETUSER", "petgate", "+@all")
	healthy()
}
