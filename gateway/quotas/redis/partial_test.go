package redis

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
)

// storeFunc is a store that decides by a function.
type storeFunc func(number int64, demands []store.Demand, results []store.Result) error

func (f storeFunc) DecideBatch(_ context.Context, number int64, demands []store.Demand, results []store.Result) error {
	return f(number, demands, results)
}

func newOver(s Store, l Ledger) *Redis {
	return New(Config{Rule: quota.Product, Clock: time.Now, Metrics: NewMetrics(nil), Changed: func(bool, error) {}}, s, l)
}

// answers is a pipeline whose calls end with these errors.
type answers []error

func (answers) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (answers) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (a answers) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for i, cmd := range cmds {
			cmd.SetErr(a[i])
		}
		return nil
	}
}

// All calls of a cluster's batch fail. If Redis may have executed one of them, the error of the batch says so, in any order.
func TestABatchOfWhichNothingIsDecided(t *testing.T) {
	refused, timeout := reply("OOM"), &net.OpError{Op: "read", Err: context.DeadlineExceeded}
	f := func(want bool, errs ...error) {
		t.Helper()
		client := redis.NewClient(&redis.Options{})
		defer client.Close()
		client.AddHook(answers(errs))
		s := newScript(client, "petgate:", quota.Product, takeScript)
		s.cluster = true
		demands := make([]store.Demand, len(errs))
		for i := range demands {
			demands[i] = store.Demand{Request: requestOf(tenantNo(i), 10, 100), Want: 1}
		}
		if err := s.DecideBatch(background, 1, demands, make([]store.Result, len(errs))); err == nil || isUnsure(err) != want {
			t.Errorf("%v: %v, want unsure: %t", errs, err, want)
		}
	}
	f(false, refused, refused)
	f(true, timeout, timeout)
	f(true, timeout, refused)
	f(true, refused, timeout)
}

// Two of three unanswered batches are sent again, although a slot of the first is served nowhere. Of that batch, only the demand of that
// slot is kept.
func TestUnansweredBatchesAreSentAgain(t *testing.T) {
	records := newMemory(quota.Product, time.Now)
	var sent []string
	var fault error = reply("CLUSTERDOWN Hash slot not served")
	r := newOver(storeFunc(func(number int64, demands []store.Demand, results []store.Result) error {
		_ = records.Decide(background, demands, results)
		for i := range demands {
			sent = append(sent, fmt.Sprint(number, ":", demands[i].Tenant[9]))
			if demands[i].Tenant == tenantNo(1) {
				results[i] = store.Result{Err: fault}
			}
		}
		return nil
	}), noLedger{})
	defer r.Close()
	b := r.servers.first
	for n, tenants := range [][]int{{1, 2}, {3}, {1}, {2}} {
		u := unanswered{number: int64(n)}
		for _, tenant := range tenants {
			u.demands = append(u.demands, store.Demand{Request: requestOf(tenantNo(tenant), 10, 100)})
		}
		b.keep(u)
	}
	for _, want := range []string{"[0:1 0:2 1:3 2:1 3:2]", "[0:1 2:1]"} {
		if sent = nil; b.sendAgain() != nil || fmt.Sprint(sent) != want {
			t.Errorf("sent %v, want %s", sent, want)
		}
	}
	fault = &net.OpError{Op: "read", Err: context.DeadlineExceeded}
	if sent = nil; b.sendAgain() == nil || fmt.Sprint(sent) != "[0:1]" || len(b.unanswered) != 2 {
		t.Errorf("after a timeout: sent %v, %d batches are kept", sent, len(b.unanswered))
	}
}
