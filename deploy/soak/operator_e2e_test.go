//go:build e2e

package soak_test

import (
	"encoding/json"
	"fmt"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// keyState is a key and what keyadmin has confirmed of it. Guarded by run.mu.
type keyState struct {
	fleet.Key
	works, ended time.Duration // requests that begin later pass, or do not; 0: not confirmed
	changing     bool          // an operator has begun to end it
	endsLater    bool          // the change was made, but not confirmed by all
	by           string        // the command
}

// startOperator starts an operator, and a client at every gateway that tries the keys.
func (r *run) startOperator() {
	r.work.Go(r.operate)
	for n, g := range r.gateways {
		r.work.Go(func() { r.probe(n, g) })
	}
}

// operate creates, revokes, rotates and bans keys, and resets the quota of one greedy tenant.
func (r *run) operate() {
	random := r.random(2)
	for r.pause(random, 400*time.Millisecond) {
		var alive []*keyState
		for _, k := range r.keys { // only this goroutine changes them
			if !k.changing {
				alive = append(alive, k)
			}
		}
		way := random.IntN(10)
		if len(alive) < 3 || way < 4 {
			r.issue(nil, "key", "create", r.keyed.name, "--output", "json")
			continue
		}
		switch k := alive[random.IntN(len(alive))]; way {
		case 4, 5:
			r.issue(k, "key", "revoke", k.ID, "--yes")
		case 6, 7:
			r.issue(k, "key", "rotate", k.ID, "--grace", "0", "--yes", "--output", "json")
		case 8:
			r.issue(k, "ban", "add", k.ID, "--for", "1h", "--reason", "a test", "--yes")
		case 9:
			r.reset(r.greedy[2])
		}
	}
}

// keyadmin runs a command and counts its exit code.
func (r *run) keyadmin(args ...string) fleet.Result {
	done := r.Keyadmin(args...)
	r.locked(func() { r.commands[fmt.Sprintf("%s %s %d", args[0], args[1], done.Code)]++ })
	if done.Code != 0 {
		r.t.Logf("%v: keyadmin %s %s: exit code %d: %s", r.now().Round(time.Millisecond), args[0], args[1], done.Code,
			done.Stderr)
	}
	return done
}

// issue runs a command that ends a key, unless that is nil, and may print another one.
func (r *run) issue(ends *keyState, args ...string) {
	if ends != nil {
		r.locked(func() { ends.changing, ends.works, ends.by = true, 0, args[1] })
	}
	done, fresh := r.keyadmin(args...), &keyState{by: args[1]}
	r.locked(func() {
		if json.Unmarshal([]byte(done.Stdout), &fresh.Key) == nil && fresh.Token != "" {
			r.keys = append(r.keys, fresh)
		}
		if done.Code == 0 {
			fresh.works = r.now()
		}
		if ends != nil && done.Code == 0 {
			ends.ended = r.now()
		}
		if ends != nil && done.Code == 3 {
			ends.endsLater = true
		}
	})
}

// reset sets a tenant's usage back to zero.
func (r *run) reset(one *tenant) fleet.Result {
	from := r.now()
	done := r.keyadmin("usage", "reset", one.name, "--yes")
	one.resets = append(one.resets, span{from, never})
	for i := range one.resets {
		if done.Code == 0 {
			one.resets[i].to = min(one.resets[i].to, r.now())
		}
	}
	return done
}

// probe tries keys at a gateway, half of the time one of the latest.
func (r *run) probe(n int, g *gateway) {
	c, random := g.Client(), r.random(10+n)
	defer c.Close()
	for r.pause(random, 25*time.Millisecond) {
		var k *keyState
		r.locked(func() {
			if all := r.keys; len(all) > 0 {
				if random.IntN(2) == 0 {
					all = all[max(0, len(all)-6):]
				}
				k = all[random.IntN(len(all))]
			}
		})
		if k == nil {
			continue
		}
		begun := r.now()
		reply, _ := c.Do(fleet.GetPets(k.Token)) // a failed exchange is a reply with status 0
		r.judgeStatus(g, begun, reply)
		var now keyState
		r.locked(func() { now = *k; r.probes++ })
		if reply.Status != 0 && !uncharged[reply.Code()] && now.ended > 0 && begun > now.ended {
			r.fail("confirmed", "%s accepts %s, %v after %s was confirmed: %v", g.ID, k.ID, begun-now.ended, now.by,
				reply)
		}
		if reply.Status == 401 && now.works > 0 && begun > now.works {
			r.fail("confirmed", "%s refuses %s, %v after %s was confirmed: %v", g.ID, k.ID, begun-now.works, now.by,
				reply)
		}
	}
}

// judgeKeys tries every key at every gateway after all faults: a change that was made but not
// confirmed holds now too.
func (r *run) judgeKeys() {
	for _, k := range r.keys {
		for _, g := range r.gateways {
			var reply fleet.Reply
			testkit.Eventually(r.t, fleet.ReplyWithin, "it is decided whether a key may pass", func() bool {
				reply = g.Ask(k.Token)
				return reply.Status != 0 && reply.Status < 500
			})
			switch passes := !uncharged[reply.Code()]; {
			case passes && (k.ended > 0 || k.endsLater):
				r.fail("confirmed", "at the end %s accepts %s after %s: %v", g.ID, k.ID, k.by, reply)
			case !passes && !k.changing:
				r.fail("confirmed", "at the end %s refuses %s: %v", g.ID, k.ID, reply)
			}
		}
	}
}
