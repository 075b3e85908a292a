//go:build e2e

package soak_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// plenty is a limit that no client uses up.
const plenty = 1_000_000

// tenant is a tenant with one key at a time.
type tenant struct {
	fleet.Key
	name  string
	limit int // a minute

	mu     sync.Mutex
	shots  []shot
	resets []span // one that is not confirmed lasts until one that is
}

// shot is one request and what its client learned of its charge.
type shot struct {
	span
	gateway           *gateway
	key, code         string
	admitted, unknown bool
}

func (r *run) newTenant(name string, limit int) *tenant {
	return &tenant{
		name:  name,
		limit: limit,
		Key:   r.NewTenant(name, "--minute", fmt.Sprint(limit), "--day", fmt.Sprint(plenty)),
	}
}

// uncharged are the refusals by which a gateway charges nothing. With any other answer, the request
// was charged.
var uncharged = map[string]bool{
	"invalid_api_key": true, "too_many_failed_attempts": true, "key_banned": true, "directory_unavailable": true,
	"minute_quota_exceeded": true, "limits_degraded": true, "limits_unavailable": true,
}

// send sends a request and notes what its client learned.
func (r *run) send(c *fleet.Client, g *gateway, of *tenant, request string) fleet.Reply {
	from := r.now()
	if err := c.Connect(); err != nil {
		return fleet.Reply{} // nothing was sent
	}
	reply, _ := c.Do(request) // a failed exchange is a reply with status 0
	s := shot{span: span{from, r.now()}, gateway: g, key: of.ID, code: reply.Code()}
	s.unknown = reply.Status == 0 || s.code == "overloaded" // of the gateway or of the pet service
	s.admitted = !s.unknown && !uncharged[s.code]
	of.mu.Lock()
	of.shots = append(of.shots, s)
	of.mu.Unlock()
	r.judgeStatus(g, from, reply)
	return reply
}

func (r *run) get(c *fleet.Client, g *gateway, of *tenant) fleet.Reply {
	return r.send(c, g, of, fleet.GetPets(of.Token))
}

// judgeStatus finds the answers with 5xx that no page promises. A gateway fails no request because
// of Redis, unless it is told to refuse; none because of Postgres, unless it was stopped and has
// not read it since, or has a maximum age; and the others only because of a pet service.
func (r *run) judgeStatus(g *gateway, from time.Duration, reply fleet.Reply) {
	code, blind := reply.Code(), false
	r.locked(func() {
		blind = g.blind
		if reply.Status != 0 && code != "directory_unavailable" {
			g.blind = false
		}
		if reply.Status >= 500 {
			r.errors5xx[fmt.Sprint(reply.Status, " ", code)]++
		}
	})
	if reply.Status < 500 {
		return
	}
	var excused bool
	switch code {
	case "limits_unavailable":
		excused = r.refuse
	case "directory_unavailable":
		excused = blind || r.maxAge() > 0 && r.faultsIn(from-echo, r.now(), func(f *fault) bool {
			return f.cutsOff(g, r.postgres) || f.on == g
		}) > 0
	case "internal", "":
	default:
		excused = r.faultsIn(from-echo, r.now(), func(f *fault) bool { return f.fails }) > 0
	}
	if !excused || reply.Status == 503 && reply.RetryAfter() == 0 {
		r.fail("5xx", "%s answers %v", g.ID, reply)
	}
}

// pause waits for about the given time, or returns false if the load ends.
func (r *run) pause(random *rand.Rand, about time.Duration) bool {
	select {
	case <-r.stop:
		return false
	case <-time.After(about/2 + time.Duration(random.Int64N(int64(about)))):
		return true
	}
}

func (r *run) startClients() {
	for i, one := range r.greedy {
		for n, g := range r.gateways {
			r.work.Go(func() {
				c, random := g.Client(), r.random(100+10*i+n)
				defer c.Close()
				for r.pause(random, 80*time.Millisecond) {
					r.get(c, g, one)
				}
			})
		}
	}
	for n := range 4 {
		r.work.Go(func() { r.post(n) })
	}
	r.work.Go(r.obey)
}

// obey is a client that sleeps for Retry-After. When Redis decides, it is then admitted.
func (r *run) obey() {
	random, told := r.random(1), 0*time.Second
	for r.pause(random, 50*time.Millisecond) {
		g := r.gateways[random.IntN(len(r.gateways))]
		c := g.Client()
		reply := r.get(c, g, r.spaced)
		c.Close()
		if reply.Status != 429 {
			told = 0 // without an answer, or with 503, it may have been charged
			continue
		}
		if told > 0 && r.refuse {
			r.fail("Retry-After", "%s answers %v after a sleep of %v", g.ID, reply, told)
		}
		told = reply.RetryAfter()
		if told < time.Second || told > 61*time.Second {
			r.fail("Retry-After", "%s says %v", g.ID, told)
		}
		select {
		case <-r.stop:
			return
		case <-time.After(told):
		}
	}
}

// pet is one pet that a client wants to store.
type pet struct {
	name      string
	again     bool // with an Idempotency-Key, and repeated until it is answered
	locations map[string]bool
	answers   []string
	notStored bool // the last answer says so
}

// unclear are the refusals after which a client does not know whether its pet was stored.
var unclear = []string{"upstream_failed", "upstream_timeout", "outcome_unknown", "request_in_progress", "internal"}

// try sends the pet once, and reports whether it is stored.
func (r *run) try(p *pet, g *gateway) bool {
	var fields []string
	if p.again {
		fields = []string{`Idempotency-Key: "` + p.name + `"`}
	}
	c := g.Client()
	defer c.Close()
	reply := r.send(c, g, r.poster, fleet.PostPet(r.poster.Token, p.name, fields...))
	r.locked(func() {
		p.answers = append(p.answers, fmt.Sprint(r.now(), " ", reply.Status, " ", reply.Code()))
		if reply.Status == 201 {
			p.locations[reply.Header.Get("Location")] = true
		}
		p.notStored = reply.Status >= 400 && !slices.Contains(unclear, reply.Code())
	})
	return reply.Status == 201
}

// post stores pets: each once, or with an Idempotency-Key again and again, sometimes twice at a
// time, until it is answered 201.
func (r *run) post(worker int) {
	random := r.random(20 + worker)
	for n := 0; r.pause(random, 100*time.Millisecond); n++ {
		p := &pet{
			name:      fmt.Sprintf("pet %d of worker %d", n, worker),
			again:     random.IntN(3) > 0,
			locations: map[string]bool{},
		}
		r.locked(func() { r.wanted = append(r.wanted, p) })
		for {
			var twin sync.WaitGroup
			if g := r.gateways[random.IntN(len(r.gateways))]; p.again && random.IntN(4) == 0 {
				twin.Go(func() { r.try(p, g) })
			}
			done := r.try(p, r.gateways[random.IntN(len(r.gateways))])
			twin.Wait()
			if !p.again || done && random.IntN(3) > 0 || !r.pause(random, 50*time.Millisecond) {
				break
			}
		}
	}
}

// judgePets compares the answers with the table of pets.
func (r *run) judgePets() {
	var rows []struct {
		Name  string
		Count int
		ID    int64
	}
	must.Do(r.t, r.db.Select(&rows, `SELECT name, count(*) AS count, min(id) AS id FROM pets GROUP BY name`))
	counts, ids := map[string]int{}, map[string]int64{}
	for _, row := range rows {
		counts[row.Name], ids[row.Name] = row.Count, row.ID
	}
	for _, p := range r.wanted {
		own := p.locations[fmt.Sprintf("/v1/pets/%d", ids[p.name])]
		switch stored := counts[p.name]; {
		case stored > 1:
			r.fail("POST", "%s (Idempotency-Key %t) is stored %d times: %q", p.name, p.again, stored, p.answers)
		case len(p.locations) > 1 || len(p.locations) == 1 && !own:
			r.fail("POST", "%s got the locations %v, and %d is stored: %q", p.name, p.locations, ids[p.name], p.answers)
		case stored == 1 && p.notStored && !p.again:
			r.fail("POST", "%s is stored, although the answer says that it is not: %q", p.name, p.answers)
		}
	}
}
