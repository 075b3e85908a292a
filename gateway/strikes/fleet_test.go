package strikes_test

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"petgate/gateway/strikes"
	"petgate/shared/core/ban"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

// place says which connections and addresses the workers of a fleet have.
type place int

const (
	ownAddresses    place = iota // each worker has its own address, and opens a new connection for each request
	keptConnections              // one address; each worker keeps its connection
	newConnections               // one address, and a new connection for each request
	behindProxy                  // one address, and the connections are those of a trusted proxy
	sharedPool                   // one address; the workers share connections, as the threads of a process do
)

// fleet is a number of workers that share a key.
type fleet struct {
	place    place
	workers  int
	ignoring int // how many of them call on after a 429; the others wait for Retry-After
	gateways int // each request goes to any of them, but a kept connection stays at its gateway
	limit    int64
	start    time.Duration // the workers start within this time
	answer   time.Duration // how long an admitted request takes
	pause    time.Duration // from a response to the next request, at most; of those who wait
	late     time.Duration // how much later than Retry-After a worker comes, at most
	every    time.Duration // how soon after a 429 those who do not wait call again
	forgets  time.Duration // functions call once, and are started anew this long after; 0: they are no functions
}

// worker is a client with one request at a time.
type worker struct {
	next    instant.Millis
	ignores bool
	served  func() // the response to an admitted request; nil: none is under way
	address netip.Addr
	gateway int // of conn
	conn    *strikes.Connection
}

type schedule []*worker

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].next < s[j].next }
func (s schedule) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *schedule) Push(w any)        { *s = append(*s, w.(*worker)) }
func (s *schedule) Pop() any          { panic("not used") }

const (
	simulated = 4 * time.Minute
	noBan     = time.Duration(-1)
)

// run plays the fleet in virtual time, until its key is banned or the time is over. It returns how
// long after the first 429 the key was banned: the first one of a worker that does not wait, if
// there is such a worker.
func (f fleet) run(random *rand.Rand) time.Duration {
	within := func(d time.Duration) instant.Millis { return instant.Millis(random.Int64N(d.Milliseconds() + 1)) }
	noon, key := instant.Millis(1_800_000_000_000), id.Key{1}
	var gateways []*strikes.Strikes
	var pool [][]*strikes.Connection
	for g := range f.gateways {
		gateways, pool = append(gateways, strikes.New(ban.Product)), append(pool, nil)
		for range min(f.workers, 100) {
			pool[g] = append(pool[g], gateways[g].NewConnection())
		}
	}
	var workers schedule
	for i := range f.workers {
		w := &worker{next: noon + within(f.start), ignores: i < f.ignoring, gateway: random.IntN(f.gateways)}
		w.address, w.conn = netip.AddrFrom4([4]byte{192, 0, 2, 1}), gateways[w.gateway].NewConnection()
		if f.place == ownAddresses {
			w.address = netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		}
		workers = append(workers, w)
	}
	heap.Init(&workers)
	var used quota.Record
	refused := instant.Millis(0)
	for workers[0].next < noon.Add(simulated) {
		w := workers[0]
		now := w.next
		if w.served != nil {
			w.served()
			w.served, w.next = nil, now+1+within(f.pause)
			heap.Fix(&workers, 0)
			continue
		}
		gateway, on := random.IntN(f.gateways), (*strikes.Connection)(nil)
		switch f.place {
		case keptConnections:
			gateway, on = w.gateway, w.conn
		case ownAddresses, newConnections:
			on = gateways[gateway].NewConnection()
		case sharedPool:
			on = pool[gateway][random.IntN(len(pool[gateway]))]
		case behindProxy:
		}
		verdict := quota.Product.Take(&used, now,
			quota.Demand{Limits: plan.Limits{Minute: f.limit, Day: 1 << 30}, Want: 1})
		if verdict.Granted > 0 {
			answered := now.Add(f.answer)
			w.served, w.next = func() { gateways[gateway].Served(key, w.address, on, answered) }, answered
			f.restart(w, now)
			heap.Fix(&workers, 0)
			continue
		}
		if refused == 0 && (w.ignores || f.ignoring == 0) {
			refused = now
		}
		out := gateways[gateway].Refused(strikes.Refusal{
			Key: key, Address: w.address, On: on, Limit: f.limit, Now: now, Promised: verdict.RetryAt(),
		})
		if out.BannedUntil != 0 {
			return now.Sub(min(now, cmp.Or(refused, now)))
		}
		if f.place == ownAddresses || f.place == newConnections {
			on.Closed()
		}
		w.next = now.Add(f.every)
		if !w.ignores {
			retryAfter := (verdict.RetryAt() - now + 999) / 1000 * 1000
			w.next = now + retryAfter + within(f.late)
		}
		f.restart(w, now)
		heap.Fix(&workers, 0)
	}
	return noBan
}

// restart starts a function again, with a new address if functions have addresses of their own.
func (f fleet) restart(w *worker, now instant.Millis) {
	if f.forgets == 0 {
		return
	}
	w.served, w.next = nil, now.Add(f.forgets)
	if f.place == ownAddresses {
		a := w.address.As4()
		a[1]++
		w.address = netip.AddrFrom4(a)
	}
}

// The documentation says who is banned. It has this table.
func TestTable(t *testing.T) {
	type column struct{ workers, ignoring int }
	columns := []column{{60, 0}, {1000, 0}, {60, 1}, {1000, 1000}}
	table := "| workers | 60, all wait | 1,000, all wait | 60, one does not wait | 1,000, none waits |\n" +
		"|---|---|---|---|---|\n"
	add := func(name string, f fleet, columns []column) {
		table += "| " + name
		f.limit, f.start, f.answer = 60, 50*time.Second, 50*time.Millisecond
		f.pause, f.late, f.every = 100*time.Millisecond, time.Second, 20*time.Millisecond
		for _, c := range columns {
			f.workers, f.ignoring, f.gateways = c.workers, c.ignoring, 1
			one := f.run(rand.New(rand.NewPCG(1, 2)))
			f.gateways = 10
			if ten := f.run(rand.New(rand.NewPCG(1, 2))); one == noBan && ten == noBan {
				table += " | never"
			} else {
				table += fmt.Sprintf(" | %.0f; %.0f", one.Seconds(), ten.Seconds())
			}
		}
		table += strings.Repeat(" |", 1+4-len(columns)) + "\n"
	}
	add("own addresses", fleet{place: ownAddresses}, columns)
	add("one address, kept connections", fleet{place: keptConnections}, columns)
	add("one address, new connections", fleet{place: newConnections}, columns)
	add("threads that share connections", fleet{place: sharedPool}, columns)
	add("functions, own addresses", fleet{place: ownAddresses, forgets: 40 * time.Second}, columns[:2])
	add("functions, one address", fleet{place: newConnections, forgets: 40 * time.Second}, columns[:2])
	t.Log("\n" + table)
	if page, err := os.ReadFile("../../docs/request-path.md"); err != nil || !strings.Contains(string(page), table) {
		t.Errorf("docs/request-path.md has another table: %v", err)
	}
}

// A fleet in which every worker waits is never banned if the gateway can tell its workers apart,
// whatever their number, start and pace. Workers that it cannot tell apart are not banned either,
// if there are no more of them than strikes that ban, or if they start together at one gateway and
// share no connections.
func TestWhoWaitsIsNotBanned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		switch together := rapid.Bool().Draw(t, "together"); {
		case f.place == sharedPool:
			f.workers = min(f.workers, ban.Product.After)
		case together:
			f.start, f.gateways = min(f.start, ban.Product.Grace), 1
		case f.place == newConnections || f.place == behindProxy:
			f.workers = min(f.workers, max(ban.Product.After, int(f.limit)))
		}
		must.Equal(t, f.run(drawRandom(t)), noBan, "after which time it is banned: %+v", f)
	})
}

// A client that does not wait is banned within 60 s, whatever connections it uses and however many
// others share its key and wait.
func TestWhoIgnoresIsBanned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		f.ignoring = rapid.IntRange(1, f.workers).Draw(t, "ignoring")
		f.answer, f.pause = min(f.answer, 200*time.Millisecond), min(f.pause, 100*time.Millisecond)
		f.every = time.Duration(rapid.Int64Range(1, 25).Draw(t, "calls every ms")) * time.Millisecond
		if after := f.run(drawRandom(t)); after == noBan || after > time.Minute {
			t.Fatalf("%+v: banned after %v", f, after)
		}
	})
}

func drawFleet(t *rapid.T) fleet {
	within := func(most time.Duration, what string) time.Duration {
		return time.Duration(rapid.Int64Range(0, most.Milliseconds()).Draw(t, what)) * time.Millisecond
	}
	places := []place{ownAddresses, keptConnections, newConnections, behindProxy, sharedPool}
	return fleet{
		place:    rapid.SampledFrom(places).Draw(t, "place"),
		workers:  rapid.SampledFrom([]int{1, 2, 7, 30, 60, 200, 1000}).Draw(t, "workers"),
		gateways: rapid.IntRange(1, 10).Draw(t, "gateways"),
		limit:    rapid.Int64Range(1, 60).Draw(t, "limit"),
		start:    within(time.Minute, "start"),
		answer:   within(15*time.Second, "answer"),
		pause:    within(5*time.Second, "pause"),
		late:     within(2*time.Second, "late"),
	}
}

func drawRandom(t *rapid.T) *rand.Rand {
	return rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
}

// A ban that another gateway imposed makes the next one here longer. One that was imposed here is
// the same ban when it comes back.
func TestBansOfOthersCount(t *testing.T) {
	rule := ban.Product
	rule.After = 1
	f := func(left time.Duration, wants ...time.Duration) {
		t.Helper()
		s, k, now := strikes.New(rule), id.Key{1}, instant.Of(time.Now())
		until := now.Add(left)
		for _, at := range []instant.Millis{now, now, until - 1} { // seen again, also at its end, it is the same ban
			s.Banned(k, at, until)
		}
		for _, want := range wants {
			now = until
			s.Refused(refusal(k, now))
			now = now.Add(rule.Grace)
			until = s.Refused(refusal(k, now)).BannedUntil
			must.Equal(t, until, now.Add(want), "the end of a ban, with %v left of the other one", left)
			s.Banned(k, until-1, until)
		}
	}
	f(time.Minute, 2*time.Minute, 4*time.Minute)
	f(30*time.Second, 2*time.Minute)
	f(90*time.Second, 4*time.Minute)
	f(time.Hour, time.Hour)
}

// What a connection was told about one key holds for that key only. It is not forgotten when
// another key is used.
func TestConnectionOfTwoKeys(t *testing.T) {
	s, now := strikes.New(ban.Product), instant.Of(time.Now())
	on := s.NewConnection()
	for i, c := range []struct{ key, left int }{{1, 30}, {2, 30}, {1, 29}, {2, 29}, {0, 0}, {2, 28}} {
		r := refusal(id.Key{byte(c.key)}, now.Add(time.Duration(i)*time.Second))
		r.On = on
		if c.key == 0 {
			s.Served(id.Key{1}, r.Address, on, r.Now)
			continue
		}
		must.Equal(t, s.Refused(r).StrikesUntilBan, c.left, "what is left at refusal %d, of key %d", i, c.key)
	}
}

// What is left shrinks with each refusal, and is the whole rule again for a key that was never
// refused. Without a rule, there is nothing to count.
func TestLeft(t *testing.T) {
	s, k, now := strikes.New(ban.Product), id.Key{1}, instant.Of(time.Now())
	for range 3 {
		now = now.Add(ban.Product.Grace)
		if out := s.Refused(refusal(k, now)); out.StrikesUntilBan != s.Left(k, 30, now) {
			t.Errorf("the refusal says %d, then %d are left", out.StrikesUntilBan, s.Left(k, 30, now))
		}
	}
	if mine, others := s.Left(k, 30, now), s.Left(id.Key{2}, 30, now); mine >= others || others != ban.Product.After {
		t.Errorf("%d are left, and %d of a key that was not refused", mine, others)
	}
	none := strikes.New(ban.Rule{})
	none.Banned(k, now, now+60_000)
	none.Served(k, netip.Addr{}, nil, now)
	if none.AreCounted() || none.Left(k, 30, now) != 0 {
		t.Error("strikes are counted without a rule")
	}
}

// refusal is one of a key whose client keeps no connection, with a promise that lasts long.
func refusal(k id.Key, now instant.Millis) strikes.Refusal {
	return strikes.Refusal{Key: k, Limit: 1, Now: now, Promised: now + 600_000}
}
