package redis

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/gateway/quotas/store/storetest"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// Decide implements storetest.Decider, without a number.
func (r *script) Decide(ctx context.Context, demands []store.Demand, results []store.Result) error {
	return r.DecideBatch(ctx, 0, demands, results)
}

// Has implements storetest.Store.
func (r *script) Has(t id.Tenant) bool {
	return r.client.Exists(background, r.keyOf(store.Demand{Request: storetest.Request(t, 0, 0)})).Val() == 1
}

func opener(client redis.UniversalClient, prefix string) storetest.Opener {
	return func(rule quota.Rule, now func() instant.Millis) storetest.Store {
		s := newScript(client, prefix, rule, takeScript)
		s.now = now
		return s
	}
}

func TestConformance(t *testing.T) {
	t.Run("single", func(t *testing.T) {
		client, prefix := dialRedis(t)
		storetest.Run(t, opener(client, prefix))
	})
	t.Run("cluster", func(t *testing.T) {
		storetest.Run(t, opener(dialCluster(t), "conformance:"))
	})
}
