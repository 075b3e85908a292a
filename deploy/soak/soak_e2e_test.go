//go:build e2e

// Package soak_test plays random faults on the built programs: three gateways, two pet services,
// Redis and Postgres, under clients at their limits and an operator who makes changes. It judges
// only what clients, keyadmin and the tables say.
//
// A seed decides which faults come in which order and for how long. A slow machine is one more
// fault, so no run is discarded: the judgements are counts. `make soak` plays many seeds for
// minutes, `make e2e` one seed for some seconds.
//
// This file has the run and its judgements at the end, faults_e2e_test.go the faults,
// clients_e2e_test.go the load and operator_e2e_test.go the changes. All instants are counted from
// the beginning of the run.
package soak_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// run is one seed with one setting of --limits-on-outage.
type run struct {
	*fleet.Fleet
	t      *testing.T
	seed   uint64
	refuse bool // --limits-on-outage refuse: every window is exact. Otherwise, a window may have twice the limit

	redis, postgres *testkit.Server
	gateways        []*gateway
	pets            []*program
	db              *database.DB

	began time.Time
	stop  chan struct{} // closed when the load ends
	work  sync.WaitGroup

	greedy []*tenant // clients send as much as they can, at every gateway
	spaced *tenant   // one client, which obeys Retry-After
	poster *tenant
	keyed  *tenant // its keys come and go

	mu        sync.Mutex
	happened  []*fault
	broken    map[string]int // failed judgements, by kind
	errors5xx map[string]int // by status and code
	wanted    []*pet
	keys      []*keyState
	probes    int
	commands  map[string]int // by verb and exit code
	unstored  int            // admitted requests whose usage a killed gateway may have kept
}

// program is a gateway or a pet service behind its link to Postgres.
type program struct {
	*fleet.Program
	database *testkit.Proxy
	atRest   [3]float64 // its goroutines, descriptors and bytes when it had no load
}

type gateway struct {
	program
	redis *testkit.Proxy
	blind bool // guarded by run.mu: it was stopped, and has served nothing since, so it may need the database
}

// span is a time in which something happened.
type span struct{ from, to time.Duration }

func (s span) touches(from, to time.Duration) bool { return s.from < to && s.to > from }

// never is later than any run.
const never = 24 * time.Hour

// TestRandomFaults plays the seeds of SEEDS, numbers with spaces between them, with faults for
// DURATION each: with shares and with refusals in an outage of Redis. `make soak SEEDS=…` repeats
// a seed that has failed.
func TestRandomFaults(t *testing.T) {
	t.Parallel()
	lasting, err := time.ParseDuration(cmp.Or(os.Getenv("DURATION"), "25s"))
	if err != nil {
		t.Fatalf("DURATION: %v", err)
	}
	for _, text := range strings.Fields(cmp.Or(os.Getenv("SEEDS"), "10")) {
		var seed uint64
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatalf("SEEDS: %q: %v", text, err)
		}
		for _, mode := range []string{"share", "refuse"} {
			t.Run(mode+"/"+text, func(t *testing.T) {
				t.Parallel()
				play(t, seed, mode, lasting)
			})
		}
	}
}

func play(t *testing.T, seed uint64, mode string, lasting time.Duration) {
	r := open(t, seed, mode)
	r.startClients()
	r.startOperator()
	r.work.Go(r.noteStalls)
	rounds := r.breakThings(lasting)
	attempts, took := r.recover()
	close(r.stop)
	r.work.Wait()
	exact := r.closingWindows()
	worst := r.judgeWindows()
	charged := r.judgeUsage()
	r.judgePets()
	r.judgeKeys()
	r.judgeRest()
	t.Logf(
		"figure: seed %d, %s: %d rounds of two faults, recovered in %d attempts (%v); at most %.2f limits in a window, %.2f "+
			"after a loss of counts; %d of %d last windows exact; %d requests charged, "+
			"the usage of %d of them may be lost; %d pets; %d keys, tried %d times; commands with "+
			"exit codes %v; 5xx %v; failed judgements %v",
		seed,
		mode,
		rounds,
		attempts,
		took.Round(10*time.Millisecond),
		worst[0],
		worst[1],
		exact,
		len(r.greedy),
		charged,
		r.unstored,
		len(r.wanted),
		len(r.keys),
		r.probes,
		r.commands,
		r.errors5xx,
		r.broken,
	)
}

func open(t *testing.T, seed uint64, mode string) *run {
	r := &run{
		t: t, seed: seed, refuse: mode == "refuse", stop: make(chan struct{}), began: time.Now(),
		broken: map[string]int{}, errors5xx: map[string]int{}, commands: map[string]int{},
		// A killed Redis has all that it answered: it writes before it answers, and never puts a
		// write off to wait for the disk.
		redis: testkit.StartRedis(t, "--appendonly", "yes", "--appendfsync", "no"), postgres: testkit.StartPostgres(t),
	}
	r.Fleet = fleet.Start(t, fleet.Spec{Database: r.postgres.URL, GatewayEnv: []string{
		"GATEWAY_LIMITS_ON_OUTAGE=" + mode, "GATEWAY_DIRECTORY_MAX_AGE=" + r.maxAge().String(), "GATEWAY_BAN_AFTER=0",
		"GATEWAY_ACCESS_LOG=false",
	}})
	var upstreams []string
	for range 2 {
		link := testkit.NewProxy(t, r.postgres.Addr)
		p := &program{database: link, Program: r.AddPets(
			"DATABASE_URL="+through(t, r.postgres, link), "PETSVC_ACCESS_LOG=false",
		)}
		r.pets, upstreams = append(r.pets, p), append(upstreams, p.URL)
	}
	for range 3 {
		link, toRedis := testkit.NewProxy(t, r.postgres.Addr), testkit.NewProxy(t, r.redis.Addr)
		toRedis.Latency(r.latency())
		p := r.AddGateway("DATABASE_URL="+through(t, r.postgres, link), "REDIS_URL="+through(t, r.redis, toRedis),
			"GATEWAY_UPSTREAMS="+strings.Join(upstreams, ","))
		r.gateways = append(r.gateways, &gateway{program: program{Program: p, database: link}, redis: toRedis})
	}
	db := must.Get[*database.DB](t)(database.Open(r.postgres.URL))
	t.Cleanup(func() { _ = db.Close() })
	r.db = db
	for _, p := range r.programs() {
		p.atRest = p.holds()
	}
	for i, limit := range []int{20, 30, 60, 100, 300, 600} {
		r.greedy = append(r.greedy, r.newTenant(fmt.Sprint("greedy-", i), limit))
	}
	r.spaced = r.newTenant("spaced", 40)
	r.poster, r.keyed = r.newTenant("poster", plenty), r.newTenant("keyed", plenty)
	r.began = time.Now()
	return r
}

// through returns the URL of a server behind a proxy.
func through(t *testing.T, s *testkit.Server, p *testkit.Proxy) string {
	u := must.Get[*url.URL](t)(url.Parse(s.URL))
	u.Host = p.Addr
	return u.String()
}

func (r *run) programs() (all []*program) {
	for _, g := range r.gateways {
		all = append(all, &g.program)
	}
	return append(all, r.pets...)
}

// latency is how far Redis is away, one way. With half a millisecond, a gateway has several batches
// under way.
func (r *run) latency() time.Duration { return time.Duration(r.seed/2%2) * time.Millisecond / 2 }

// maxAge is after how long without Postgres a gateway refuses everything. Then keyadmin does not
// wait for it: a change is confirmed although the gateway does not know it. 0 is never.
func (r *run) maxAge() time.Duration {
	if r.seed%3 == 0 {
		return 3 * time.Second
	}
	return 0
}

// random returns the source of chance of one client.
func (r *run) random(client int) *rand.Rand { return rand.New(rand.NewPCG(r.seed, uint64(client))) }

func (r *run) now() time.Duration { return time.Since(r.began) }

func (r *run) locked(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// fail reports a failed judgement, the first five of a kind.
func (r *run) fail(kind, format string, args ...any) {
	r.locked(func() {
		if r.broken[kind]++; r.broken[kind] <= 5 {
			r.t.Errorf("%v: %s: %s", r.now().Round(time.Millisecond), kind, fmt.Sprintf(format, args...))
		}
	})
}

// recoveryAttempts is within how many attempts the fleet has recovered, each of them with a process
// of keyadmin: five seconds on a machine that has nothing else to do, and longer on a slow one,
// which is as slow for keyadmin.
const recoveryAttempts = 50

// recover waits, when all faults are over, until every gateway serves, Redis decides, and a change
// is confirmed.
func (r *run) recover() (attempts int, took time.Duration) {
	over, problem := r.now(), "no attempt"
	for ; problem != ""; attempts++ {
		pause := time.After(100 * time.Millisecond)
		problem = r.problem()
		if problem != "" && attempts == recoveryAttempts {
			r.fail("recovery", "after %d attempts: %s", attempts, problem)
			break
		}
		<-pause
	}
	took = r.now() - over
	if done := r.Keyadmin("key", "create", r.keyed.name); done.Code != 0 {
		r.fail("recovery", "a change is not confirmed: exit code %d: %s", done.Code, done.Stderr)
	}
	return attempts, took
}

// problem says what does not work yet.
func (r *run) problem() string {
	if done := r.Keyadmin("gateway", "list"); strings.Count(done.Stdout, " live ") != len(r.gateways) {
		return "gateway list: " + done.Stdout + done.Stderr
	}
	for _, p := range r.programs() {
		if !p.Ready() {
			return cmp.Or(p.ID, "a pet service") + " is not ready"
		}
	}
	for _, g := range r.gateways {
		if reply := g.Ask(r.keyed.Token); reply.Status != 200 {
			return fmt.Sprintf("%s answers %v", g.ID, reply)
		}
		if g.Metrics()[`petgate_gateway_limits_mode{mode="shared"}`] != 1 {
			return g.ID + " decides without Redis"
		}
	}
	return ""
}

// closingWindows resets every greedy tenant when the load has ended, and asks for more than its
// limit within a few seconds. It returns how many tenants got exactly their limit. judgeWindows
// finds those that got more.
func (r *run) closingWindows() (exact int) {
	for _, one := range r.greedy {
		if done := r.reset(one); done.Code != 0 {
			r.fail("recovery", "a reset is not confirmed: exit code %d: %s", done.Code, done.Stderr)
		}
		one.Key = r.NewKey(one.name) // no gateway ends any more, so its usage is exact
		from, alone := len(one.shots), r.decidedAlone()
		var clients sync.WaitGroup
		for _, g := range r.gateways {
			clients.Go(func() {
				c := g.Client()
				defer c.Close()
				for range one.limit/len(r.gateways) + 10 {
					r.get(c, g, one)
				}
			})
		}
		clients.Wait()
		// Doubtful are requests that Redis may have charged although they were refused, that it may
		// have charged twice, because a share admitted them when the answer was lost, and that a
		// share refused.
		admitted, doubtful := 0, r.decidedAlone()-alone
		for _, s := range one.shots[from:] {
			if s.admitted {
				admitted++
			} else if s.code != "minute_quota_exceeded" {
				doubtful++
			}
		}
		if admitted == one.limit {
			exact++
		}
		if admitted < one.limit-doubtful {
			r.fail("exactness", "after all faults %s got %d of limit %d; %d requests are doubtful", one.name, admitted,
				one.limit, doubtful)
		}
	}
	return exact
}

// decidedAlone is how many requests the gateways that run have admitted without an answer of Redis.
func (r *run) decidedAlone() (n int) {
	for _, g := range r.gateways {
		n += int(g.Metrics()[`petgate_gateway_limits_decisions_total{outcome="local_admitted"}`])
	}
	return n
}

// judgeWindows counts what clients saw admitted within 60 s. It returns the most, in limits:
// without and with a loss of counts.
//
// Twice the limit in an outage is a promise with conditions (decision 5), which these faults do not
// keep: gateways restart between two outages of a window, and some are cut off from Redis for
// longer than others. No seed has shown more so far.
func (r *run) judgeWindows() (worst [2]float64) {
	for _, one := range append(slices.Clone(r.greedy), r.spaced) {
		admitted := slices.DeleteFunc(slices.Clone(one.shots), func(s shot) bool { return !s.admitted })
		slices.SortFunc(admitted, func(a, b shot) int { return cmp.Compare(a.from, b.from) })
		for i, first := range admitted {
			end, n, resets, bound := first.from+time.Minute, 0, 0, 1
			for _, s := range admitted[i:] {
				if s.to <= end {
					n++
				}
			}
			for _, reset := range one.resets {
				if reset.touches(first.from, end) {
					resets++
				}
			}
			losses := r.faultsIn(first.from, end, func(f *fault) bool { return f.name == forgets })
			if !r.refuse {
				bound = 2 + losses // what Redis has forgotten may be admitted again
			}
			limit := one.limit * (1 + resets)
			worst[min(losses, 1)] = max(worst[min(losses, 1)], float64(n)/float64(limit))
			if n > bound*limit {
				r.fail("quota", "%s: %d admitted in the minute from %v, limit %d, %d resets", one.name, n,
					first.from.Round(time.Millisecond), one.limit, resets)
				break
			}
		}
	}
	return worst
}

// storedWithin is how long before its end a gateway may have counted usage that is not in the
// database: twice the time between two writes, for a slow machine.
const storedWithin = 6 * time.Second

// isUnstored reports whether the usage of a request may be lost: its gateway was killed soon after
// it, or ended while it could not reach the database, or soon after that.
func (r *run) isUnstored(s shot) bool {
	return slices.ContainsFunc(r.happened, func(end *fault) bool {
		if end.on != s.gateway || !end.kills && !end.stops || s.from > end.to {
			return false
		}
		since := end.to
		if end.kills {
			since = end.from - storedWithin
		}
		for _, f := range slices.Backward(r.happened) {
			if f.cutsOff(s.gateway, r.postgres) && f.touches(since-storedWithin, end.to) {
				since = min(since, f.from-storedWithin)
			}
		}
		return s.to > since
	})
}

// judgeUsage compares the stored usage of each key with what clients saw. It returns how many
// requests they saw charged.
func (r *run) judgeUsage() (charged int) {
	type sums struct{ seen, unknown, unstored int }
	keys := map[string]sums{}
	for _, one := range append(slices.Clone(r.greedy), r.spaced, r.poster) {
		for _, s := range one.shots {
			sum := keys[s.key]
			switch {
			case s.unknown:
				sum.unknown++
			case s.admitted && r.isUnstored(s):
				sum.unstored++
			case s.admitted:
				sum.seen++
			}
			keys[s.key] = sum
		}
	}
	for key, sum := range keys {
		charged, r.unstored = charged+sum.seen+sum.unstored, r.unstored+sum.unstored
		stored := 0
		if !testkit.Await(fleet.ReplyWithin, func() bool {
			err := r.db.Get(&stored, `SELECT COALESCE(SUM(requests), 0) FROM usage_hours WHERE key_id = $1 AND charged`,
				key)
			return err == nil && stored >= sum.seen
		}) || stored > sum.seen+sum.unstored+sum.unknown {
			r.fail("usage",
				"%s: %d stored; clients saw %d admitted, %d more that may be lost, and %d without an answer", key,
				stored, sum.seen, sum.unstored, sum.unknown)
		}
	}
	return charged
}

// What a program may hold more at rest than before the load: connections that it keeps, and what
// its caches and pools have grown by.
var growthMax = [3]float64{20, 20, 8 << 20}

// judgeRest finds goroutines, descriptors and memory that the faults have left behind.
func (r *run) judgeRest() {
	for _, p := range r.programs() {
		var now [3]float64
		if !testkit.Await(fleet.ReplyWithin, func() bool {
			now = p.holds()
			return now[0] <= p.atRest[0]+growthMax[0] && now[1] <= p.atRest[1]+growthMax[1] &&
				now[2] <= p.atRest[2]+growthMax[2]
		}) {
			r.fail("growth", "%s: goroutines, descriptors and bytes at rest %v, before the load %v",
				cmp.Or(p.ID, "a pet service"), now, p.atRest)
		}
	}
}

// holds returns the goroutines, descriptors and bytes that a program cannot do without.
func (p *program) holds() [3]float64 {
	_, _ = p.TryAdminPage("/debug/pprof/heap?gc=1") // collects garbage
	m := p.Metrics()
	return [3]float64{m["go_goroutines"], m["process_open_fds"], m["go_memstats_heap_alloc_bytes"]}
}
