package redis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

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

// A value that is not a record affects only its own tenant. The error names it, and it is not changed.
func TestSpoiledRecord(t *testing.T) {
	client, prefix := dialRedis(t)
	s := newScript(client, prefix, quota.Product, takeScript)
	good := store.Demand{Request: requestOf(tenantNo(1), 10, 100), Want: 1}
	spoiled := store.Demand{Request: requestOf(tenantNo(2), 10, 100), Want: 1}
	key := s.keyOf(spoiled)
	takeOne(t, s, spoiled)
	form := client.Get(background, key).Val()
	summary := quota.Product.RecordBytes() - quota.SummaryBytes
	alter := func(at int, by byte) string {
		altered := []byte(form)
		altered[at] += by
		return string(altered)
	}
	set := func(value string) func() error {
		return func() error { return client.Set(background, key, value, 0).Err() }
	}
	for _, c := range []struct {
		name, want string
		spoil      func() error
	}{
		{"a list", "wrong type", func() error { return client.RPush(background, key, "x").Err() }},
		{"a short string", "wrong length", set("x")},
		{"a byte less", "wrong version", set(form[1:])},
		{"a ring alone", "wrong length", set(form[:summary])},
		{"another version", "wrong version", set(alter(summary, 1))},
		{"slices in disorder", "wrong version", set(alter(summary+12, 1))},
		{"slices far apart", "wrong version", set(alter(summary+21, 255))},
		{"use outside the window", "wrong version", set(alter(summary+6, 1))},
	} {
		t.Run(c.name, func(t *testing.T) {
			client.Del(background, key)
			must.Do(t, c.spoil())
			before := client.Dump(background, key).Val()
			demands := []store.Demand{good, spoiled, good}
			results := make([]store.Result, len(demands))
			must.Do(t, s.Decide(background, demands, results))
			if results[0].Err != nil || results[2].Err != nil || results[2].Verdict.Granted != 1 {
				t.Errorf("the other tenant is harmed: %+v", results)
			}
			err := results[1].Err
			if !errors.Is(err, store.ErrRecord) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), key) {
				t.Errorf("the spoiled record's error is %q, want %q and its name", err, c.want)
			}
			if client.Dump(background, key).Val() != before {
				t.Error("the spoiled record was changed")
			}
			client.Del(background, s.keyOf(good))
		})
	}
}

func (r *script) keyOf(d store.Demand) string { return string(r.appendKey(nil, &d.Name)) }

// Redis may forget the function at any time. The next decision then sends it, and is made only once.
func TestLostFunction(t *testing.T) {
	t.Parallel()
	server := testkit.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	client := dialServer(t, server)
	s := newScript(client, "lost:", quota.Product, takeScript)
	d := store.Demand{Request: requestOf(tenantNo(1), 100, 1000), Want: 1}
	used := int64(0)
	next := func(after string) {
		t.Helper()
		for range 2 {
			used++
			client.ConfigResetStat(background)
			if v := takeOne(t, s, d); v.Granted != 1 || v.Usages[quota.Day].Used != used {
				t.Fatalf("after %s: %+v, want %d used", after, v, used)
			}
		}
		if info := client.Info(background, "commandstats").Val(); !strings.Contains(info, "cmdstat_fcall:calls=1,") || strings.Contains(info, "cmdstat_function") {
			t.Errorf("after %s, the second decision is not one call:\n%s", after, info)
		}
	}
	next("nothing at all")
	must.Do(t, client.FunctionFlush(background).Err())
	next("a flush")
	must.Do(t, client.FunctionFlush(background).Err())
	must.Do(t, s.load(background))
	next("load")
	server.Stop(t)
	var results [1]store.Result
	if err := s.Decide(background, []store.Demand{d}, results[:]); err == nil || errors.Is(err, store.ErrRecord) {
		t.Errorf("decide without a server = %v, want an error of the trip", err)
	}
	server.Start(t)
	next("a restart")
	must.Do(t, client.FlushAll(background).Err())
	d.Known.Day = quota.Period{Ends: int64(instant.Of(time.Now())/86_400_000) + 1, Used: used}
	next("FLUSHALL, told of the day's use")
}

// Each version has a library of its own, and versions decide on the same records.
func TestVersionsShareARedis(t *testing.T) {
	client, prefix := dialRedis(t)
	older, newer := newScript(client, prefix, quota.Product, takeScript+"\n"), newScript(client, prefix, quota.Product, takeScript)
	for n, s := range []*script{newer, older, newer, older} {
		if v := takeOne(t, s, demandOf(tenantNo(1), 100, 1000, 1)); v.Usages[quota.Day].Used != int64(n)+1 {
			t.Errorf("decision %d: %+v", n+1, v)
		}
	}
}

// A fault that affects all tenants fails the whole trip, and no tenant is charged.
func TestServerThatCannotWrite(t *testing.T) {
	t.Parallel()
	client := dialServer(t, testkit.StartRedis(t))
	s := newScript(client, "full:", quota.Product, takeScript)
	demands := []store.Demand{{Request: requestOf(tenantNo(1), 10, 100), Want: 1}, {Request: requestOf(tenantNo(2), 10, 100), Want: 1}}
	results := make([]store.Result, len(demands))
	configure := func(name, value string) func() error {
		return func() error { return client.ConfigSet(background, name, value).Err() }
	}
	follow := func(host, port string) func() error {
		return func() error { return client.ReplicaOf(background, host, port).Err() }
	}
	used := int64(0)
	for _, c := range []struct {
		name, want string
		set, unset func() error
	}{
		{"out of memory", "OOM", configure("maxmemory", "1"), configure("maxmemory", "0")},
		{"a replica", "READONLY", follow("127.0.0.1", "1"), follow("no", "one")},
		{
			"too few replicas", "NOREPLICAS",
			configure("min-replicas-to-write", "1"), configure("min-replicas-to-write", "0"),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, d := range demands {
				takeOne(t, s, d)
			}
			used++
			must.Do(t, c.set())
			if err := s.Decide(background, demands, results); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("decide = %v, want an error with %s", err, c.want)
			}
			must.Do(t, c.unset())
			for _, d := range demands {
				d.Want = 0
				if v := takeOne(t, s, d); v.Usages[quota.Day].Used != used {
					t.Errorf("%d used, want %d: the failed trip charged", v.Usages[quota.Day].Used, used)
				}
			}
		})
	}
}

// On a cluster, every tenant has a call of its own. A node that has lost the function gets it again, and a spoiled record is an error
// of its own tenant only.
func TestClusterNodesLoseTheFunction(t *testing.T) {
	t.Parallel()
	client := dialCluster(t)
	s := newScript(client, "node:", quota.Product, takeScript)
	demands, results := clusterDemands()
	decide := func(after string, used int64, spoiled int) {
		t.Helper()
		must.Do(t, s.Decide(background, demands, results))
		for i, r := range results {
			if errors.Is(r.Err, store.ErrRecord) != (i == spoiled) || r.Err == nil && r.Verdict.Usages[quota.Day].Used != used {
				t.Fatalf("after %s, demand %d: %+v", after, i, r)
			}
		}
	}
	decide("nothing at all", 1, -1)
	must.Do(t, s.load(background))
	decide("load", 2, -1)
	if err := client.ForEachMaster(background, func(ctx context.Context, node *redis.Client) error {
		return node.FunctionFlush(ctx).Err()
	}); err != nil {
		t.Fatal(err)
	}
	decide("FUNCTION FLUSH on every node", 3, -1)
	one, err := client.MasterForKey(background, s.keyOf(demands[0]))
	must.Do(t, err)
	must.Do(t, one.FunctionFlush(background).Err())
	decide("FUNCTION FLUSH on one node", 4, -1)
	must.Do(t, client.Set(background, s.keyOf(demands[3]), "spoiled", 0).Err())
	decide("spoiling a record", 5, 3)
}

func clusterDemands() ([]store.Demand, []store.Result) {
	const n = 32
	demands := make([]store.Demand, n)
	for i := range demands {
		demands[i] = store.Demand{Request: requestOf(tenantNo(i), 10, 100), Want: 1}
	}
	return demands, make([]store.Result, n)
}

// If one node of a cluster is lost, its tenants get an error. The verdicts of all other tenants are valid.
func TestClusterNodeLost(t *testing.T) {
	t.Parallel()
	client := dialCluster(t)
	s := newScript(client, "node:", quota.Product, takeScript)
	demands, results := clusterDemands()
	must.Do(t, s.Decide(background, demands, results))
	// Without this, the rest of the cluster would stop too as soon as it finds the node missing.
	if err := client.ForEachMaster(background, func(ctx context.Context, node *redis.Client) error {
		return node.ConfigSet(ctx, "cluster-require-full-coverage", "no").Err()
	}); err != nil {
		t.Fatal(err)
	}
	lost, err := client.MasterForKey(background, s.keyOf(demands[0]))
	must.Do(t, err)
	onLost := make([]bool, len(demands))
	for i := range demands {
		node, err := client.MasterForKey(background, s.keyOf(demands[i]))
		must.Do(t, err)
		onLost[i] = node.Options().Addr == lost.Options().Addr
	}
	lost.ShutdownNoSave(background)
	if err := s.Decide(background, demands, results); err != nil {
		t.Fatalf("decide = %v, want each tenant's own error", err)
	}
	for i, r := range results {
		if (r.Err != nil) != onLost[i] || errors.Is(r.Err, store.ErrRecord) || r.Err == nil && r.Verdict.Usages[quota.Day].Used != 2 {
			t.Errorf("demand %d, whose node is lost: %v: %+v", i, onLost[i], r)
		}
	}
	for i := range demands {
		if onLost[i] {
			err := s.Decide(background, demands[i:i+1], results[:1])
			if err == nil {
				t.Error("decide tells of no error though it could decide nothing")
			}
			break
		}
	}
}
