package redis

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/gateway/quotas/store/storetest"
	"petgate/shared/core/quota"
)

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
	refused, timeout := storetest.Reply("OOM"), &net.OpError{Op: "read", Err: context.DeadlineExceeded}
	f := func(want bool, errs ...error) {
		t.Helper()
		client := redis.NewClient(&redis.Options{})
		defer client.Close()
		client.AddHook(answers(errs))
		s := newScript(client, "petgate:", quota.Product, takeScript)
		s.cluster = true
		demands := make([]store.Demand, len(errs))
		for i := range demands {
			demands[i] = store.Demand{Request: storetest.Request(storetest.Tenant(i), 10, 100), Want: 1}
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
