//go:build e2e

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// chaosFor is how long faults follow one another.
const chaosFor = 20 * time.Second

// chaos is three gateways that are paused, cut off, killed, stopped and started in a random order, while keys are revoked and
// the database is restored from a backup in which they are valid.
type chaos struct {
	*fleet.Fleet
	t       *testing.T
	random  *rand.Rand
	members []*member
	valid   []fleet.Key
	restore func()

	mu      sync.Mutex
	history []string
	revoked []revocation // confirmed
	asked   int
}

type member struct {
	*fleet.Program
	database                 *testkit.Proxy
	paused, cutOff, hasEnded bool
}

type revocation struct {
	key fleet.Key
	at  time.Time // keyadmin had exited with 0
}

// Whatever the order of the faults: after keyadmin has confirmed a revocation, no gateway accepts the key.
func TestChaosRevivesNoKey(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	redis, prefix := testkit.Redis(t)
	c := &chaos{t: t, random: rand.New(rand.NewPCG(seed, 0)), Fleet: fleet.Start(t, fleet.Spec{
		Redis: redis, RedisPrefix: prefix, Upstreams: fleet.FixedUpstream(t),
		GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=0s", "GATEWAY_ACCESS_LOG=false", "GATEWAY_DIRECTORY_MAX_AGE=4s"},
	})}
	for range 3 {
		proxy, through := throughProxy(t, c.Database)
		c.members = append(c.members, &member{Program: c.AddGateway(through), database: proxy})
	}
	c.MustKeyadmin(append([]string{"tenant", "create", "acme"}, fleet.Unlimited...)...)
	for range 30 { // more than are revoked
		c.valid = append(c.valid, c.NewKey("acme"))
	}
	c.restore = backUp(t, openDatabase(t, c.Fleet))

	end := make(chan struct{})
	var clients sync.WaitGroup
	for _, m := range c.members {
		clients.Go(func() { c.ask(m, end) })
	}
	steps := []func(*member){c.pause, c.pause, c.cut, c.cut, c.kill, c.stop, c.revoke, c.revoke, c.revoke, c.revoke, c.goBack}
	for began := time.Now(); time.Since(began) < chaosFor && !t.Failed(); {
		steps[c.random.IntN(len(steps))](c.members[c.random.IntN(len(c.members))])
	}
	close(end)
	c.heal()
	clients.Wait()
	t.Logf("figure: %d steps of faults and changes; %d confirmed revocations, and none of %d requests with these keys was accepted",
		len(c.history), len(c.revoked), c.asked)
	if c.asked == 0 || len(c.revoked) == 0 {
		t.Error("nothing was tried")
	}
}

func (c *chaos) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

// ask sends requests with revoked keys to a gateway. The latest revocation is tried as often as all others together.
func (c *chaos) ask(m *member, end <-chan struct{}) {
	client := m.Client()
	defer client.Close()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-end:
			return
		case <-tick.C:
		}
		c.mu.Lock()
		known := c.revoked
		c.mu.Unlock()
		if len(known) == 0 {
			continue
		}
		r := known[len(known)-1]
		if n%2 == 0 {
			r = known[n/2%len(known)]
		}
		begun := time.Now()
		reply, err := client.Do(fleet.GetPets(r.key.Token))
		c.mu.Lock()
		c.asked++
		if err == nil && reply.Status == 200 {
			c.t.Errorf("%s accepts %s %v after its revocation was confirmed:\n%s", m.ID, r.key.ID, begun.Sub(r.at),
				strings.Join(c.history, "\n"))
		}
		c.mu.Unlock()
	}
}

func (c *chaos) pause(m *member) {
	if m.hasEnded {
		return
	}
	if m.paused = !m.paused; m.paused {
		m.Pause(c.t)
	} else {
		m.Resume()
	}
	c.note("%s: paused %t", m.ID, m.paused)
}

func (c *chaos) cut(m *member) {
	switch m.cutOff = !m.cutOff; {
	case !m.cutOff:
		m.database.Restore(c.t)
	case c.random.IntN(2) == 0:
		m.database.Kill()
	default:
		m.database.BlackHole()
	}
	c.note("%s: cut off %t", m.ID, m.cutOff)
}

func (c *chaos) kill(m *member) {
	m.Kill()
	m.Launch(c.t)
	m.paused, m.hasEnded = false, false
	c.note("%s: killed and started", m.ID)
}

func (c *chaos) stop(m *member) {
	switch {
	case m.hasEnded:
		m.Launch(c.t)
		c.note("%s: started", m.ID)
	case !m.paused:
		c.note("%s: ended with %d", m.ID, m.Stop())
	default:
		return
	}
	m.hasEnded = !m.hasEnded
}

func (c *chaos) revoke(*member) {
	if len(c.valid) == 0 {
		return
	}
	key := c.valid[0]
	c.valid = c.valid[1:]
	wait := []string{"300ms", "1s", "7s"}[c.random.IntN(3)]
	done := c.Keyadmin("key", "revoke", key.ID, "--yes", "--wait", wait)
	c.note("revoked %s: exit code %d", key.ID, done.Code)
	if done.Code == 0 {
		c.mu.Lock()
		c.revoked = append(c.revoked, revocation{key, time.Now()})
		c.mu.Unlock()
	}
}

// goBack restores the database while every gateway runs and knows all changes. Sometimes one is paused meanwhile, and
// sometimes the database goes back twice.
func (c *chaos) goBack(m *member) {
	c.heal()
	live := len(c.members)
	// A gateway that was just killed still counts as live. Only its new process can confirm a change.
	all := fmt.Sprintf("confirmed by %d of %d gateways", live, live)
	testkit.Eventually(c.t, fleet.ReplyWithin, all, func() bool {
		return strings.Contains(c.Keyadmin("key", "create", "acme", "--wait", "5s").Stderr, all)
	})
	if c.random.IntN(2) == 0 {
		c.pause(m)
		live--
	}
	c.restore()
	if c.random.IntN(2) == 0 {
		c.restore()
	}
	c.note("restored")
	c.awaitLive(live)
}

// heal ends all faults.
func (c *chaos) heal() {
	for _, m := range c.members {
		if m.paused {
			c.pause(m)
		}
		if m.cutOff {
			c.cut(m)
		}
		if m.hasEnded {
			c.stop(m)
		}
	}
}

func (c *chaos) awaitLive(n int) {
	c.t.Helper()
	testkit.Eventually(c.t, fleet.ReplyWithin, fmt.Sprintf("%d gateways are live", n), func() bool {
		return strings.Count(c.MustKeyadmin("gateway", "list"), " live ") == n
	})
}
