//go:build e2e

package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// traffic is constant load by workers that list pets and add some. They give every pet a different
// name. Half of the workers give each POST an Idempotency-Key, and repeat it until it is answered
// 201.
type traffic struct {
	stop    chan struct{}
	done    sync.WaitGroup
	clients []fleet.Client

	mu      sync.Mutex
	counts  map[int]int     // answers by status; 0 = none
	wrong   []string        // responses other than 200 to a GET and 201 to a POST
	created map[string]bool // names; true = answered 201
	slowest time.Duration
}

const (
	trafficWorkers = 6
	trafficPace    = 6 * time.Millisecond // of each worker; longer if responses take longer
)

// startTraffic sends load, each worker by a client like this one. Every second request adds a pet.
func startTraffic(token string, client fleet.Client) *traffic {
	clients := slices.Repeat([]fleet.Client{client}, trafficWorkers)
	l := newTraffic(
		trafficWorkers,
		trafficPace,
		2,
		func(worker int, name string, fields ...string) (fleet.Reply, error) {
			if name == "" {
				return clients[worker].Do(fleet.GetPets(token))
			}
			return clients[worker].Do(fleet.PostPet(token, name, fields...))
		},
	)
	l.clients = clients
	return l
}

// newTraffic starts workers. Of their requests, one in each group of the given size adds a pet;
// none if it is 0. ask adds a pet, or lists pets if there is no name.
func newTraffic(
	workers int, pace time.Duration, group int,
	ask func(worker int, name string, fields ...string) (fleet.Reply, error),
) *traffic {
	l := &traffic{stop: make(chan struct{}), counts: make(map[int]int), created: make(map[string]bool)}
	for worker := range workers {
		l.done.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				case <-tick.C:
				}
				name, want, fields := "", 200, []string(nil)
				if group > 0 && n%group == 0 {
					name, want = fmt.Sprintf("%p-%d-%d", l, worker, n), 201
				}
				if name != "" && worker%2 == 1 {
					fields = []string{"Idempotency-Key: " + name}
				}
				began := time.Now()
				got, err := ask(worker, name, fields...)
				l.note(name, want, got, err, time.Since(began))
				if got.Status != want && fields != nil {
					n-- // once more
				}
			}
		})
	}
	return l
}

func (l *traffic) note(name string, want int, got fleet.Reply, err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	status := 0
	if err == nil {
		status = got.Status
	}
	l.counts[status]++
	l.slowest = max(l.slowest, took)
	if name != "" {
		l.created[name] = status == 201
	}
	if status != want {
		l.wrong = append(l.wrong, fmt.Sprintf("%d %v %s", status, err, got.Body))
	}
}

// count returns the number of responses with a status so far.
func (l *traffic) count(status int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[status]
}

// more waits until n more requests had the expected response.
func (l *traffic) more(t testing.TB, n int) {
	t.Helper()
	good := func() int { return l.count(200) + l.count(201) }
	from := good()
	testkit.Eventually(t, fleet.ReplyWithin, fmt.Sprintf("%d more answers", n), func() bool { return good() >= from+n })
}

// least waits until n requests had the expected response since the beginning.
func (l *traffic) least(t testing.TB, n int) {
	t.Helper()
	for l.count(200)+l.count(201) < n {
		l.more(t, 250)
	}
}

// end stops the load. When end returns, no request is in flight.
func (l *traffic) end() {
	close(l.stop)
	l.done.Wait()
	for i := range l.clients {
		l.clients[i].Close()
	}
}

func (l *traffic) total() (n int) {
	for count := range maps.Values(l.counts) {
		n += count
	}
	return n
}

// faultless fails the test for every request without the expected response.
func (l *traffic) faultless(t testing.TB) {
	t.Helper()
	if len(l.wrong) > 0 {
		t.Errorf("%d of %d requests failed, the first with %s", len(l.wrong), l.total(), l.wrong[0])
	}
}

// stored compares the responses with the database. It returns how many pets are stored although
// their requests got no 201: if a response was lost, the client cannot know that the pet is stored.
func (l *traffic) stored(t testing.TB, f *fleet.Fleet) (unanswered int) {
	t.Helper()
	rows := petRows(t, f)
	for name, answered := range l.created {
		switch n := rows[name]; {
		case n > 1:
			t.Errorf("%q is stored %d times", name, n)
		case n == 0 && answered:
			t.Errorf("%q was answered 201 and is not stored", name)
		case n == 1 && !answered:
			unanswered++
		}
	}
	if t.Failed() {
		t.FailNow() // the caller would print a figure that claims that each is stored once
	}
	return unanswered
}
