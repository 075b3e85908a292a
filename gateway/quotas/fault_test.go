package quotas

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// brief is a rule with windows that are short enough for a test to wait for.
var brief = quota.Rule{Slice: 25 * time.Millisecond, Slices: 20, Day: 24 * time.Hour}

// load sends requests of one tenant to all gateways. It records when each request was admitted.
type load struct {
	stop     chan struct{}
	workers  sync.WaitGroup
	mu       sync.Mutex
	errors   int
	admitted []time.Time
}

func startLoad(gateways []Quotas, a Request) *load {
	w := &load{stop: make(chan struct{})}
	for _, l := range gateways {
		for range 3 {
			w.workers.Go(func() { w.work(l, a) })
		}
	}
	return w
}

func (w *load) work(l Quotas, a Request) {
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-pace.C:
		}
		v, err := l.Take(a)
		w.mu.Lock()
		if err != nil {
			w.errors++
		} else if v.Granted == 1 {
			w.admitted = append(w.admitted, v.At.Time()) // when it was decided, not when the answer arrived
		}
		w.mu.Unlock()
	}
}

// since returns the admissions since an instant.
func (w *load) since(from time.Time) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return admittedBetween(w.admitted, from, time.Now())
}

func (w *load) end() {
	close(w.stop)
	w.workers.Wait()
}

func admittedBetween(admitted []time.Time, from, to time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(admitted), func(at time.Time) bool { return at.Before(from) || at.After(to) })
}

// During and after every fault of Redis, no request fails because of the fault, each tenant is still admitted, and no window
// admits more than twice the limit. When Redis is back, the gateways soon use it again.
func TestFaults(t *testing.T) {
	const gateways, limit = 2, 40
	fault, restored := 700*time.Millisecond, 20*time.Second
	if testkit.FullSize {
		fault = 5 * time.Second
	}
	window := brief.Window()
	f := func(name string, down, forgets bool, start, end func(t *testing.T, s *testkit.Server, p *testkit.Proxy)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testkit.StartRedis(t)
			proxy := testkit.NewProxy(t, server.Addr)
			log := new(testkit.Output)
			limiters := make([]Quotas, gateways)
			for i := range gateways {
				limiters[i] = openQuotas(t, Config{
					RedisURL: "redis://" + proxy.Addr, Rule: brief, LiveGateways: func() int { return gateways },
					Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: prometheus.NewRegistry(),
				})
			}
			all := func(mode string) func() bool {
				return func() bool {
					return !slices.ContainsFunc(limiters, func(l Quotas) bool { return l.Mode() != mode })
				}
			}
			wait := func(d time.Duration) { <-time.After(d) } // meanwhile the load sends requests

			busy := startLoad(limiters, asking(1, limit))
			wait(window)
			start(t, server, proxy)
			began := time.Now()
			fresh := startLoad(limiters, asking(2, limit)) // a tenant that no gateway has seen before
			if down {
				testkit.Eventually(t, restored, "every gateway notices", all(modeOutage))
			}
			wait(fault)
			for _, w := range []*load{busy, fresh} {
				testkit.Eventually(t, restored, "requests are admitted during the fault", func() bool { return len(w.since(began)) >= gateways })
			}
			end(t, server, proxy)
			back := time.Now()
			testkit.Eventually(t, restored, "every gateway uses Redis again", all(modeShared))
			recovery := time.Since(back)
			wait(2 * window) // what was admitted without Redis leaves the window
			settled := time.Now()
			wait(2 * window)
			// If this machine stopped a gateway for longer than the budget, that gateway has had an outage of its own.
			isQuiet := func() bool { return len(log.Lines()) == 2*gateways*btoi(down) }
			for _, w := range []*load{busy, fresh} {
				testkit.Eventually(t, restored, "the limit is used again", func() bool {
					return !isQuiet() || testkit.MostIn(w.since(settled), window) >= limit*9/10
				})
			}
			busy.end()
			fresh.end()

			lines, allowed := log.Lines(), 2*limit
			if forgets && !isQuiet() {
				allowed += limit // Redis lost its counts, and there was another outage: see model.limits
			}
			for who, w := range map[string]*load{"busy": busy, "fresh": fresh} {
				if w.errors != 0 {
					t.Errorf("%s: %d requests failed", who, w.errors)
				}
				during := admittedBetween(w.admitted, began, back)
				most, after := testkit.MostIn(w.admitted, window), testkit.MostIn(admittedBetween(w.admitted, settled, time.Now()), window)
				t.Logf("%s tenant: %d admitted, at most %d in a window with a limit of %d, %d during the fault; recovered in %v",
					who, len(w.admitted), most, limit, len(during), recovery.Round(time.Millisecond))
				if most > allowed {
					t.Errorf("%s: %d admitted in a window, want at most %d", who, most, allowed)
				}
				if isQuiet() && after > limit {
					t.Errorf("%s: %d admitted in a window after recovery, want %d", who, after, limit)
				}
			}
			if down && len(lines) < 2*gateways {
				t.Errorf("the log does not tell of the outage: %q", lines)
			}
		})
	}
	none := func(*testing.T, *testkit.Server, *testkit.Proxy) {}
	restore := func(t *testing.T, _ *testkit.Server, p *testkit.Proxy) { p.Restore(t) }
	do := func(args ...any) func(t *testing.T, s *testkit.Server, p *testkit.Proxy) {
		return func(t *testing.T, s *testkit.Server, _ *testkit.Proxy) {
			must.Do(t, dial(t, s.URL).Do(background, args...).Err())
		}
	}
	f("kill", true, true, func(t *testing.T, s *testkit.Server, _ *testkit.Proxy) { s.Kill(t) },
		func(t *testing.T, s *testkit.Server, _ *testkit.Proxy) { s.Start(t) })
	f("pause", true, false, func(t *testing.T, s *testkit.Server, _ *testkit.Proxy) { s.Pause(t) },
		func(t *testing.T, s *testkit.Server, _ *testkit.Proxy) { s.Resume(t) })
	f("black hole", true, false, func(t *testing.T, _ *testkit.Server, p *testkit.Proxy) { p.BlackHole() }, restore)
	f("connections refused", true, false, func(t *testing.T, _ *testkit.Server, p *testkit.Proxy) { p.Kill() }, restore)
	f("connections reset", false, false, func(t *testing.T, _ *testkit.Server, p *testkit.Proxy) { p.Reset() }, none)
	f("functions flushed", false, false, do("FUNCTION", "FLUSH"), none)
	f("out of memory", true, false, do("CONFIG", "SET", "maxmemory", "1"), do("CONFIG", "SET", "maxmemory", "0"))
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
	l := openQuotas(t, Config{RedisURL: server.URL, Budget: redisBudget, Log: slog.New(slog.NewTextHandler(log, nil))})
	for range 3 {
		if got := l.Health(background); len(got) != 1 || !strings.Contains(got[0].Error(), "allkeys-lru") {
			t.Errorf("an evicting Redis: %q", got)
		}
	}
	if lines := log.Lines(); len(lines) != 1 || !strings.Contains(lines[0], "level=ERROR") {
		t.Errorf("log: %q", lines)
	}
	must.Do(t, dial(t, server.URL).ConfigSet(background, "maxmemory-policy", "noeviction").Err())
	if got := l.Health(background); len(got) != 0 {
		t.Errorf("a healthy Redis: %q", got)
	}
	server.Kill(t)
	mustTake(t, l, asking(1, 60))
	if got := l.Health(background); len(got) != 1 || !strings.Contains(got[0].Error(), "does not answer") {
		t.Errorf("no Redis: %q", got)
	}
}

// If Redis is not there when the gateway starts, this is an outage. An invalid URL is an error, whose text does not contain the
// secrets of the URL.
func TestOpen(t *testing.T) {
	l := openQuotas(t, Config{RedisURL: fmt.Sprintf("redis://127.0.0.1:%d", testkit.FreePort(t))})
	if l.Mode() != modeOutage {
		t.Errorf("mode %s without a Redis", l.Mode())
	}
	if n := takeAll(t, l, asking(1, 60), 100); n != 1 {
		t.Errorf("%d admitted by a process that has never heard of Redis, want the least share, 1", n)
	}
	for _, url := range []string{
		"redis//:secret@h", "http://u:secret@h", "redis://h:1,redis://:secret@h:port", ",",
		"redis+sentinel://:secret@h:1", "redis+sentinel://:secret@h/main", "redis+sentinel://:secret@h:1/main/x", "redis+sentinel://%zz:secret@h:1/main",
	} {
		if _, err := Open(background, Config{RedisURL: url}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("Open(%q): %v", url, err)
		}
	}
}

// A panic in a trip is a failed trip: all requests that wait for it are decided without Redis, and later trips work.
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

// A wrong password in REDIS_URL is named, and the gateway is not ready before Redis has accepted it once. If the password changes
// later, the gateway stays ready.
func TestRefusedPasswordIsNamed(t *testing.T) {
	server := testkit.StartRedis(t)
	admin := dial(t, server.URL)
	do := func(args ...any) {
		t.Helper()
		must.Do(t, admin.Do(background, args...).Err())
	}
	do("ACL", "SETUSER", "petgate", "on", ">right", "~*", "+@all")
	var log testkit.Output
	const wrong = "wrong-5nCq"
	l := openQuotas(t, Config{RedisURL: "redis://petgate:" + wrong + "@" + server.Addr, Budget: redisBudget, Log: slog.New(slog.NewTextHandler(&log, nil))})
	named := func(l Quotas, isReady bool) {
		t.Helper()
		testkit.Eventually(t, 10*time.Second, "the cause is named", func() bool {
			problems := fmt.Sprint(l.Health(background))
			return strings.Contains(problems, "refuses the user or the password: correct REDIS_URL") && (l.Ready() == nil) == isReady
		})
	}
	named(l, false)
	testkit.Eventually(t, 10*time.Second, "the log names the cause", func() bool {
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
		testkit.Eventually(t, 10*time.Second, "Redis decides", func() bool { return l.Ready() == nil && len(l.Health(background)) == 0 })
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
	testkit.Eventually(t, 10*time.Second, "a missing right is named", func() bool {
		return strings.Contains(fmt.Sprint(l.Health(background)), "ACL SETUSER")
	})
	do("ACL", "SETUSER", "petgate", "+@all")
	healthy()
}
