package limitstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"petgate/shared/core/id"
	"petgate/shared/core/quota"
)

//go:embed take.lua
var takeScript string

// errRecord is wrapped by errors that concern one tenant's record and nobody else's.
var errRecord = errors.New("not a quota record")

// The reply's layout: the instant, then a slot for each demand, which ends with the record's summary.
const (
	replyHeadBytes = 8
	slotHeadBytes  = 1 + 4 + 8 // status, granted, retry slice
	slotBytes      = slotHeadBytes + quota.SummaryBytes
	replyBytes     = replyHeadBytes + slotBytes + 2 // room for a reply to one demand and its line end

	demandBytes = 8 * 4
)

// The two ways to call a script: by its digest, or, when Redis does not have it, by its text, which it then keeps.
const (
	evalSHA = "evalsha"
	eval    = "eval"
)

// redisScript is the backend of all gateways that share a Redis: one script call decides a whole batch. On a cluster it
// is one call a tenant, in one pipeline. The client must not repeat calls on its own: what timed out may have charged.
type redisScript struct {
	client  redis.UniversalClient
	cluster bool
	prefix  string
	rule    quota.Rule
	shape   string // the rule as the script takes it
	body    string
	sha     string
	now     func() int64 // nil but in tests: the script asks Redis for the time
	trips   sync.Pool    // of *trip
}

func newRedisScript(client redis.UniversalClient, prefix string, rule quota.Rule) *redisScript {
	return newScript(client, prefix, rule, takeScript)
}

func newScript(client redis.UniversalClient, prefix string, rule quota.Rule, body string) *redisScript {
	sha := sha1.Sum([]byte(body))
	_, cluster := client.(*redis.ClusterClient)
	var shape []byte
	for _, n := range [...]int64{rule.Slice.Milliseconds(), int64(rule.Slices), rule.Day.Milliseconds()} {
		shape = binary.LittleEndian.AppendUint32(shape, uint32(n))
	}
	return &redisScript{
		client: client, cluster: cluster, prefix: prefix, rule: rule, shape: string(shape),
		body: body, sha: hex.EncodeToString(sha[:]),
	}
}

// preload gives Redis the script ahead of the first decision. Without it, and whenever Redis has lost the script to a
// restart, a flush or a fail-over, the next decision carries it along.
func (r *redisScript) preload(ctx context.Context) error {
	load := func(ctx context.Context, node *redis.Client) error { return node.ScriptLoad(ctx, r.body).Err() }
	var err error
	switch client := r.client.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, load)
	default:
		err = client.ScriptLoad(ctx, r.body).Err()
	}
	if err != nil {
		return fmt.Errorf("limitstore: load the quota script: %w", err)
	}
	return nil
}

// forget drops a tenant's record: its quota starts anew.
func (r *redisScript) forget(ctx context.Context, t id.Tenant) error {
	if err := r.client.Del(ctx, string(r.appendKey(nil, t))).Err(); err != nil {
		return fmt.Errorf("limitstore: reset the quota of %s: %w", t, err)
	}
	return nil
}

// appendKey appends the name of a tenant's record. Braces keep all of a tenant's names in one slot of a cluster.
func (r *redisScript) appendKey(dst []byte, t id.Tenant) []byte {
	dst = append(append(dst, r.prefix...), '{')
	return append(t.AppendTo(dst), '}')
}

// decide decides all demands in one trip. On a cluster, a result's error may also be that the tenant's own node could
// not be reached: then it does not wrap errRecord, and other tenants' results stand.
func (r *redisScript) decide(ctx context.Context, demands []demand, results []result) error {
	if len(demands) == 0 {
		return nil
	}
	t, _ := r.trips.Get().(*trip)
	if t == nil {
		t = new(trip)
	}
	defer r.trips.Put(t)
	t.pack(r, demands)
	if r.cluster {
		return r.decideEach(ctx, t, demands, results)
	}
	reply, err := r.decideAll(ctx, t, len(demands))
	if err != nil {
		return fmt.Errorf("limitstore: decide %d quotas: %w", len(demands), err)
	}
	return r.read(reply, demands, results)
}

// decideAll makes one call for all n demands.
func (r *redisScript) decideAll(ctx context.Context, t *trip, n int) ([]byte, error) {
	cmd := t.command(ctx, r, evalSHA, 0, n)
	err := r.client.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = t.command(ctx, r, eval, 0, n)
		err = r.client.Process(ctx, cmd)
	}
	return cmd.Bytes(), err
}

// decideEach makes one call for each demand, since a call on a cluster may only touch one slot.
func (r *redisScript) decideEach(ctx context.Context, t *trip, demands []demand, results []result) error {
	t.cmds = t.cmds[:0]
	pipe := r.client.Pipeline()
	for i := range demands {
		t.cmds = append(t.cmds, t.command(ctx, r, evalSHA, i, i+1))
		_ = pipe.Process(ctx, t.cmds[i]) // only queued here
	}
	_, _ = pipe.Exec(ctx) // its error is one of the commands'
	for i, cmd := range t.cmds {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			t.cmds[i] = t.command(ctx, r, eval, i, i+1)
			_ = pipe.Process(ctx, t.cmds[i])
		}
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx)
	}
	failed := 0
	for i, cmd := range t.cmds {
		err := cmd.Err()
		if err == nil {
			err = r.read(cmd.Bytes(), demands[i:i+1], results[i:i+1])
		}
		if err != nil {
			results[i] = result{Err: fmt.Errorf("limitstore: decide the quota of %s: %w", demands[i].Tenant, err)}
			failed++
		}
	}
	if failed == len(demands) {
		return results[0].Err
	}
	return nil
}

// read takes the script's reply apart.
func (r *redisScript) read(reply []byte, demands []demand, results []result) error {
	if len(reply) != replyHeadBytes+len(demands)*slotBytes {
		return fmt.Errorf("limitstore: the quota script replied %d bytes to %d demands", len(reply), len(demands))
	}
	now := int64(binary.LittleEndian.Uint64(reply))
	for i := range demands {
		slot := reply[replyHeadBytes+i*slotBytes:][:slotBytes]
		if slot[0] != 0 {
			problem := [...]string{1: "wrong type", 2: "wrong length", 3: "wrong version"}[slot[0]]
			results[i] = result{Err: fmt.Errorf("limitstore: %w under %s: %s",
				errRecord, r.appendKey(nil, demands[i].Tenant), problem)}
			continue
		}
		granted := int64(binary.LittleEndian.Uint32(slot[1:]))
		retrySlice := int64(binary.LittleEndian.Uint64(slot[5:]))
		v, err := r.rule.Verdict(slot[slotHeadBytes:], now, demands[i].Limits, granted, retrySlice)
		results[i] = result{Verdict: v, Err: err}
	}
	return nil
}

// trip holds the memory of one trip to Redis. It serves the next one as soon as the reply has been read: go-redis works
// in its caller's goroutine, or waits for its own, and keeps nothing.
type trip struct {
	text    []byte   // all keys, then all demands
	keys    []string // by demand
	demands []string // by call, as the script takes them
	reply   []byte
	cmds    []*redis.ZeroCopyStringCmd
}

// pack makes the script's keys and arguments of demands.
func (t *trip) pack(r *redisScript, demands []demand) {
	t.text, t.keys, t.demands = t.text[:0], t.keys[:0], t.demands[:0]
	for i := range demands {
		t.text = r.appendKey(t.text, demands[i].Tenant)
	}
	keyBytes := len(t.text) / len(demands)
	for i := range demands {
		d := &demands[i]
		for _, n := range [...]uint32{
			uint32(quota.Limit(d.Limits.Minute)), uint32(quota.Limit(d.Limits.Day)), uint32(quota.Limit(d.Want)),
			dayIndex(d.Known), quota.Count(d.Known.Used),
			quota.Count(d.Spent.Minute), dayIndex(d.Spent.Day), quota.Count(d.Spent.Day.Used),
		} {
			t.text = binary.LittleEndian.AppendUint32(t.text, n)
		}
	}
	text := string(t.text) // the only allocation for all keys and demands
	for range demands {
		t.keys, text = append(t.keys, text[:keyBytes]), text[keyBytes:]
	}
	callBytes := len(text)
	if r.cluster {
		callBytes = demandBytes
	}
	for ; text != ""; text = text[callBytes:] {
		t.demands = append(t.demands, text[:callBytes])
	}
	t.reply = slices.Grow(t.reply[:0], len(demands)*replyBytes)[:len(demands)*replyBytes]
}

// dayIndex is a day as the script takes it. No decision was ever made on a day before 1970 or far in the future: such a
// day becomes one that no clock shows.
func dayIndex(d quota.DayUse) uint32 {
	if d.Day < 0 || d.Day > math.MaxUint32 {
		return math.MaxUint32
	}
	return uint32(d.Day)
}

// command calls the script, by its digest or by its whole text, for the demands in [from, to).
func (t *trip) command(ctx context.Context, r *redisScript, verb string, from, to int) *redis.ZeroCopyStringCmd {
	script := &r.sha
	if verb == eval {
		script = &r.body
	}
	args := make([]any, 0, 6+to-from)
	args = append(args, verb, script, to-from)
	for i := from; i < to; i++ {
		args = append(args, &t.keys[i]) // go-redis takes a pointer to a string without allocating
	}
	args = append(args, &r.shape, &t.demands[from])
	if r.now != nil {
		args = append(args, r.now())
	}
	return redis.NewZeroCopyStringCmd(ctx, t.reply[from*replyBytes:to*replyBytes], args...)
}
