package redis

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// tape stands between gateways and Redis and writes down every quota decision.
type tape struct {
	lose atomic.Int64 // how many answers to script calls are still to be lost: their connections are closed instead

	addr   string
	target string
	shape  string // of the rule that all decisions must follow

	mu        sync.Mutex
	decisions []taped
	problems  []error
}

// taped is one demand as it went to Redis, and what came back.
type taped struct {
	key     string // names the tenant's record
	demand  quota.Demand
	verdict quota.Verdict
}

// newTape returns a tape of all decisions that the Redis at target (host:port) makes by this rule. It ends with the test.
func newTape(t testing.TB, target string, rule quota.Rule) *tape {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tape{addr: ln.Addr().String(), target: target, shape: newScript(nil, "", rule, "").shape}
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

// pass sends one command to Redis, notes its decisions and returns the reply.
func (p *tape) pass(rule quota.Rule, raw []byte, command []string, server net.Conn, replies *resp) ([]byte, error) {
	if _, err := server.Write(raw); err != nil {
		return nil, err
	}
	reply, err := replies.read()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if isScript(command) && len(reply) == 1 && replies.raw[0] == '$' {
		if err := p.note(rule, command, reply[0]); err != nil {
			p.problems = append(p.problems, err)
		}
	}
	return replies.raw, nil
}

func isScript(command []string) bool {
	verb := strings.ToLower(command[0])
	return verb == evalSHA || verb == eval
}

// note decodes a script call and its reply by the layout that take.lua documents, and puts the decisions on the tape.
func (p *tape) note(rule quota.Rule, command []string, reply string) error {
	n, err := strconv.Atoi(command[2])
	if err != nil || len(command) != 3+n+4 {
		return fmt.Errorf("a call with %d arguments for %q keys: the clock must be Redis's", len(command), command[2])
	}
	keys, shape, text, debts := command[3:3+n], command[3+n], command[4+n], command[5+n]
	if shape != p.shape || len(text) != n*demandBytes || len(debts) != 0 && len(debts) != n*debtBytes {
		return fmt.Errorf("%d keys, shape %x, %d bytes of demands, %d of debts", n, shape, len(text), len(debts))
	}
	demands, results := make([]store.Demand, n), make([]store.Result, n)
	for i := range demands {
		number := func(text string, k int) int64 {
			return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(text[8*k:]))))
		}
		d := &demands[i]
		d.Limits = plan.Limits{Minute: number(text, 6*i), Day: number(text, 6*i+1)}
		d.Want = number(text, 6*i+2)
		d.Known = quota.DayUse{Day: number(text, 6*i+3), Used: number(text, 6*i+4)}
		d.KnownMinute = number(text, 6*i+5)
		if debts != "" {
			d.Spent.Minute = number(debts, 3*i)
			d.Spent.Day = quota.DayUse{Day: number(debts, 3*i+1), Used: number(debts, 3*i+2)}
		}
	}
	if err := (&script{rule: rule}).read([]byte(reply), demands, results); err != nil {
		return err
	}
	for i, r := range results {
		if r.Err != nil {
			return r.Err
		}
		p.decisions = append(p.decisions, taped{key: keys[i], demand: demands[i].Quota(), verdict: r.Verdict})
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
	granted     map[string]int64 // by key
	want, calls int64
	spent       int64 // charged for outages
	first, last int64 // instants of Redis
}

// order sorts decisions as Redis made them. Within a millisecond, the order between tenants does not matter. A tenant's use only
// grows there, and a refusal does not change it, so its decisions are sorted by use.
func order(a, b taped) int {
	return cmp.Or(cmp.Compare(a.verdict.At, b.verdict.At), cmp.Compare(a.key, b.key),
		cmp.Compare(a.verdict.DayUse.Used, b.verdict.DayUse.Used), cmp.Compare(b.verdict.Granted, a.verdict.Granted))
}

// replay makes all decisions of the tape again, in Redis's order and at Redis's instants: once by the pure rule, and once by a
// naive list of admissions. Each verdict of the rule, and each number that the list grants, must be the same as Redis's.
func (p *tape) replay(t *testing.T, rule quota.Rule) replayed {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		t.Error(problem)
	}
	r := replayed{granted: map[string]int64{}, calls: int64(len(p.decisions))}
	records, lists := map[string]*quota.Record{}, map[string]*list{}
	slices.SortStableFunc(p.decisions, order)
	wrong := 0
	for i, d := range p.decisions {
		if records[d.key] == nil {
			records[d.key], lists[d.key] = new(quota.Record), new(list)
		}
		ruled := rule.Take(records[d.key], d.verdict.At, d.demand)
		listed := lists[d.key].take(rule, d.verdict.At, d.demand)
		if ruled != d.verdict || listed != d.verdict.Granted {
			if wrong++; wrong <= 10 {
				t.Errorf("decision %d, of %s on %+v:\nRedis %+v\nrule  %+v\nlist  %d granted",
					i, d.key, d.demand, d.verdict, ruled, listed)
			}
		}
		r.granted[d.key] += d.verdict.Granted
		r.want += d.demand.Want
		r.spent += d.demand.Spent.Minute
		if r.first == 0 {
			r.first = int64(d.verdict.At)
		}
		r.last = int64(d.verdict.At)
	}
	return r
}

// list is the naive rule: every admission, and when it was made.
type list []struct{ at, count int64 }

func (l *list) take(rule quota.Rule, now instant.Millis, d quota.Demand) int64 {
	*l = append(*l, struct{ at, count int64 }{int64(now), d.Spent.Minute})
	minute, day := d.Limits.Minute, d.Limits.Day
	slice, dayLong := rule.Slice.Milliseconds(), rule.Day.Milliseconds()
	for _, one := range *l {
		released := one.at - one.at%slice + slice + rule.Window().Milliseconds()
		if int64(now.Truncate(rule.Slice)) < released {
			minute -= one.count
		}
		if one.at/dayLong == int64(now)/dayLong {
			day -= one.count
		}
	}
	granted := max(0, min(d.Want, minute, day))
	*l = append(*l, struct{ at, count int64 }{int64(now), granted})
	*l = slices.DeleteFunc(*l, func(one struct{ at, count int64 }) bool { return one.count == 0 })
	return granted
}
