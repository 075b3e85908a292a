package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
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

	monthAt   = quota.SummaryBytes + 8 + 8 + 4 // behind the batch that charged the record last, and what it was granted
	slotBytes = monthAt + 16

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
		client: client, cluster: cluster, prefix: prefix, rule: rule, library: named(name), name: name, gateway: string(gateway[:]),
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
	dst = append(append(dst, r.prefix...), '{') // on a cluster, the braces put all records of a tenant into one slot
	return name.AppendTo(append(name.Tenant.AppendTo(dst), '}'))
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
	t, _ := r.trips.Get().(*trip)
	if t == nil {
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

// isSlotTrouble reports whether a cluster serves a slot nowhere at the moment, because the slot
// moves or nobody has it. The call was not executed. It concerns only the tenants of that slot.
func isSlotTrouble(err error) bool {
	return slices.ContainsFunc(
		[]string{"TRYAGAIN", "CLUSTERDOWN Hash slot", "ASK ", "MOVED "},
		func(prefix string) bool {
			return redis.HasErrorPrefix(err, prefix)
		},
	)
}

// isBroken reports whether a call's connection broke, so that it is unknown whether the call was
// executed. A timeout does not count: another attempt would take as long again.
func isBroken(ctx context.Context, err error) bool {
	return err != nil && isUnsure(err) && !isTimeout(err) && ctx.Err() == nil
}

// read decodes the script's reply.
func (r *script) read(reply []byte, demands []store.Demand, results []store.Result) error {
	head := replyHeadBytes + len(demands)*slotBytes
	if len(reply) < head {
		return fmt.Errorf("redis: the quota script replied %d bytes to %d demands", len(reply), len(demands))
	}
	now := instant.Millis(binary.LittleEndian.Uint64(reply))
	slots, remarks := reply[replyHeadBytes:head], reply[head:]
	for i := range demands {
		d, slot := &demands[i], slots[i*slotBytes:][:slotBytes]
		summary, month := slot[:quota.SummaryBytes], slot[monthAt:][:quota.MonthBytes]
		if binary.LittleEndian.Uint64(slot[monthAt+quota.MonthBytes:]) != 0 {
			month = nil // an earlier version has put something else there
		}
		asked := d.Quota()
		lacked, retrySlice := asked.Units(asked.Want), int64(0)
		remark, granted := byte(remarkNone), lacked/asked.Units(1)
		if len(remarks) >= remarkBytes && binary.LittleEndian.Uint32(remarks) == uint32(i) {
			lacked, remark, remarks = 0, remarks[4], remarks[remarkBytes:]
		}
		isLost := remark&remarkLost != 0
		if remark &^= remarkLost; remark == remarkLimited {
			if len(remarks) < limitedBytes {
				return fmt.Errorf("redis: the quota script's remark on demand %d is cut off", i)
			}
			granted = int64(binary.LittleEndian.Uint32(remarks)) / asked.Units(1)
			retrySlice = int64(binary.LittleEndian.Uint64(remarks[4:]))
			remarks = remarks[limitedBytes:]
		}
		var v quota.Verdict
		var err error
		switch remark {
		case remarkNone, remarkGranted, remarkLimited:
			v, err = r.rule.Verdict(summary, month, now, &asked, granted, retrySlice, lacked)
		case remarkWrongType, remarkWrongLength, remarkWrongVersion:
			problem := [...]string{
				remarkWrongType: "wrong type", remarkWrongLength: "wrong length", remarkWrongVersion: "wrong version",
			}[remark]
			err = fmt.Errorf("redis: %w under %s: %s", store.ErrRecord, r.appendKey(nil, &d.Name), problem)
		default:
			return fmt.Errorf("redis: the quota script remarked %d on demand %d", remark, i)
		}
		results[i] = store.Result{Verdict: v, Err: err, Lost: isLost}
	}
	if len(remarks) > 0 {
		return fmt.Errorf("redis: the quota script remarked %x on none of %d demands", remarks, len(demands))
	}
	return nil
}

// trip holds the memory of one trip to Redis. It is reused when the reply has been read. That is
// safe, because go-redis works in its caller's goroutine, or waits for its own goroutines, and
// keeps no reference to it.
type trip struct {
	text    []byte   // all keys, then all demands, unreported and months
	keyEnds []int    // in text, by demand
	keys    []string // by demand
	batch   string   // encoded for the script
	calls   []call
	reply   []byte
	cmds    []*redis.ZeroCopyStringCmd
}

// call is one call of the script, for the demands in [from, to).
type call struct {
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
		haveUnreported, haveMonths = haveUnreported || d.Unreported != (quota.Use{}), haveMonths || d.Limits.Month != 0
		if isSecond := i > 0 && demands[i-1].Joined; i == 0 || r.cluster && !isSecond {
			t.calls = append(t.calls, call{from: i})
		}
		t.calls[len(t.calls)-1].to = i + 1
	}
	for i := range demands {
		d := demands[i].Quota()
		units, cost := d.Units(d.Want), d.Units(1)
		if demands[i].Joined {
			units, cost = 0, -cost
		}
		t.text = appendNumbers(t.text, d.FitsBelow(quota.Minute), d.FitsBelow(quota.Day), units,
			d.Known.Day.Ends, int64(quota.Count(d.Known.Day.Used)), int64(quota.Count(d.Known.Minute)), cost)
	}
	unreported := len(t.text)
	for i := range demands {
		if s := &demands[i].Unreported; haveUnreported {
			t.text = appendNumbers(t.text, int64(quota.Count(s.Minute)), s.Day.Ends, int64(quota.Count(s.Day.Used)),
				s.Month.Ends, int64(quota.Count(s.Month.Used)))
		}
	}
	months := len(t.text)
	for i := range demands {
		if d := demands[i].Quota(); haveMonths {
			t.text = r.appendMonth(t.text, &d)
		}
	}
	monthsEnd := len(t.text)
	gateway := r.gateway
	if number == 0 {
		gateway = "\x00\x00\x00\x00\x00\x00\x00\x00"
	}
	t.text = append(appendNumbers(t.text, number), gateway...)
	text := string(t.text) // the only allocation for all of them
	begin := 0
	t.keys = t.keys[:0]
	for _, end := range t.keyEnds {
		t.keys = append(t.keys, text[begin:end])
		begin = end
	}
	for i := range t.calls {
		c := &t.calls[i]
		c.demands = text[begin+c.from*demandBytes : begin+c.to*demandBytes]
		if haveUnreported {
			c.unreported = text[unreported+c.from*unreportedBytes : unreported+c.to*unreportedBytes]
		}
		if haveMonths {
			c.months = text[months+c.from*monthBytes : months+c.to*monthBytes]
		}
	}
	t.batch = text[monthsEnd:]
	t.reply = slices.Grow(t.reply[:0], len(demands)*replyBytes)[:len(demands)*replyBytes]
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

// command returns a call.
func (t *trip) command(ctx context.Context, r *script, n int) *redis.ZeroCopyStringCmd {
	c := &t.calls[n]
	args := make([]any, 0, 8+c.to-c.from)
	args = append(args, "fcall", &r.name, c.to-c.from)
	for i := c.from; i < c.to; i++ {
		args = append(args, &t.keys[i]) // go-redis takes a pointer to a string without allocating
	}
	args = append(args, &c.demands, &t.batch)
	if isTest := r.now != nil; c.months != "" || c.unreported != "" ||
		isTest { // Redis makes an object of each argument, also of an empty one
		if args = append(args, &c.months); c.unreported != "" || isTest {
			args = append(args, &c.unreported)
		}
		if isTest {
			args = append(args, int64(r.now()))
		}
	}
	return redis.NewZeroCopyStringCmd(ctx, t.reply[c.from*replyBytes:c.to*replyBytes], args...)
}
