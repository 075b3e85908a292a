package redis

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// dialCluster connects to a private Redis Cluster of three.
func dialCluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	var addrs []string
	for _, url := range testkit.RedisCluster(t, 3) {
		addrs = append(addrs, strings.TrimPrefix(url, "redis://"))
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// dialServer connects to a server of the test's own.
func dialServer(t testing.TB, s *testkit.Server) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A value that is not a record affects only its own tenant. The error names it, and it is not
// changed.
func TestSpoiledRecord(t *testing.T) {
	client, prefix := dialRedis(t)
	s := newScript(client, prefix, quota.Product, takeScript)
	s.now = func() instant.Millis { return epoch } // all in one slice
	good, spoiled := demandOf(tenantNo(1), 10, 100), demandOf(tenantNo(2), 10, 100)
	key := s.keyOf(spoiled)
	must.Do(t, s.DecideBatch(always, 1, []store.Demand{spoiled}, make([]store.Result, 1)))
	form := client.Get(always, key).Val()
	summary := quota.Product.RecordBytes() - quota.SummaryBytes
	alter := func(at int, by byte) string {
		altered := []byte(form)
		altered[at] += by
		return string(altered)
	}
	set := func(value string) func() error {
		return func() error { return client.Set(always, key, value, 0).Err() }
	}
	for _, c := range []struct {
		name, want string
		spoil      func() error
	}{
		{"a list", "wrong type", func() error { return client.RPush(always, key, "x").Err() }},
		{"a short string", "wrong length", set("x")},
		{"a byte less", "wrong version", set(form[1:])},
		{"a ring alone", "wrong length", set(form[:summary])},
		{"another version", "wrong version", set(alter(summary, 1))},
		{"slices in disorder", "wrong version", set(alter(summary+12, 1))},
		{"slices far apart", "wrong version", set(alter(summary+21, 255))},
		{"use outside the window", "wrong version", set(alter(summary+6, 1))},
	} {
		t.Run(c.name, func(t *testing.T) {
			client.Del(always, key)
			must.Do(t, c.spoil())
			before := client.Dump(always, key).Val()
			demands := []store.Demand{good, spoiled, good}
			results := make([]store.Result, len(demands))
			must.Do(t, s.Decide(always, demands, results))
			if results[0].Err != nil || results[2].Err != nil || results[2].Verdict.Granted != 1 {
				t.Errorf("the other tenant is harmed: %+v", results)
			}
			err := results[1].Err
			if !errors.Is(err, store.ErrRecord) || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), key) {
				t.Errorf("the spoiled record's error is %q, want %q and its name", err, c.want)
			}
			must.Equal(t, client.Dump(always, key).Val(), before, "the spoiled record")
			client.Del(always, s.keyOf(good))
		})
	}
}

func (r *script) keyOf(d store.Demand) string { return string(r.appendKey(nil, &d.Name)) }

// demandsOfMany are of tenants on all nodes of a cluster.
func demandsOfMany() ([]store.Demand, []store.Result) {
	demands := make([]store.Demand, 32)
	for i := range demands {
		demands[i] = demandOf(tenantNo(i), 10, 100)
	}
	return demands, make([]store.Result, len(demands))
}

// Redis may forget the function at any time, also one node of a cluster. The next decision then
// sends it, and is made only once.
func TestLostFunction(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{
		"single": dialServer(t, testkit.StartRedis(t)), "cluster": dialCluster(t),
	} {
		s := newScript(client, "lost:", quota.Product, takeScript)
		demands, results := demandsOfMany()
		for used, nodes := range []int64{0, 3, 0, 1} {
			var flushed atomic.Int64
			must.Do(t, onMasters(always, client, func(ctx context.Context, node *redis.Client) error {
				if flushed.Add(1) <= nodes {
					return node.FunctionFlush(ctx).Err()
				}
				return nil
			}))
			must.Do(t, s.Decide(always, demands, results))
			for i, r := range results {
				if r.Err != nil || r.Verdict.Usages[quota.Day].Used != int64(used)+1 {
					t.Fatalf("%s, decision %d on demand %d: %+v", name, used+1, i, r)
				}
			}
		}
	}
}

// A fault that affects all tenants fails the whole trip, and no tenant is charged.
func TestServerThatCannotWrite(t *testing.T) {
	t.Parallel()
	client := dialServer(t, testkit.StartRedis(t))
	s := newScript(client, "full:", quota.Product, takeScript)
	demands, results := demandsOfMany()
	for want, c := range map[string]struct{ set, unset []any }{
		"OOM":        {[]any{"CONFIG", "SET", "maxmemory", 1}, []any{"CONFIG", "SET", "maxmemory", 0}},
		"READONLY":   {[]any{"REPLICAOF", "127.0.0.1", 1}, []any{"REPLICAOF", "NO", "ONE"}},
		"NOREPLICAS": {[]any{"CONFIG", "SET", "min-replicas-to-write", 1}, []any{"CONFIG", "SET", "min-replicas-to-write", 0}},
	} {
		before := takeOne(t, s, demands[0]).Usages[quota.Day].Used
		must.Do(t, client.Do(always, c.set...).Err())
		if err := s.Decide(always, demands, results); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("decide = %v, want an error with %s", err, want)
		}
		must.Do(t, client.Do(always, c.unset...).Err())
		must.Equal(t, takeOne(t, s, demands[0]).Usages[quota.Day].Used, before+1, "%s: the use after a failed trip",
			want)
	}
}
