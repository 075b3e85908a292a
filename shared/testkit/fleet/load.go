package fleet

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit"
)

// Load is a number of clients that list pets with a token at a fixed rate, until End. It keeps
// every exchange.
type Load struct {
	gateways []*Program
	token    atomic.Pointer[string]

	stop    chan struct{}
	clients sync.WaitGroup

	mu    sync.Mutex
	shots []Shot
}

// Shot is one request of a Load.
type Shot struct {
	Gateway *Program
	Token   string
	Started time.Time
	Reply
}

// StartLoad starts the given number of clients at each gateway. Each sends a request at the given
// interval.
func StartLoad(t testing.TB, token string, clients int, every time.Duration, gateways ...*Program) *Load {
	t.Helper()
	l := &Load{gateways: gateways, stop: make(chan struct{})}
	l.SetToken(token)
	for _, gateway := range gateways {
		for range clients {
			l.clients.Go(func() { l.work(gateway, every) })
		}
	}
	t.Cleanup(func() { l.End() })
	return l
}

// SetToken changes the token of all later requests.
func (l *Load) SetToken(token string) { l.token.Store(&token) }

func (l *Load) work(gateway *Program, every time.Duration) {
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
		s := Shot{Gateway: gateway, Token: *l.token.Load(), Started: time.Now()}
		s.Reply, _ = c.Do(GetPets(s.Token)) // a failed exchange is a reply with status 0
		l.mu.Lock()
		l.shots = append(l.shots, s)
		l.mu.Unlock()
	}
}

// Await waits until each gateway has answered at least n requests with the token with this status.
// Only requests that started after the given instant count.
func (l *Load) Await(t testing.TB, token string, status, n int, after time.Time) {
	t.Helper()
	for _, gateway := range l.gateways {
		testkit.Eventually(t, ReplyWithin, fmt.Sprintf("%s answers %d", gateway.ID, status), func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			found := 0
			for _, s := range l.shots {
				if s.Gateway == gateway && s.Token == token && s.Status == status && s.Started.After(after) {
					found++
				}
			}
			return found >= n
		})
	}
}

// Take returns the requests sent so far and forgets them.
func (l *Load) Take() []Shot {
	l.mu.Lock()
	defer l.mu.Unlock()
	shots := l.shots
	l.shots = nil
	return shots
}

// End stops the load when all requests in flight are answered. It returns the requests since the
// last call of Take. It does not forget them: Count and Between can still be called.
func (l *Load) End() []Shot {
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

// Count returns how many requests so far were answered with a status.
func (l *Load) Count(status int) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.shots {
		if s.Status == status {
			n++
		}
	}
	return n
}

// Between returns the requests that started within the time.
func (l *Load) Between(from, to time.Time) (found []Shot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.shots {
		if !s.Started.Before(from) && s.Started.Before(to) {
			found = append(found, s)
		}
	}
	return found
}
