package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// always is a context that does not end.
var always = context.Background()

// dialRedis connects to a real Redis and returns a key prefix of the test's own.
func dialRedis(t testing.TB, opts ...func(*redis.Options)) (*redis.Client, string) {
	t.Helper()
	url, prefix := testkit.Redis(t)
	options := must.Get[*redis.Options](t)(redis.ParseURL(url))
	options.MaxRetries = -1
	for _, set := range opts {
		set(options)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client, prefix
}

// errDiffers is wrapped by errors that report a difference. Other errors mean that the comparison
// could not be made.
var errDiffers = errors.New("the script differs")

// pair is the rule in Go and in Lua, under one clock that the test sets.
type pair struct {
	rule   quota.Rule
	now    instant.Millis
	golang map[store.Name]*quota.Record
	lua    *script
	number int64 // of the last batch
}

func newPair(client redis.UniversalClient, prefix string, rule quota.Rule, body string, now instant.Millis) *pair {
	p := &pair{rule: rule, now: now, lua: newScript(client, prefix, rule, body), golang: map[store.Name]*quota.Record{}}
	p.lua.now = func() instant.Millis { return p.now }
	return p
}

// decideByLanes lets Lua decide each demand in a batch of its own, which is sent twice: the second
// time, it must get the same verdicts and charge nothing. Batches of different tenants are sent at
// the same time.
func (p *pair) decideByLanes(demands []store.Demand, results []store.Result) error {
	places := map[id.Tenant][]int{}
	for i, d := range demands {
		if i == 0 || !demands[i-1].Joined {
			places[d.Tenant] = append(places[d.Tenant], i)
		}
	}
	var all errgroup.Group
	first := p.number + 1
	p.number += int64(len(demands))
	for _, own := range places {
		all.Go(func() error {
			for _, i := range own {
				end := i + 1
				if demands[i].Joined {
					end++
				}
				batch, again := demands[i:end], make([]store.Result, end-i)
				for _, to := range [][]store.Result{results[i:end], again} {
					if err := p.lua.DecideBatch(always, first+int64(i), batch, to); err != nil {
						return err
					}
				}
				for n, once := range results[i:end] {
					if again[n].Verdict != once.Verdict || again[n].Err != once.Err {
						return fmt.Errorf("%w for a batch that is sent again (-once +again):\n%s", errDiffers,
							cmp.Diff(once, again[n]))
					}
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// step gives the same demands to Go and Lua, in one batch or by several lanes. Its error says how
// their verdicts or their records differ.
func (p *pair) step(demands []store.Demand, byLanes bool) ([]store.Result, error) {
	inGo, inLua := make([]store.Result, len(demands)), make([]store.Result, len(demands))
	for i := range demands {
		if d := &demands[i]; d.Joined {
			p.takeBoth(demands[i:i+2], inGo[i:i+2])
		} else if i == 0 || !demands[i-1].Joined {
			inGo[i] = p.take(d)
		}
	}
	decide := func() error { return p.lua.Decide(always, demands, inLua) }
	if byLanes {
		decide = func() error { return p.decideByLanes(demands, inLua) }
	}
	if err := decide(); err != nil {
		return nil, err
	}
	if !slices.Equal(inGo, inLua) {
		return nil, fmt.Errorf("%w in their verdicts (-go +lua):\n%s", errDiffers, cmp.Diff(inGo, inLua))
	}
	read := p.lua.client.Pipeline()
	records, left := make([]*redis.StringCmd, len(demands)), make([]*redis.DurationCmd, len(demands))
	for i := range demands {
		key := string(p.lua.appendKey(nil, &demands[i].Name))
		records[i], left[i] = read.Get(always, key), read.PTTL(always, key)
		read.ExpireGT(always, key, time.Hour) // Redis expires by its own clock, which may be faster than the test's
	}
	if _, err := read.Exec(always); err != nil && err != redis.Nil {
		return nil, err
	}
	for i := range demands {
		var want string
		if rec := p.golang[demands[i].Name]; rec != nil {
			want = string(p.rule.Append(nil, rec))
		}
		got := records[i].Val()
		// The month is behind the last batch, and the rule does not know what follows.
		if at := p.rule.RecordBytes(); got != "" {
			month := strings.TrimSuffix(got[at+20:][:quota.MonthBytes], strings.Repeat("\x00", quota.MonthBytes))
			got = got[:at] + month
		}
		if got != want {
			return nil, fmt.Errorf("%w in the record:\ngo  %x\nlua %x", errDiffers, want, got)
		}
		if got != "" && left[i].Val() <= 0 {
			return nil, fmt.Errorf("%w from what is wanted: a record that never expires", errDiffers)
		}
	}
	return inGo, nil
}

// take decides by the rule in Go. A record that counts nothing is not kept.
func (p *pair) take(d *store.Demand) store.Result {
	rec, isLost := p.record(d)
	v := p.rule.Take(rec, p.now, d.Quota())
	p.keep(d, rec)
	return store.Result{Verdict: v, Lost: isLost}
}

// takeBoth decides joined demands.
func (p *pair) takeBoth(demands []store.Demand, results []store.Result) {
	own, lostOwn := p.record(&demands[0])
	rec, isLost := p.record(&demands[1])
	ofKey, ofTenant := p.rule.TakeBoth(own, rec, p.now, demands[0].Quota(), demands[1].Quota())
	p.keep(&demands[0], own)
	p.keep(&demands[1], rec)
	results[0], results[1] = store.Result{Verdict: ofKey, Lost: lostOwn}, store.Result{Verdict: ofTenant, Lost: isLost}
}

// record returns the record of a demand, brought to now, and whether it has less use than is known.
func (p *pair) record(d *store.Demand) (rec *quota.Record, isLost bool) {
	rec = p.golang[d.Name]
	if rec == nil {
		rec = new(quota.Record)
	}
	v := p.rule.Take(rec, p.now, quota.Demand{Limits: d.Limits, MonthStarts: d.MonthStarts})
	use := p.rule.UseOf(&v)
	less := func(p, known quota.Period) bool {
		return known.Ends == p.Ends && int64(quota.Count(known.Used)) > p.Used
	}
	isLost = less(use.Day, d.Known.Day)
	if isLost {
		use.Month.Used += int64(quota.Count(d.Known.Day.Used)) - use.Day.Used
	}
	return rec, isLost || d.Limits.Month != 0 && less(use.Month, d.Known.Month)
}

func (p *pair) keep(d *store.Demand, rec *quota.Record) {
	if !rec.IsUnused() {
		p.golang[d.Name] = rec
	}
}

// lose drops a tenant's record in both, as a flush does.
func (p *pair) lose(d store.Demand) error {
	delete(p.golang, d.Name)
	return p.lua.client.Del(always, p.lua.keyOf(d)).Err()
}

// walk takes random steps with p until Go and Lua differ, and returns that difference.
func walk(p *pair, random *rand.Rand, steps int) error {
	limits := []plan.Limits{
		{Minute: 60, Day: 1000},
		{Minute: 300, Day: 10_000},
		{Minute: 5, Day: 40},
		{Minute: 1, Day: 1},
		{Minute: 60, Day: 70},
		{Minute: plan.LimitMax, Day: plan.LimitMax},
		{Minute: 3},
		{Minute: 40, Month: 300},
		{Month: 200},
		{Minute: 60, Day: 500, Month: 900},
		{Day: 90, Month: plan.LimitMax},
		{Minute: 1<<32 + 5, Day: 1<<32 + 5},
		{Minute: -1, Day: 10},
		{},
	}
	caps := []plan.Limits{{Minute: 10}, {Minute: 4, Day: 50}, {Day: 200}, {Minute: 500, Day: 5000}}
	costs := []int64{0, 1, 1, 1, 2, 5, 50, 1000}
	wants := []int64{0, 1, 1, 1, 2, 7, 30, 200, 2 * plan.LimitMax, -1}
	huge := []int64{-1, math.MaxUint32 - 1, math.MaxUint32, 1 << 40, math.MaxInt64}
	pick := func(from []int64) int64 { return from[random.IntN(len(from))] }
	slice, window, day := p.rule.Slice.Milliseconds(), p.rule.Window().Milliseconds(), p.rule.Day.Milliseconds()
	move := func(ms int64) { p.now += instant.Millis(ms) }
	forward := []int64{0, 0, 1, slice - 1, slice, slice + 1, 2 * slice, window / 10, window - 1, window, window + slice}
	const tenants = 4
	known := map[store.Name]quota.Use{}
	lastDay := func() int64 { return int64(p.now)/day + 1 }
	var held [tenants]plan.Limits
	var since [tenants]instant.Millis
	for n := range held {
		held[n] = limits[0]
	}
	for i := range steps {
		switch random.IntN(40) {
		case 0: // a clock that steps back, a little or a lot
			move(-random.Int64N(quota.Ahead.Milliseconds() + slice))
		case 1:
			move(-random.Int64N(window + day/100))
		case 2: // around midnight
			move(day - int64(p.now)%day + random.Int64N(4*slice) - 2*slice)
		case 3:
			move(random.Int64N(2 * day))
		case 6: // about the beginning of a month, or in another one
			begins := quota.MonthEnd(int64(p.now)/day, uint8(random.IntN(3)*7)) + random.Int64N(2)*random.Int64N(40)
			move(begins*day - int64(p.now) + random.Int64N(4*slice) - 2*slice)
		case 4: // to the first millisecond of the next slice
			move(slice - int64(p.now)%slice)
		case 5: // so far back that a record written now is exactly Ahead in the future
			move(-int64(p.now)%slice - quota.Ahead.Milliseconds())
		default:
			move(pick(forward)*random.Int64N(2) + random.Int64N(slice))
		}
		var demands []store.Demand
		for range 1 + random.IntN(tenants) {
			n := random.IntN(tenants)
			if random.IntN(8) == 0 {
				held[n] = limits[random.IntN(len(limits))]
			}
			if i%1000 == 999 { // the tenant's usage is reset
				since[n] = since[n]*10 + 1
			}
			d := store.Demand{
				Request: store.Request{
					Name:        store.Name{Tenant: tenantNo(n), Since: since[n]},
					Limits:      held[n],
					MonthStarts: uint8(n * 7),
					Cost:        pick(costs),
				},
				Want: pick(wants),
			}
			if random.IntN(50) == 0 {
				d.MonthStarts = uint8(random.IntN(29))
			}
			d.Known = known[d.Name]
			d.Known.Minute = random.Int64N(2) * random.Int64N(200)
			today := int64(p.now) / day
			period := func(ends, used int64) quota.Period { return quota.Period{Ends: ends, Used: used} }
			month := quota.MonthEnd(today, d.MonthStarts)
			switch random.IntN(30) {
			case 0:
				d.Known.Day = period(lastDay()+random.Int64N(3)-1, random.Int64N(100))
				d.Known.Month = period(month-random.Int64N(2), random.Int64N(400))
			case 1:
				d.Unreported = quota.Use{
					Minute: random.Int64N(80), Day: period(lastDay()-random.Int64N(2), random.Int64N(200)),
					Month: period(month-random.Int64N(2), random.Int64N(300)),
				}
			case 2:
				if random.IntN(10) == 0 {
					d.Unreported = quota.Use{
						Minute: pick(huge),
						Day:    period(lastDay(), pick(huge)),
						Month:  period(month, pick(huge)),
					}
				}
			case 3:
				if random.IntN(10) == 0 {
					d.Known = quota.Use{
						Minute: pick(huge),
						Day:    period(max(pick(huge), lastDay()), pick(huge)),
						Month:  period(month, pick(huge)),
					}
				}
			}
			if random.IntN(20) == 0 {
				d.Known.Month = period(month, d.Known.Month.Used+random.Int64N(5))
			}
			if random.IntN(4) == 0 {
				own := d
				own.Key, own.Limits, own.Joined = id.Key{byte(random.IntN(2) + 1)}, caps[random.IntN(len(caps))], true
				own.Known, own.Unreported = known[own.Name], quota.Use{Minute: d.Unreported.Minute / 2}
				demands = append(demands, own)
			}
			demands = append(demands, d)
		}
		if random.IntN(100) == 0 {
			if err := p.lose(demands[0]); err != nil {
				return err
			}
		}
		results, err := p.step(demands, i%4 != 0)
		if err != nil {
			return fmt.Errorf("step %d at %d, %+v: %w", i, p.now, demands, err)
		}
		for j, d := range demands {
			known[d.Name] = p.rule.UseOf(&results[j].Verdict)
		}
	}
	return nil
}

// smallRule makes every edge of the ring frequent.
var smallRule = quota.Rule{Slice: 100 * time.Millisecond, Slices: 7, Day: time.Hour}

// compare compares a script with the rule. Random steps with a clock of the test check its
// arithmetic. One decision without that clock checks that the script uses the clock of Redis.
func compare(
	client redis.UniversalClient, prefix, body string, localClock func() instant.Millis, seed uint64, steps int,
) error {
	if err := compareClock(client, prefix+"clock:", body, localClock); err != nil {
		return err
	}
	for i, rule := range []quota.Rule{quota.Product, smallRule} {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		p := newPair(client, fmt.Sprint(prefix, "rule", i, ":"), rule, body, epoch)
		if err := walk(p, random, steps/2); err != nil {
			return fmt.Errorf("seed %d, rule %+v: %w", seed, rule, err)
		}
	}
	return nil
}

// compareClock checks that a decision is dated by the clock of Redis, whatever this machine's clock
// says.
func compareClock(client redis.UniversalClient, prefix, body string, localClock func() instant.Millis) error {
	s := newScript(client, prefix, quota.Product, body)
	s.now = localClock
	before, err := client.Time(always).Result()
	if err != nil {
		return err
	}
	var results [1]store.Result
	ask := store.Request{Name: store.Name{Tenant: tenantNo(1)}, Limits: plan.Limits{Minute: 1, Day: 1}}
	if err := s.Decide(always, []store.Demand{{Request: ask, Want: 1}}, results[:]); err != nil {
		return err
	}
	after, err := client.Time(always).Result()
	if err != nil {
		return err
	}
	if at := results[0].Verdict.At; at < instant.Of(before) || at > instant.Of(after) {
		return fmt.Errorf("%w in the clock: decided at %d, while Redis's went from %d to %d",
			errDiffers, at, instant.Of(before), instant.Of(after))
	}
	return nil
}

// TestDifferential compares the Lua script on a real Redis with the rule in Go: verdicts are equal,
// and records are equal in every byte.
func TestDifferential(t *testing.T) {
	t.Parallel()
	steps := 10_000
	if testkit.FullSize {
		steps = 100_000
	}
	client, prefix := dialRedis(t)
	seed := rand.Uint64()
	must.Do(t, compare(client, prefix, takeScript, nil, seed, steps))
	must.Do(t, compare(dialCluster(t), "differential:", takeScript, nil, seed, steps/10))
	t.Logf("differential: %d random steps, seed %d: Go and Lua agree in every verdict and every record", steps, seed)
}

// TestMutants breaks the script on purpose. If the comparison missed one of these faults, it would
// also miss the same fault in the real script.
func TestMutants(t *testing.T) {
	t.Parallel()
	const steps = 20_000
	skewed := func() instant.Millis { return instant.Of(time.Now().Add(-time.Minute)) }
	for _, m := range []struct {
		name, from, to string
		localClock     func() instant.Millis
	}{
		{name: "a gateway's clock instead of Redis's", localClock: skewed},
		{"ring one slot too short", "local slot, counts = newest % slices", "local slot, counts = newest % (slices - 1)", nil},
		{"near counts read one slot off", "for byte = 1, leaving * 4", "for byte = 5, leaving * 4", nil},
		{"released a slice early", "local first = at - slices", "local first = at - slices + 1", nil},
		{"> for >= when a slice is released", "until oldest >= first", "until oldest > first or oldest == newest", nil},
		{"<= for < where the window is past", "if newest < first then", "if newest <= first then", nil},
		{"not all: the month is not asked", "if month_below < COUNT_MAX and granted", "if false and granted", nil},
		{"not none: a refusal is charged to the day", "day_used = day_used + granted", "day_used = day_used + want", nil},
		{"a part of a request", "granted - granted % cost", "granted", nil},
		{"a policy that is not set", "if day_below < COUNT_MAX and granted", "if granted", nil},
		{"the key's own limits do not count", "return min(granted or 0, admitted)", "return admitted", nil},
		{"a key's record is charged more than its tenant's", "own_stored, admitted)", "own_stored, nil)", nil},
		{"the month never ends", "if day >= ends then ends, before = 0, 0 end", "", nil},
		{"the month has only its day", "before, day_used = before + day_used, 0", "day_used = 0", nil},
		{"the day counts twice in the month", "lost, before = LOST, known_month - day_used", "lost, before = LOST, known_month", nil},
		{"merged month forgotten", "if ends == spent_month and earlier > 0 then", "if false then", nil},
		{"merged use begins no month", "if ends == 0 then ends = spent_month end", "", nil},
		{"only counts grow, past the month's limit", "and used <= below", "", nil},
		{"only counts grow, whatever is known of the month", "(known_ends ~= ends or known_used <= used - want)", "true", nil},
		{"only counts grow, whatever the key's own limits", "unreported == '' and not own then", "unreported == '' then", nil},
		{"no maximum with known use", "if known_day == day + 1 and known_used > day_used then", "if false then", nil},
		{"the lost minute is not charged", "if spent > known_minute then spent = known_minute end", "spent = 0", nil},
		{"merged use forgotten", "if spent_day == day + 1 then", "if false then", nil},
		{"merged use wraps around", "if day_used > COUNT_MAX then day_used = COUNT_MAX end", "", nil},
		{"the day never ends", "if today ~= stored_day then before,", "if false then before,", nil},
		{"a clock that steps back reopens", "elseif this_slice > at then", "else", nil},
		{"a record far ahead is waited for", "if at * slice_ms > now + AHEAD_MS then", "if false then", nil},
		{"retry from the oldest slice, whatever the limit", "if sum > minute_below and", "if false and", nil},
		{"no zeros for slices without use", "(at - newest - 1) * 4", "0", nil},
		{"ring not wrapped", "if #counts > to_end then", "if false then", nil},
		{"only counts grow, in another slice", "at == this_slice and newest == at", "newest == at", nil},
		{"only counts grow, past the minute's limit", "and want <= minute_below - sum and", "and", nil},
		{"only counts grow, whatever the asker knows", "and (known_used <= day_used or known_day ~= tomorrow)", "", nil},
		{"a loss is not told", "lost = LOST\n", "\n", nil},
		{"only counts grow, whatever is owed", "RECENT_BYTES and unreported == '' and", "RECENT_BYTES and", nil},
		{"counts beside their place", "ring_bytes + COUNTS_AT", "ring_bytes + COUNTS_AT - 4", nil},
		{"no slice for retry at the limit", "sum < minute_below and not decided", "sum <= minute_below and not decided", nil},
		{"a batch is decided again", "if batch ~= NO_BATCH and sub(last, 1, BATCH_BYTES) == batch then", "if false then", nil},
		{"only counts grow, of a decided batch", "and sub(stored, SUMMARY_BYTES + 1, SUMMARY_BYTES + BATCH_BYTES) ~= batch", "", nil},
		{"a record that never expires", "if day ~= stored_day or ends ~= stored_ends then", "if false then", nil},
	} {
		t.Run(m.name, func(t *testing.T) {
			body := takeScript
			if m.from != "" {
				if n := strings.Count(body, m.from); n != 1 {
					t.Fatalf("%q stands %d times in the script, want once", m.from, n)
				}
				body = strings.Replace(body, m.from, m.to, 1)
			}
			client, prefix := dialRedis(t)
			err := compare(client, prefix, body, m.localClock, 1, steps)
			if !errors.Is(err, errDiffers) {
				t.Fatalf("the comparison did not notice: %v", err)
			}
			where, _, _ := strings.Cut(err.Error(), ", [")
			t.Logf("mutant %q: noticed: %.120s", m.name, where)
		})
	}
}
