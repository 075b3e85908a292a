package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

//go:embed take.lua
var takeScript string

// Sizes in the script's arguments and reply. A reply is the instant, a summary for each demand, and
// remarks on some demands.
const (
	demandBytes     = 7 * 8
	unreportedBytes = 5 * 8
	monthBytes      = 5 * 8

	monthAt   = quota.SummaryBytes + 8 + 8 + 4 // behind the last batch, and what it was granted
	slotBytes = monthAt + 16                   // the month's last 8 bytes are zero

	replyHeadBytes = 8
	remarkBytes    = 4 + 1 // demand, remark
	limitedBytes   = 4 + 8 // granted, retry slice

	// replyBytes is the longest reply to one demand, with its line end.
	replyBytes = replyHeadBytes + slotBytes + remarkBytes + limitedBytes + 2
)

// The script's remarks on a demand: see take.lua.
const (
	remarkNone = iota
	remarkGranted
	remarkLimited
	remarkWrongType
	remarkWrongLength
	remarkWrongVersion

	remarkLost = 16 // is added to remarkGranted and remarkLimited
)

// libraryPrefix begins the names of libraries. Then follows a digest of the text: versions of
// Petgate that share a Redis have libraries of their own.
const libraryPrefix = "petgate_take_"

// library is the text of a library, by its name, the rule and take.lua. Redis runs it only once; it
// would run the text of a script in each call. While Redis loads a library, Lua has none of Redis's
// functions. So the first call runs take.lua.
const library = `#!lua name=%[1]s
local take
local function prepare()
local slice_ms, slices, day_ms = %[2]d, %[3]d, %[4]d
%[5]sreturn take
end
redis.register_function('%[1]s', function(keys, args)
  take = take or prepare()
  return take(keys, args)
end)
`

// script is the store of all gateways that share a Redis: one call of take.lua decides a whole
// batch. On a cluster there is one call per demand, or for two that are joined, in one pipeline.
// The client must not repeat calls by itself: a call without an answer may have charged.
type script struct {
	client  redis.UniversalClient
	cluster bool
	prefix  string
	rule    quota.Rule
	library string                // the text that Redis loads
	name    string                // of the library and of its function
	gateway string                // 8 random bytes: they name this process to the script
	now     func() instant.Millis // set only by tests; if nil, the script uses the clock of Redis
	trips   sync.Pool             // of *trip
}

func newScript(client redis.UniversalClient, prefix string, rule quota.Rule, text string) *script {
	named := func(name string) string {
		return fmt.Sprintf(library, name, rule.Slice.Milliseconds(), rule.Slices, rule.Day.Milliseconds(), text)
	}
	sum := sha256.Sum256([]byte(named("")))
	name := libraryPrefix + hex.EncodeToString(sum[:8])
	var gateway [8]byte
	_, _ = rand.Read(gateway[:]) // it never fails
	_, cluster := client.(*redis.ClusterClient)
	return &script{
		client:  client,
		cluster: cluster,
		prefix:  prefix,
		rule:    rule,
		library: named(name),
		name:    name,
		gateway: string(gateway[:]),
	}
}

// load sends the library to Redis.
func (r *script) load(ctx context.Context) error {
	err := onMasters(ctx, r.client, func(ctx context.Context, node *redis.Client) error {
		return node.FunctionLoadReplace(ctx, r.library).Err()
	})
	if err != nil {
		return fmt.Errorf("redis: load the quota script: %w", err)
	}
	return nil
}

// onMasters calls f for a single Redis, or for each master of a cluster.
func onMasters(ctx context.Context, client redis.UniversalClient, f func(context.Context, *redis.Client) error) error {
	switch client := client.(type) {
	case *redis.ClusterClient:
		return client.ForEachMaster(ctx, f)
	case *redis.Client:
		return f(ctx, client)
	}
	return nil // a test's store has no client
}

// appendKey appends the name of a record.
func (r *script) appendKey(dst []byte, name *store.Name) []byte {
	dst = append(dst, r.prefix...)
	dst = append(dst, '{') // on a cluster, the braces put all records of a tenant into one slot
	dst = name.Tenant.AppendTo(dst)
	dst = append(dst, '}')
	return name.AppendTo(dst)
}

// attemptsMax is how often a call is sent if Redis lacks the function, or the connection breaks.
const attemptsMax = 3

// DecideBatch implements Store. On a cluster, a result may also have an error because the tenant's
// own node could not be reached, or because no node serves its slot: that error does not wrap
// store.ErrRecord, and the results of other tenants are valid. If no node could be reached,
// DecideBatch returns one of the errors.
func (r *script) DecideBatch(ctx context.Context, number int64, demands []store.Demand, results []store.Result) error {
	if len(demands) == 0 {
		return nil
	}
	t, isReused := r.trips.Get().(*trip)
	if !isReused {
		t = new(trip)
	}
	defer r.trips.Put(t)
	t.pack(r, number, demands)
	r.send(ctx, t)
	failed := 0
	for i, cmd := range t.cmds {
		call, err := &t.calls[i], cmd.Err()
		if err == nil {
			err = r.read(cmd.Bytes(), demands[call.from:call.to], results[call.from:call.to])
		}
		if err != nil {
			for n := call.from; n < call.to; n++ {
				results[n] = store.Result{Err: fmt.Errorf("redis: decide quotas: %w", err)}
			}
			if !r.cluster || !isSlotTrouble(err) {
				failed++
			}
		}
	}
	if failed == len(t.calls) {
		return results[0].Err
	}
	return nil
}

// send makes the calls of a trip. A call is made again if Redis lacks the function, for example
// after a flush or a fail-over, or if its connection breaks. Each command has its own error.
func (r *script) send(ctx context.Context, t *trip) {
	t.cmds = t.cmds[:0]
	for i := range t.calls {
		t.cmds = append(t.cmds, t.command(ctx, r, i))
	}
	r.process(ctx, t.cmds)
	var unloadable error
	for range attemptsMax - 1 {
		var again []*redis.ZeroCopyStringCmd
		isMissing := false
		for i, cmd := range t.cmds {
			err := cmd.Err()
			lacks := err != nil && redis.HasErrorPrefix(err, "Function not found")
			switch {
			case lacks && unloadable != nil:
				cmd.SetErr(unloadable) // which says more
			case lacks || isBroken(ctx, err):
				isMissing = isMissing || lacks
				t.cmds[i] = t.command(ctx, r, i)
				again = append(again, t.cmds[i])
			}
		}
		if again == nil {
			return
		}
		if isMissing {
			unloadable = r.load(ctx)
		}
		r.process(ctx, again)
	}
}

// process sends commands, to a cluster in one pipeline.
func (r *script) process(ctx context.Context, cmds []*redis.ZeroCopyStringCmd) {
	if !r.cluster {
		_ = r.client.Process(ctx, cmds[0])
		return
	}
	pipe := r.client.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd) // only queued here
	}
	_, _ = pipe.Exec(ctx)
}

// read decodes the script's reply.
func (r *script) read(reply []byte, demands []store.Demand, results []store.Result) error {
	head := replyHeadBytes + len(demands)*slotBytes
	if len(reply) < head {
		return fmt.Errorf("redis: the quota script replied %d bytes to %d demands", len(reply), len(demands))
	}
	now := instant.Millis(binary.LittleEndian.Uint64(reply))
	slots, left := reply[replyHeadBytes:head], remarks(reply[head:])
	for i := range demands {
		remark, err := left.on(i)
		if err != nil {
			return err
		}
		asked := demands[i].Quota()
		v, err := remark.verdict(r.rule, slots[i*slotBytes:][:slotBytes], now, &asked)
		if errors.Is(err, store.ErrRecord) {
			err = fmt.Errorf("redis: under %s: %w", r.appendKey(nil, &demands[i].Name), err)
		}
		results[i] = store.Result{Verdict: v, Err: err, Lost: remark.isLost}
	}
	if len(left) > 0 {
		return fmt.Errorf("redis: the quota script remarked %x on none of %d demands", left, len(demands))
	}
	return nil
}

// remarks are those of a reply that are not read yet.
type remarks []byte

// remark is what the script says of one demand.
type remark struct {
	kind       byte
	isLost     bool  // the record had less use of the day or month than the gateway knows
	units      int64 // granted; only of remarkLimited
	retrySlice int64 // see quota.Rule.Verdict; only of remarkLimited
}

// on reads the remark on a demand. If the next one is on a later demand, it is remarkNone.
func (r *remarks) on(demand int) (m remark, err error) {
	rest := *r
	if len(rest) < remarkBytes || binary.LittleEndian.Uint32(rest) != uint32(demand) {
		return m, nil
	}
	m.kind = rest[4] &^ remarkLost
	m.isLost = rest[4] != m.kind
	rest = rest[remarkBytes:]
	if m.kind == remarkLimited {
		if len(rest) < limitedBytes {
			return m, fmt.Errorf("redis: the quota script's remark on demand %d is cut off", demand)
		}
		m.units = int64(binary.LittleEndian.Uint32(rest))
		m.retrySlice = int64(binary.LittleEndian.Uint64(rest[4:]))
		rest = rest[limitedBytes:]
	}
	*r = rest
	return m, nil
}

// verdict returns the verdict on a demand from its slot of the reply: the record's summary, the
// last batch and the month. Without a remark, the summary is from before the grant.
func (m remark) verdict(
	rule quota.Rule, slot []byte, now instant.Millis, asked *quota.Demand,
) (v quota.Verdict, err error) {
	summary, month := slot[:quota.SummaryBytes], slot[monthAt:][:quota.MonthBytes]
	wanted, cost := asked.Units(asked.Want), asked.Units(1)
	switch m.kind {
	case remarkNone:
		return rule.Verdict(summary, month, now, asked, wanted/cost, 0, wanted)
	case remarkGranted:
		return rule.Verdict(summary, month, now, asked, wanted/cost, 0, 0)
	case remarkLimited:
		return rule.Verdict(summary, month, now, asked, m.units/cost, m.retrySlice, 0)
	case remarkWrongType:
		return v, fmt.Errorf("%w: wrong type", store.ErrRecord)
	case remarkWrongLength:
		return v, fmt.Errorf("%w: wrong length", store.ErrRecord)
	case remarkWrongVersion:
		return v, fmt.Errorf("%w: wrong version", store.ErrRecord)
	}
	return v, fmt.Errorf("redis: the quota script remarked %d", m.kind)
}

// trip holds the memory of one trip to Redis. It is reused when the reply has been read. That is
// safe, because go-redis works in its caller's goroutine, or waits for its own goroutines, and
// keeps no reference to it.
type trip struct {
	text    []byte   // all keys, then all demands, unreported and months
	keyEnds []int    // in text, by demand
	keys    []string // by demand
	batch   string   // encoded for the script
	calls   []tripCall
	reply   []byte
	cmds    []*redis.ZeroCopyStringCmd
}

// tripCall is one call of the script, for the demands in [from, to).
type tripCall struct {
	from, to                    int
	demands, unreported, months string // encoded for the script
}

// pack encodes demands into the script's keys and arguments.
func (t *trip) pack(r *script, number int64, demands []store.Demand) {
	t.text, t.keyEnds, t.calls = t.text[:0], t.keyEnds[:0], t.calls[:0]
	haveUnreported, haveMonths := false, false
	for i := range demands {
		d := &demands[i]
		t.text = r.appendKey(t.text, &d.Name)
		t.keyEnds = append(t.keyEnds, len(t.text))
		haveUnreported = haveUnreported || d.Unreported != (quota.Use{})
		haveMonths = haveMonths || d.Limits.Month != 0
		isSecond := i > 0 && demands[i-1].Joined
		if i == 0 || r.cluster && !isSecond {
			t.calls = append(t.calls, tripCall{from: i})
		}
		t.calls[len(t.calls)-1].to = i + 1
	}
	for i := range demands {
		d := demands[i].Quota()
		t.text = appendDemand(t.text, &d, demands[i].Joined)
	}
	unreportedAt := len(t.text)
	for i := range demands {
		if haveUnreported {
			t.text = appendUnreported(t.text, &demands[i].Unreported)
		}
	}
	monthsAt := len(t.text)
	for i := range demands {
		if d := demands[i].Quota(); haveMonths {
			t.text = r.appendMonth(t.text, &d)
		}
	}
	batchAt := len(t.text)
	gateway := r.gateway
	if number == 0 {
		gateway = "\x00\x00\x00\x00\x00\x00\x00\x00"
	}
	t.text = append(appendNumbers(t.text, number), gateway...)

	text := string(t.text) // the only allocation for all of them
	demandsAt := 0
	t.keys = t.keys[:0]
	for _, end := range t.keyEnds {
		t.keys = append(t.keys, text[demandsAt:end])
		demandsAt = end
	}
	for i := range t.calls {
		c := &t.calls[i]
		c.demands = text[demandsAt+c.from*demandBytes : demandsAt+c.to*demandBytes]
		if haveUnreported {
			c.unreported = text[unreportedAt+c.from*unreportedBytes : unreportedAt+c.to*unreportedBytes]
		}
		if haveMonths {
			c.months = text[monthsAt+c.from*monthBytes : monthsAt+c.to*monthBytes]
		}
	}
	t.batch = text[batchAt:]
	t.reply = slices.Grow(t.reply[:0], len(demands)*replyBytes)[:len(demands)*replyBytes]
}

// appendDemand appends a demand. If it is joined, its record is a key's own: the script grants it
// what it grants the next demand.
func appendDemand(dst []byte, d *quota.Demand, isJoined bool) []byte {
	units, cost := d.Units(d.Want), d.Units(1)
	if isJoined {
		units, cost = 0, -cost
	}
	day, knownDay, knownMinute := d.Known.Day.Ends, quota.Count(d.Known.Day.Used), quota.Count(d.Known.Minute)
	return appendNumbers(dst, d.FitsBelow(quota.Minute), d.FitsBelow(quota.Day), units,
		day, int64(knownDay), int64(knownMinute), cost)
}

func appendUnreported(dst []byte, u *quota.Use) []byte {
	minute, day, month := quota.Count(u.Minute), quota.Count(u.Day.Used), quota.Count(u.Month.Used)
	return appendNumbers(dst, int64(minute), u.Day.Ends, int64(day), u.Month.Ends, int64(month))
}

// appendMonth appends the month of a demand. The first beginning is in the 16 days before this
// gateway's day, or up to 15 days after it.
func (r *script) appendMonth(dst []byte, d *quota.Demand) []byte {
	if d.Limits.Month == 0 {
		return appendNumbers(dst, 0, 0, 0, 0, 0)
	}
	now := instant.Of(time.Now())
	if r.now != nil {
		now = r.now()
	}
	begins := quota.MonthEnd(int64(now)/r.rule.Day.Milliseconds()-16, d.MonthStarts)
	return appendNumbers(dst, d.FitsBelow(quota.Month), begins, quota.MonthEnd(begins, d.MonthStarts),
		d.Known.Month.Ends, int64(quota.Count(d.Known.Month.Used)))
}

// appendNumbers appends numbers as doubles, which the script reads. All counts and days that occur
// are exact in a double.
func appendNumbers(dst []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(n)))
	}
	return dst
}

// command returns a call. Redis makes an object of each argument, also of an empty one, so those
// at the end are left out.
func (t *trip) command(ctx context.Context, r *script, n int) *redis.ZeroCopyStringCmd {
	c := &t.calls[n]
	args := make([]any, 0, 8+c.to-c.from)
	args = append(args, "fcall", &r.name, c.to-c.from)
	for i := c.from; i < c.to; i++ {
		args = append(args, &t.keys[i]) // go-redis takes a pointer to a string without allocating
	}
	args = append(args, &c.demands, &t.batch)
	isTest := r.now != nil
	if isTest || c.months != "" || c.unreported != "" {
		args = append(args, &c.months)
	}
	if isTest || c.unreported != "" {
		args = append(args, &c.unreported)
	}
	if isTest {
		args = append(args, int64(r.now()))
	}
	return redis.NewZeroCopyStringCmd(ctx, t.reply[c.from*replyBytes:c.to*replyBytes], args...)
}
