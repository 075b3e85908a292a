//go:build e2e

package directory

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/quotas"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func init() { roles["count"] = count }

const (
	countTenants   = 5
	countGateways  = 3
	countRequests  = 50_000
	countWorkers   = 8 // of each gateway
	countPerSecond = 1_400
)

// count is a gateway that asks Redis and counts what it admits, by a clock that is shifted. It prints "ready", and begins when standard
// input has a line with the shift from then on. It prints the tenant and the instant of each admitted request before it counts it, and
// "stored" with the instant up to which everything counted is in the database. It ends when standard input does.
func count() error {
	first, err := strconv.ParseInt(os.Getenv("DIRECTORY_TEST_SHIFT"), 10, 64)
	if err != nil {
		return err
	}
	var shift atomic.Int64 // ms
	shift.Store(first)
	ctx := context.Background()
	db, err := database.Open(os.Getenv("DIRECTORY_TEST_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	store := keystore.New(db, nil, nil, "test")
	d, err := Open(ctx, store, Config{
		GatewayID: os.Getenv("DIRECTORY_TEST_ID"), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Clock: func() time.Time { return time.Now().Add(time.Duration(shift.Load()) * time.Millisecond) },
	})
	if err != nil {
		return err
	}
	limits, err := quotas.Open(ctx, quotas.Config{
		RedisURL: os.Getenv("DIRECTORY_TEST_REDIS"), Prefix: os.Getenv("DIRECTORY_TEST_PREFIX"), Budget: redisBudget,
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- d.Run(running) }()
	fmt.Println("ready")
	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadString('\n')
	if err != nil {
		return err
	}
	final, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return err
	}
	shift.Store(final)
	asking, enough := context.WithCancel(ctx)
	go func() {
		_, _ = input.ReadByte()
		enough()
	}()
	var workers sync.WaitGroup
	workers.Go(func() {
		pace := time.NewTicker(100 * time.Millisecond)
		defer pace.Stop()
		for last := instant.Millis(0); asking.Err() == nil; <-pace.C {
			if at := storedBefore(&d.usage); at > last {
				last = at
				fmt.Printf("%s %d\n", storedLine, at)
			}
		}
	})
	failed := make(chan error, countWorkers)
	for w := range countWorkers {
		workers.Go(func() {
			pace := time.NewTicker(countWorkers * time.Second / countPerSecond)
			defer pace.Stop()
			for i := w; asking.Err() == nil; i++ {
				if err := countOne(d, limits, massTenant(i%countTenants), massKey(i%countTenants), instant.Millis(final)); err != nil {
					failed <- err
					return
				}
				<-pace.C
			}
		})
	}
	workers.Wait()
	close(failed)
	err = <-failed
	stop()
	err = errors.Join(err, <-done, limits.Close(ctx))
	d.SignOff("")
	return err
}

const (
	storedLine  = "stored"
	redisBudget = 10 * time.Second // longer than a busy machine stops Redis
)

// storedBefore returns an instant: what was counted before is in the database. It is 0 if the database lacks some of the last collection.
func storedBefore(u *usage) instant.Millis {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.Sent != nil || len(u.Rows) > 0 {
		return 0
	}
	return u.collectedAt
}

var countLimits = plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}

func countOne(d *Directory, limits quotas.Quotas, tenant id.Tenant, key id.Key, shift instant.Millis) error {
	v, err := limits.Take(countRequest(tenant))
	if err != nil || v.Granted != 1 || v.Degraded {
		return fmt.Errorf("take: %+v, %w", v, err)
	}
	at := v.At + shift
	if _, err := fmt.Printf("%s %d\n", tenant, at); err != nil {
		return err
	}
	d.Count(Usage{Tenant: tenant, Key: key, Operation: "listPets", Outcome: "ok", Charged: true, Metered: true, At: at})
	return nil
}

// admitted are the requests that one gateway has printed.
type admitted struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	log    *testkit.Output
	mu     sync.Mutex
	ready  bool
	seen   []admission
	stored instant.Millis // what it counted before is in the database
	ended  sync.WaitGroup
}

type admission struct {
	tenant string
	at     instant.Millis
}

// read notes a line that the gateway has printed. The last line of a killed process may be cut off.
func (a *admitted) read(line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = true
	first, text, _ := strings.Cut(line, " ")
	at, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
	case first == storedLine:
		a.stored = instant.Millis(at)
	default:
		a.seen = append(a.seen, admission{first, instant.Millis(at)})
	}
}

func (a *admitted) isReady() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ready
}

func (a *admitted) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.seen)
}

// Three gateways admit 50,000 requests over a full hour, and one of them is killed. When the hours are closed, the charged usage of
// each tenant and hour is what Redis has admitted, but for what the killed gateway had not written.
func TestUsageIsWhatRedisAdmitted(t *testing.T) {
	url := testkit.Postgres(t)
	redisURL, prefix := testkit.Redis(t)
	db := openDB(t, url)
	store := keystore.New(db, nil, nil, "test")
	seed(t, db, countTenants, countTenants)
	edge := instant.Of(time.Now().Add(-time.Hour)).Truncate(time.Hour) // both hours ended long ago by the database's clock
	// shift returns what a gateway adds to its clock, in ms, to be this long before the edge of the hour.
	shift := func(before time.Duration) int64 { return edge.Sub(instant.Of(time.Now().Add(before))).Milliseconds() }
	starting := shift(10 * time.Minute) // until all gateways have started
	gateways := make([]*admitted, countGateways)
	for i := range gateways {
		a := &admitted{cmd: exec.Command(os.Args[0]), log: &testkit.Output{}}
		a.cmd.Env = append(os.Environ(), "DIRECTORY_TEST_ROLE=count", "DIRECTORY_TEST_URL="+url, "DIRECTORY_TEST_REDIS="+redisURL,
			"DIRECTORY_TEST_PREFIX="+prefix, fmt.Sprintf("DIRECTORY_TEST_ID=gw-%d", i), fmt.Sprintf("DIRECTORY_TEST_SHIFT=%d", starting))
		a.cmd.Stderr = a.log
		stdin, err1 := a.cmd.StdinPipe()
		stdout, err2 := a.cmd.StdoutPipe()
		must.Do(t, errors.Join(err1, err2, a.cmd.Start()))
		a.stdin = stdin
		t.Cleanup(func() { _ = a.cmd.Process.Kill() })
		a.ended.Go(func() {
			for lines := bufio.NewScanner(stdout); lines.Scan(); {
				a.read(lines.Text())
			}
		})
		gateways[i] = a
	}
	for i, a := range gateways {
		testkit.Eventually(t, 2*time.Minute, fmt.Sprintf("gateway %d is ready", i), a.isReady)
	}
	final := shift(5 * time.Second)
	for _, a := range gateways {
		if _, err := fmt.Fprintln(a.stdin, final); err != nil {
			t.Fatalf("%v\n%s", err, a.log)
		}
	}
	all := func() (n int) {
		for _, a := range gateways {
			n += a.count()
		}
		return n
	}
	killed := gateways[2]
	testkit.Eventually(t, 2*time.Minute, "two thirds of the requests", func() bool { return all() > countRequests*2/3 })
	began := instant.Of(time.Now()) + instant.Millis(final)
	must.Do(t, killed.cmd.Process.Kill())
	testkit.Eventually(t, 2*time.Minute, "all requests", func() bool { return all() > countRequests })
	for _, a := range gateways[:2] {
		_ = a.stdin.Close()
	}
	for i, a := range gateways {
		a.ended.Wait()
		if err := a.cmd.Wait(); err != nil && a != killed {
			t.Errorf("gateway %d: %v\n%s", i, err, a.log)
		}
	}
	seal, err := store.SealUsage(t.Context())
	if err != nil || seal.Through > edge {
		t.Fatalf("sealed up to %s, %v, although gw-2 is registered and has stored its usage only up to the kill", seal.Through, err)
	}
	if _, err := store.ForgetGateway(t.Context(), "gw-2"); err != nil {
		t.Fatal(err)
	}
	if seal, err = store.SealUsage(t.Context()); err != nil || seal.Through <= edge {
		registered, _ := store.Gateways(t.Context())
		t.Fatalf("sealed up to %s, %v, want both hours; registered: %+v\n%s", seal.Through, err, registered, gateways[0].log)
	}

	type slot struct {
		tenant string
		hour   instant.Millis
	}
	want, atRisk, stored := map[slot]int64{}, map[slot]int64{}, map[slot]int64{}
	byTenant := map[string]int64{}
	for _, a := range gateways {
		for _, one := range a.seen {
			s := slot{one.tenant, one.at.Truncate(time.Hour)}
			want[s]++
			byTenant[one.tenant]++
			if a == killed && one.at >= a.stored {
				atRisk[s]++
			}
		}
	}
	for _, hour := range []instant.Millis{edge.Add(-time.Hour), edge} {
		rows, err := store.UsageOfHour(t.Context(), hour, id.Tenant{}, nil, 100)
		must.Do(t, err)
		for _, r := range rows {
			stored[slot{r.Tenant.String(), r.Hour}] += r.Charged
		}
	}
	if len(want) != 2*countTenants {
		t.Errorf("usage of %d tenants and hours, want %d", len(want), 2*countTenants)
	}
	var lost, risk int64
	for s, n := range want {
		// A worker may have been stopped between the admission of one request and its count.
		if missing := n - stored[s]; missing < 0 || missing > atRisk[s]+countWorkers {
			t.Errorf("%s, %s: %d stored of %d admitted; at most %d may be lost", s.tenant, s.hour, stored[s], n, atRisk[s]+countWorkers)
		}
		lost, risk = lost+n-stored[s], risk+atRisk[s]
	}
	if int64(killed.count()) <= risk {
		t.Errorf("the killed gateway admitted only %d requests, so the test says nothing about those that it had written", killed.count())
	}
	limits, err := quotas.Open(t.Context(), quotas.Config{RedisURL: redisURL, Prefix: prefix, Budget: redisBudget})
	must.Do(t, err)
	defer limits.Close(context.Background())
	for i := range countTenants {
		v, err := limits.Peek(t.Context(), countRequest(massTenant(i)))
		// The killed gateway may have been granted a request for each of its workers that it did not print.
		if n := byTenant[massTenant(i).String()]; err != nil || v.Usages[quota.Day].Used < n || v.Usages[quota.Day].Used > n+countWorkers {
			t.Errorf("tenant %d: Redis has admitted %d, %v, the gateways say %d", i, v.Usages[quota.Day].Used, err, n)
		}
	}
	gaps, err := store.UsageGaps(t.Context(), 0)
	if err != nil || len(gaps) != 1 || gaps[0].Gateway != "gw-2" || gaps[0].Cause != keystore.GapForgotten || gaps[0].Since > began {
		t.Errorf("gaps: %+v, %v", gaps, err)
	}
	t.Logf("figure: %d requests at %d gateways over a full hour, one killed: %d charged requests stored of %d admitted; the killed one lost %d "+
		"of the %d that it admitted after it last stored its usage; in every other hour and tenant the numbers are equal", all(), countGateways, int64(all())-lost, all(), lost, risk)
}

func countRequest(tenant id.Tenant) (q quotas.Request) {
	q.Tenant, q.Version, q.Limits = tenant, 1, countLimits
	return q
}
