package e2e_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit/fleet"
)

// load is a number of clients that list pets with a token at a fixed rate, until end. It keeps every exchange. A test may change
// the token while it runs.
type load struct {
	token atomic.Pointer[string]

	stop    chan struct{}
	clients sync.WaitGroup

	mu    sync.Mutex
	shots []shot
}

// shot is one request of a load.
type shot struct {
	gateway *fleet.Program
	token   string
	started time.Time
	fleet.Reply
}

// startLoad starts the given number of clients at each gateway. Each sends a request at the given interval.
func startLoad(t testing.TB, token string, clients int, every time.Duration, gateways ...*fleet.Program) *load {
	t.Helper()
	l := &load{stop: make(chan struct{})}
	l.token.Store(&token)
	for _, gateway := range gateways {
		for range clients {
			l.clients.Go(func() { l.work(gateway, every) })
		}
	}
	t.Cleanup(func() { l.end() })
	return l
}

func (l *load) work(gateway *fleet.Program, every time.Duration) {
	c := gateway.Client()
	defer c.Close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		s := shot{gateway: gateway, token: *l.token.Load(), started: time.Now()}
		s.Reply, _ = c.Do(fleet.GetPets(s.token)) // a failed exchange is a reply with status 0
		l.mu.Lock()
		l.shots = append(l.shots, s)
		l.mu.Unlock()
	}
}

// since counts, by gateway and status, the requests with a token. It counts only requests that started after the given instant.
func (l *load) since(token string, after time.Time) map[*fleet.Program]map[int]int {
	counts := map[*fleet.Program]map[int]int{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.shots {
		if s.token == token && s.started.After(after) {
			if counts[s.gateway] == nil {
				counts[s.gateway] = map[int]int{}
			}
			counts[s.gateway][s.Status]++
		}
	}
	return counts
}

// take returns the requests sent so far and forgets them.
func (l *load) take() []shot {
	l.mu.Lock()
	defer l.mu.Unlock()
	shots := l.shots
	l.shots = nil
	return shots
}

// end stops the load when all requests in flight are answered. It returns the requests since the last call of take.
// Unlike take, it does not forget them: count, since and between can still be called.
func (l *load) end() []shot {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.clients.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shots
}
