package redis

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

// tape stands between gateways and Redis and writes down every quota decision.
type tape struct {
	lose *atomic.Int64 // how many answers to script calls are still to be lost: their connections are closed instead

	addr   string
	target string
	name   string // of the function that all decisions must call

	mu        sync.Mutex
	decisions []taped
	problems  []error
}

// taped is one demand as it went to Redis, and what came back.
type taped struct {
	key     string // names the tenant's record
	demand  quota.Demand
	verdict quota.Verdict
	own     *taped // of the key, granted together with this one; nil: none
}

// newTape returns a tape of all decisions that the Redis at target (host:port) makes by this rule.
// It ends with the test. Tapes may share lose.
func newTape(t testing.TB, target string, rule quota.Rule, lose *atomic.Int64) *tape {
	t.Helper()
	ln := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	p := &tape{lose: lose, addr: ln.Addr().String(), target: target, name: newScript(nil, "", rule, takeScript).name}
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	all.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, client, server)
			mu.Unlock()
			all.Go(func() { p.serve(rule, client, server) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return p
}

func (p *tape) serve(rule quota.Rule, client, server net.Conn) {
	defer client.Close()
	defer server.Close()
	commands, replies := &resp{in: bufio.NewReader(client)}, &resp{in: bufio.NewReader(server)}
	for {
		command, err := commands.read()
		if err != nil {
			return
		}
		reply, err := p.pass(rule, commands.raw, command, server, replies)
		if err != nil {
			return
		}
		if isScript(command) && p.lose.Add(-1) >= 0 {
			return
		}
		if _, err := client.Write(reply); err != nil {
			return // the gateway no longer waits; the decision stays on the tape
		}
	}
}

// pass sends one command to Redis, notes its decisions and returns the reply. Redis gets one
// command at a time, of all gateways, so the tape is in its order.
func (p *tape) pass(rule quota.Rule, raw []byte, command []string, server net.Conn, replies *resp) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := server.Write(raw); err != nil {
		return nil, err
	}
	reply, err := replies.read()
	if err != nil {
		return nil, err
	}
	if isScript(command) && len(reply) == 1 && replies.raw[0] == '$' {
		if err := p.note(rule, command, reply[0]); err != nil {
			p.problems = append(p.problems, err)
		}
	}
	return replies.raw, nil
}

func isScript(command []string) bool { return strings.EqualFold(command[0], "fcall") }

// note decodes a script call and its reply by the layout that take.lua documents, and puts the
// decisions on the tape.
func (p *tape) note(rule quota.Rule, command []string, reply string) error {
	n, err := strconv.Atoi(command[2])
	if err != nil || len(command) < 3+n+2 || len(command) > 3+n+4 {
		return fmt.Errorf("a call with %d arguments for %q keys: the clock must be Redis's", len(command), command[2])
	}
	keys, rest := command[3:3+n], append(command[3+n:], "", "")
	text, months, unreported := rest[0], rest[2], rest[3]
	if command[1] != p.name || len(text) != n*demandBytes ||
		len(unreported) != 0 && len(unreported) != n*unreportedBytes {
		return fmt.Errorf("%d keys, function %s, %d bytes of demands, %d of unreported", n, command[1], len(text),
			len(unreported))
	}
	demands, results := make([]store.Demand, n), make([]store.Result, n)
	for i := range demands {
		number := func(text string, k int) int64 {
			return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(text[8*k:]))))
		}
		d, cost := &demands[i], number(text, 7*i+6)
		d.Joined, d.Cost = cost < 0, max(cost, -cost)
		limit := func(below int64) int64 {
			if below == quota.CountMax {
				return 0
			}
			return below + d.Cost - 1
		}
		d.Limits = plan.Limits{Minute: limit(number(text, 7*i)), Day: limit(number(text, 7*i+1))}
		d.Want = number(text, 7*i+2) / d.Cost
		d.Known = quota.Use{
			Minute: number(text, 7*i+5),
			Day:    quota.Period{Ends: number(text, 7*i+3), Used: number(text, 7*i+4)},
		}
		if unreported != "" {
			d.Unreported = quota.Use{
				Minute: number(unreported, 5*i),
				Day:    quota.Period{Ends: number(unreported, 5*i+1), Used: number(unreported, 5*i+2)},
				Month:  quota.Period{Ends: number(unreported, 5*i+3), Used: number(unreported, 5*i+4)},
			}
		}
		if months != "" && number(months, 5*i+1) != 0 {
			d.Limits.Month = limit(number(months, 5*i))
			d.MonthStarts = uint8(time.Unix(number(months, 5*i+1)*86_400, 0).UTC().Day())
			d.Known.Month = quota.Period{Ends: number(months, 5*i+3), Used: number(months, 5*i+4)}
		}
		if i > 0 && demands[i-1].Joined {
			demands[i-1].Want = d.Want
		}
	}
	if err := (&script{rule: rule}).read([]byte(reply), demands, results); err != nil {
		return err
	}
	var own *taped
	for i, r := range results {
		if r.Err != nil {
			return r.Err
		}
		one := taped{key: keys[i], demand: demands[i].Quota(), verdict: r.Verdict, own: own}
		own = nil
		if demands[i].Joined {
			own = &one
		} else {
			p.decisions = append(p.decisions, one)
		}
	}
	return nil
}

// resp reads commands and replies of the Redis protocol, version 2.
type resp struct {
	in  *bufio.Reader
	raw []byte // what was read last
}

// read returns the strings of one value. Those of an array come one after the other.
func (r *resp) read() ([]string, error) {
	r.raw = r.raw[:0]
	return r.value(nil)
}

func (r *resp) value(parts []string) ([]string, error) {
	line, err := r.in.ReadString('\n')
	if err != nil || len(line) < 3 {
		return nil, io.ErrUnexpectedEOF
	}
	r.raw = append(r.raw, line...)
	n, _ := strconv.Atoi(line[1 : len(line)-2])
	switch line[0] {
	case '$':
		if n < 0 {
			return append(parts, ""), nil
		}
		text := make([]byte, n+2)
		if _, err := io.ReadFull(r.in, text); err != nil {
			return nil, err
		}
		r.raw = append(r.raw, text...)
		return append(parts, string(text[:n])), nil
	case '*':
		for range n {
			if parts, err = r.value(parts); err != nil {
				return nil, err
			}
		}
		return parts, nil
	default:
		return append(parts, line[1:len(line)-2]), nil
	}
}

// replayed is the sum of a tape's decisions.
type replayed struct {
	used        map[string]int64 // units granted, by key
	calls       int64
	spent       int64 // charged for outages
	joined      int64 // decisions on a key's own limits too
	first, last int64 // instants of Redis
}

// replay makes all decisions of the tape again by the pure rule, in Redis's order and at Redis's
// instants. Each verdict must be the same as Redis's. The tests of the rule compare it with a naive
// list of admissions.
func (p *tape) replay(t *testing.T, rule quota.Rule) replayed {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		t.Error(problem)
	}
	r := replayed{used: map[string]int64{}, calls: int64(len(p.decisions))}
	records := map[string]*quota.Record{}
	of := func(d *taped) *quota.Record {
		if records[d.key] == nil {
			records[d.key] = new(quota.Record)
		}
		return records[d.key]
	}
	wrong := 0
	check := func(i int, d *taped, ruled quota.Verdict) {
		if ruled == d.verdict {
			return
		}
		if wrong++; wrong <= 10 {
			t.Errorf("decision %d, of %s on %+v:\nRedis %+v\nrule  %+v", i, d.key, d.demand, d.verdict, ruled)
		}
	}
	for i, d := range p.decisions {
		at := d.verdict.At
		if d.own == nil {
			check(i, &d, rule.Take(of(&d), at, d.demand))
		} else {
			ofKey, ofTenant := rule.TakeBoth(of(d.own), of(&d), at, d.own.demand, d.demand)
			check(i, d.own, ofKey)
			check(i, &d, ofTenant)
			r.used[d.own.key] += d.own.demand.Units(d.verdict.Granted)
			r.joined++
		}
		r.used[d.key] += d.demand.Units(d.verdict.Granted)
		r.spent += d.demand.Unreported.Minute
		if r.first == 0 {
			r.first = int64(d.verdict.At)
		}
		r.last = int64(d.verdict.At)
	}
	return r
}
