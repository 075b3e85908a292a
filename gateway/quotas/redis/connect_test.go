package redis

import (
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Redis closes connections when it restarts, after its timeout, or when an operator says so. The next decision uses another
// connection, and no request is decided without Redis.
func TestAClosedConnectionIsNoOutage(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "redis")
	server := testkit.StartRedis(t, "--unixsocket", socket)
	for prefix, url := range map[string]string{"tcp:": server.URL, "unix:": "unix://" + socket + "?db=0"} {
		t.Run(prefix, func(t *testing.T) {
			r := open(t, Config{URL: url, Prefix: prefix})
			options, err := redis.ParseURL(url)
			must.Do(t, err)
			operator := redis.NewClient(options)
			defer operator.Close()
			for n := range int64(20) {
				v, outcome := r.Take(store.Call{Request: store.Request{Name: store.Name{Tenant: tenantNo(0)}, Limits: generous}})
				if outcome != Decided || v.Usages[quota.Minute].Used != n+1 || r.IsDown() {
					t.Fatalf("decision %d: used %d, outcome %d, down: %t", n, v.Usages[quota.Minute].Used, outcome, r.IsDown())
				}
				must.Do(t, operator.ClientKillByFilter(background, "TYPE", "normal", "SKIPME", "yes").Err())
			}
		})
	}
}
