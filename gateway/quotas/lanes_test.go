package quotas

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/quota"
)

// farStore is a store whose batches are answered when the test says so.
type farStore struct {
	fakeStore
	records  *store.Memory
	mu       sync.Mutex
	underWay []*farBatch
	isNear   bool // it answers at once
}

// farBatch is a batch under way.
type farBatch struct {
	demands []store.Demand
	results []store.Result
	answer  chan func() error
}

// newFar returns quotas that use a farStore with this number of lanes.
func newFar(t *testing.T, lanes int) (*Shared, *farStore) {
	f := &farStore{records: store.NewMemory(quota.Product, time.Now)}
	return newFakeOver(t, &f.fakeStore, Config{lanes: lanes}, f.decide), f
}

func (f *farStore) decideNow(demands []store.Demand, results []store.Result) error {
	return f.records.Decide(background, demands, results)
}

func (f *farStore) decide(ctx context.Context, demands []store.Demand, results []store.Result) error {
	f.mu.Lock()
	if f.isNear {
		f.mu.Unlock()
		return f.decideNow(demands, results)
	}
	b := &farBatch{slices.Clone(demands), results, make(chan func() error, 1)}
	f.underWay = append(f.underWay, b)
	f.mu.Unlock()
	select {
	case answer := <-b.answer:
		if answer != nil {
			return answer()
		}
		return f.decideNow(demands, results)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// near lets the store answer at once from now on.
func (f *farStore) near() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isNear = true
}

// wants returns the batches under way, in the order in which they were sent: for each tenant, how many requests.
func (f *farStore) wants() string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []map[byte]int64
	for _, b := range f.underWay {
		want := map[byte]int64{}
		for _, d := range b.demands {
			want[d.Tenant[9]] += d.Want
		}
		all = append(all, want)
	}
	return fmt.Sprint(all)
}

// answer answers the batch with this index in wants. A nil function decides it; another one returns the outcome of the call.
func (f *farStore) answer(i int, outcome func() error) {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.underWay[i].answer <- outcome
	f.underWay = slices.Delete(f.underWay, i, i+1)
}

// answerAll decides all batches under way.
func (f *farStore) answerAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.underWay {
		b.answer <- nil
	}
	f.underWay = nil
}

// asked is requests in the order of their arrival, and their verdicts.
type asked struct {
	all      sync.WaitGroup
	verdicts []*quota.Verdict
}

// ask sends a request of tenant n, and returns when it waits.
func (a *asked) ask(l *Shared, n int) {
	v := new(quota.Verdict)
	a.verdicts = append(a.verdicts, v)
	a.all.Go(func() { *v, _ = l.Take(asking(n, 60)) })
	synctest.Wait()
}

// used waits for all requests and returns the use that each one saw.
func (a *asked) used() (all []int64) {
	a.all.Wait()
	for _, v := range a.verdicts {
		all = append(all, v.Usages[quota.Minute].Used)
	}
	return all
}

// While batches are under way, further ones leave. A request whose tenant is under way waits for that batch, and for no other one.
func TestBatchesOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far := newFar(t, 3)
		var a asked
		is := func(want string) {
			t.Helper()
			if got := far.wants(); got != want {
				t.Errorf("under way: %s, want %s", got, want)
			}
		}
		for _, n := range []int{1, 1, 2, 3, 4, 2, 1, 5} {
			a.ask(l, n)
		}
		is("[map[1:1] map[2:1] map[3:1]]")
		far.answer(1, nil)
		is("[map[1:1] map[3:1] map[2:1 4:1 5:1]]") // 1 waits for its batch
		far.answer(1, nil)
		is("[map[1:1] map[2:1 4:1 5:1]]")
		a.ask(l, 3)
		is("[map[1:1] map[2:1 4:1 5:1] map[3:1]]")
		far.answer(0, nil)
		is("[map[2:1 4:1 5:1] map[3:1] map[1:2]]")
		far.near()
		far.answerAll()
		if used := a.used(); !slices.Equal(used, []int64{1, 2, 1, 1, 1, 2, 3, 1, 2}) {
			t.Errorf("used %v, want each tenant's requests in their order", used)
		}
	})
}

// No tenant is in two batches under way, and each tenant's requests are decided in the order of their arrival, also when its limits
// change: for any number of lanes, and whatever batch returns first.
func TestLanesKeepTheOrder(t *testing.T) {
	for _, lanes := range []int{1, 2, 8} {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(lanes), 1))
			records := store.NewMemory(quota.Product, time.Now)
			var mu sync.Mutex
			underWay, batches, overlapping, most := map[id.Tenant]bool{}, 0, 0, 0
			l := newFake(t, Config{lanes: lanes}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
				mu.Lock()
				for _, d := range demands {
					if underWay[d.Tenant] {
						t.Errorf("%d lanes: %v is in two batches", lanes, d.Tenant)
					}
					underWay[d.Tenant] = true
				}
				batches++
				overlapping++
				most = max(most, overlapping)
				trip := time.Duration(random.IntN(10_000)) * time.Microsecond
				mu.Unlock()
				time.Sleep(trip / 2)
				err := records.Decide(ctx, demands, results)
				time.Sleep(trip / 2)
				mu.Lock()
				defer mu.Unlock()
				overlapping--
				for _, d := range demands {
					delete(underWay, d.Tenant)
				}
				return err
			})
			const requests = 1000
			var all sync.WaitGroup
			arrived := map[int]int64{}
			for i := range requests {
				mu.Lock()
				n, pause := random.IntN(20), time.Duration(random.IntN(400))*time.Microsecond
				mu.Unlock()
				arrived[n]++
				want := arrived[n]
				all.Go(func() {
					a := asking(n, 1000)
					a.Version = uint64(i / 300) // the limits change
					if v := mustTake(t, l, a); v.Granted != 1 || v.Usages[quota.Minute].Used != want {
						t.Errorf("%d lanes: request %d of tenant %d: %+v", lanes, want, n, v)
					}
				})
				synctest.Wait() // it is in the queue
				time.Sleep(pause)
			}
			all.Wait()
			if most != lanes || batches > requests/2 {
				t.Errorf("%d batches of %d requests, at most %d under way, want %d", batches, requests, most, lanes)
			}
			for i := range requests { // requests that arrive together, also while a batch is about to leave
				all.Go(func() { mustTake(t, l, asking(i*7%20, 1000)) })
				if i%8 == 0 {
					time.Sleep(500 * time.Microsecond)
				}
			}
			all.Wait()
		})
	}
}

// Of three batches under way, one is decided and its answer is lost, one is lost undecided and only after the server is down, and
// one is answered. Only the request that was decided is charged twice. Requests that wait are let go when the first batch fails.
func TestTwoBatchesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far := newFar(t, 3)
		warm := asked{}
		warm.ask(l, 9)
		far.answer(0, nil)
		warm.used() // so Redis has answered this gateway

		var first, late, waiting asked
		first.ask(l, 1)
		late.ask(l, 2)
		first.ask(l, 3)
		for n := 1; n <= 4; n++ {
			waiting.ask(l, n)
		}
		began := time.Now()
		lost := far.underWay[0]
		far.answer(0, func() error {
			_ = far.decideNow(lost.demands, lost.results)
			return errTimeout
		})
		waiting.used()
		if took := time.Since(began); took != 0 || l.Mode() != modeOutage {
			t.Errorf("the queue was let go after %v, mode %s", took, l.Mode())
		}
		far.answer(1, nil)
		if used := first.used(); used[1] != 1 || first.verdicts[1].Degraded {
			t.Errorf("the batch that was answered: %+v", first.verdicts[1])
		}
		far.near()
		time.Sleep(time.Second)
		if l.Mode() != modeOutage {
			t.Error("Redis decides again, while a batch is under way that may still be lost")
		}
		far.answer(0, func() error { return errTimeout })
		late.used()
		time.Sleep(time.Second)
		if l.Mode() != modeShared {
			t.Error("the outage goes on")
		}
		for n := 1; n <= 4; n++ {
			want := int64(3) // the one under way, the one that waited, and this one
			switch n {
			case 1:
				want = 4
			case 4:
				want = 2
			}
			if v := mustTake(t, l, asking(n, 60)); v.Degraded || v.Usages[quota.Minute].Used != want || v.Usages[quota.Day].Used != want {
				t.Errorf("tenant %d: %+v, want %d used", n, v, want)
			}
		}
		if len(l.share.unreported) != 0 {
			t.Errorf("unreported: %+v", l.share.unreported)
		}
	})
}

// Closing ends all batches under way and all requests that wait.
func TestCloseWithBatchesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far := newFar(t, 3)
		var a asked
		for _, n := range []int{1, 2, 3, 1, 4} {
			a.ask(l, n)
		}
		if got := far.wants(); got != "[map[1:1] map[2:1] map[3:1]]" {
			t.Errorf("under way: %s", got)
		}
		if err := l.Close(background); err != nil {
			t.Error(err)
		}
		a.used()
	})
}

// What a trip adds to a request, in the time of the test: clients send a request, wait for Redis and then 2 ms for the upstream, and
// send the next one. Near servers get one batch at a time.
func TestLanesShortenTheWait(t *testing.T) {
	f := func(trip time.Duration, clients, lanes int) (median, batches float64, most int) {
		synctest.Test(t, func(t *testing.T) {
			records := store.NewMemory(quota.Product, time.Now)
			var mu sync.Mutex
			sent, underWay := 0, 0
			l := newFake(t, Config{lanes: lanes}, func(ctx context.Context, demands []store.Demand, results []store.Result) error {
				mu.Lock()
				sent++
				underWay++
				most = max(most, underWay)
				mu.Unlock()
				time.Sleep(trip)
				mu.Lock()
				underWay--
				mu.Unlock()
				return records.Decide(ctx, demands, results)
			})
			var waits []time.Duration
			var all sync.WaitGroup
			for i := range clients {
				random := rand.New(rand.NewPCG(uint64(i), 2))
				all.Go(func() {
					for range 100 {
						time.Sleep(1900*time.Microsecond + time.Duration(random.IntN(200))*time.Microsecond)
						began := time.Now()
						mustTake(t, l, asking(i, 1000))
						took := time.Since(began)
						mu.Lock()
						waits = append(waits, took)
						mu.Unlock()
					}
				})
			}
			all.Wait()
			slices.Sort(waits)
			median, batches = float64(waits[len(waits)/2])/float64(trip), float64(sent)/float64(len(waits))
		})
		return median, batches, most
	}
	for _, c := range []struct {
		trip    time.Duration
		clients int
		most    float64 // trips
	}{{80 * time.Microsecond, 32, 2}, {500 * time.Microsecond, 1, 1}, {500 * time.Microsecond, 32, 1.1}, {500 * time.Microsecond, 128, 1.1}, {2 * time.Millisecond, 32, 1.1}} {
		before, batchesBefore, _ := f(c.trip, c.clients, 1)
		median, batches, most := f(c.trip, c.clients, 0)
		t.Logf("figure: trips of %v, %d clients: half wait for %.2f trips, %.2f batches a request; with one lane %.2f trips, %.2f batches",
			c.trip, c.clients, median, batches, before, batchesBefore)
		if near := c.trip < 250*time.Microsecond; median > c.most || median < 1 || near && most > 1 {
			t.Errorf("trips of %v, %d clients: half wait for %.2f trips, at most %d batches were under way", c.trip, c.clients, median, most)
		}
	}
}
