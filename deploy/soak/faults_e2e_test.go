//go:build e2e

package soak_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// fault is one thing that breaks, and how it is mended. The test's goroutine does both.
type fault struct {
	name         string
	on           any  // what breaks: no two faults are on the same thing at a time
	fails        bool // requests may fail with 5xx because of it
	kills, stops bool // a gateway, whose process ends
	cuts         bool // a gateway from Postgres, beside what it is on
	begin, end   func()

	span // when it happened
}

// breakThings plays rounds of two faults each, which overlap. It returns how many rounds there
// were.
func (r *run) breakThings(lasting time.Duration) (rounds int) {
	type step struct {
		at time.Duration
		*fault
		over bool
	}
	random := r.random(0)
	for ; r.now() < lasting; rounds++ {
		one, other := r.draw(random), r.draw(random)
		for other.on == one.on {
			other = r.draw(random)
		}
		long := length(random)
		later := time.Duration(random.Int64N(int64(long)))
		steps := []step{
			{0, &one, false}, {later, &other, false}, {long, &one, true}, {later + length(random), &other, true},
		}
		slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
		began := r.now()
		for _, s := range steps {
			<-time.After(began + s.at - r.now())
			r.t.Logf("%v: %s: over %t", r.now().Round(time.Millisecond), s.name, s.over)
			if s.over {
				s.fault.end()
				r.locked(func() { s.to = r.now() })
			} else {
				r.locked(func() {
					s.span = span{r.now(), never}
					r.happened = append(r.happened, s.fault)
				})
				s.begin()
			}
		}
		<-time.After(time.Duration(random.Int64N(int64(1500 * time.Millisecond))))
	}
	return rounds
}

// length draws how long a fault lasts: mostly less than what a gateway waits for anything,
// sometimes seconds.
func length(random *rand.Rand) time.Duration {
	if random.IntN(3) > 0 {
		return time.Duration(50+random.IntN(400)) * time.Millisecond
	}
	return time.Duration(500+random.IntN(5000)) * time.Millisecond
}

// echo is how long after a fault requests may still fail because of it: an upstream is left out for
// 3 s, and the pet service waits for a silent database for up to 6 s.
const echo = 10 * time.Second

// faultsIn counts the faults of that time of which is is true.
func (r *run) faultsIn(from, to time.Duration, is func(f *fault) bool) (n int) {
	r.locked(func() {
		for _, f := range r.happened {
			if f.touches(from, to) && is(f) {
				n++
			}
		}
	})
	return n
}

// forgets is the fault that Redis loses its data.
const forgets = "Redis forgets"

// draw draws a fault: a kind, and then one of that kind. Odd seeds have only kinds because of which
// no request may fail.
func (r *run) draw(random *rand.Rand) fault {
	g, p := r.gateways[random.IntN(len(r.gateways))], r.pets[random.IntN(len(r.pets))]
	kinds := [][]fault{
		{
			{name: g.ID + " is paused", on: g, begin: func() { g.Pause(r.t) }, end: g.Resume},
			{name: g.ID + " is killed", on: g, kills: true, begin: g.Kill, end: func() { g.Launch(r.t) }},
			{
				name: g.ID + " is killed and starts without Postgres", on: g, kills: true, cuts: true,
				begin: func() { r.startCut(g) }, end: func() { r.endCut(g) },
			},
			{name: g.ID + " is stopped", on: g, stops: true, begin: func() { r.terminate(g) }, end: func() { r.startAgain(g) }},
		},
		append(
			outages("Redis", r.t, r.redis),
			fault{
				name:  "Redis is full",
				on:    r.redis,
				begin: r.command("CONFIG", "SET", "maxmemory", 1),
				end:   r.command("CONFIG", "SET", "maxmemory", 0),
			},
			fault{name: forgets, on: r.redis, begin: r.command("FLUSHALL"), end: func() {}},
		),
		r.breaks("Redis from "+g.ID, g.redis),
		r.breaks("Postgres from "+g.ID, g.database),
		failing(outages("Postgres", r.t, r.postgres)),
		failing(r.breaks("Postgres from a pet service", p.database)),
		failing([]fault{
			{name: "a pet service is paused", on: p, begin: func() { p.Pause(r.t) }, end: p.Resume},
			{name: "a pet service is killed", on: p, begin: p.Kill, end: func() { p.Launch(r.t) }},
		}),
	}
	if r.refuse {
		kinds[1] = kinds[1][:3] // a window of which Redis has lost the counts cannot be exact
	}
	if r.seed%2 == 1 {
		kinds = kinds[:3]
	}
	kind := kinds[random.IntN(len(kinds))]
	return kind[random.IntN(len(kind))]
}

func outages(name string, t testing.TB, s *testkit.Server) []fault {
	return []fault{
		{name: name + " is paused", on: s, begin: func() { s.Pause(t) }, end: func() { s.Resume(t) }},
		{name: name + " is killed", on: s, begin: func() { s.Kill(t) }, end: func() { s.Start(t) }},
	}
}

// breaks are the ways in which a link breaks.
func (r *run) breaks(link string, p *testkit.Proxy) []fault {
	mend := func() {
		p.Restore(r.t)
		p.Latency(r.latency())
	}
	return []fault{
		{name: link + ": nothing arrives", on: p, begin: p.BlackHole, end: mend},
		{name: link + ": refused", on: p, begin: p.Kill, end: mend},
		{name: link + ": connections break", on: p, begin: p.Reset, end: mend},
		{name: link + ": answers are lost", on: p, begin: p.LoseAnswers, end: mend},
	}
}

func failing(all []fault) []fault {
	for i := range all {
		all[i].fails = true
	}
	return all
}

// noteStalls notes as a fault when Postgres commits late. If nothing is broken, the machine is too
// busy: a pet service refuses requests when it has had no answer for a second.
func (r *run) noteStalls() {
	if _, err := r.db.Exec(`CREATE TABLE soak_beats (at BIGINT)`); err != nil {
		r.t.Error(err)
	}
	random := r.random(3)
	for r.pause(random, 100*time.Millisecond) {
		from := r.now()
		_, _ = r.db.Exec(`INSERT INTO soak_beats (at) VALUES (0)`) // an error is as late as an answer
		if to := r.now(); to-from > 500*time.Millisecond {
			r.locked(func() {
				r.happened = append(r.happened, &fault{name: "Postgres is late", fails: true, span: span{from, to}})
			})
		}
	}
}

// servesWithin is how long after its start a gateway may serve nothing yet.
const servesWithin = 5 * time.Second

// startCut kills a gateway. Its next process reaches Postgres only when the fault is over.
func (r *run) startCut(g *gateway) {
	g.database.Kill()
	g.Kill()
	g.Launch(r.t)
}

// endCut connects a gateway with Postgres again, when it has had the time to accept a key that its
// snapshot should not have.
func (r *run) endCut(g *gateway) {
	probes := func() (n int) {
		r.locked(func() { n = r.probes })
		return n
	}
	testkit.Await(servesWithin, g.Ready)
	from := probes()
	testkit.Await(servesWithin, func() bool { return probes() > from+100 })
	g.database.Restore(r.t)
}

// cutsOff reports whether the fault cuts a gateway off from Postgres.
func (f *fault) cutsOff(g *gateway, postgres *testkit.Server) bool {
	return f.on == postgres || f.on == g.database || f.on == g && f.cuts
}

// terminate asks a gateway to end, as soon as it can hear that.
func (r *run) terminate(g *gateway) {
	testkit.Eventually(r.t, fleet.ReplyWithin, g.ID+" lives", func() bool {
		_, err := g.TryAdminPage("/healthz")
		return err == nil
	})
	g.Signal(syscall.SIGTERM)
}

func (r *run) startAgain(g *gateway) {
	if code := g.ExitCode(r.t); code != 0 {
		r.fail("exit", "%s: exit code %d after SIGTERM", g.ID, code)
	}
	r.locked(func() { g.blind = true })
	g.Launch(r.t)
}

// command returns a function that sends a command to Redis.
func (r *run) command(args ...any) func() {
	return func() {
		c := redis.NewClient(&redis.Options{Addr: r.redis.Addr})
		defer c.Close()
		if err := c.Do(context.Background(), args...).Err(); err != nil {
			r.t.Errorf("Redis: %v: %v", args, err)
		}
	}
}
