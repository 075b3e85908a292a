package redis

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Redis closes connections when it restarts, after its timeout, or when an operator says so. The next decision uses another
// connection, and no request is decided without Redis. go-redis looks at the socket of a connection before it uses it again: patientConn
// relies on this, and on go-redis calling only Read on the socket, never Control.
func TestAClosedConnectionIsNoOutage(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "redis")
	server := testkit.StartRedis(t, "--unixsocket", socket)
	for prefix, url := range map[string]string{"tcp:": server.URL, "unix:": "unix://" + socket + "?db=0"} {
		t.Run(prefix, func(t *testing.T) {
			r := open(t, Config{URL: url, Prefix: prefix})
			operator := redis.NewClient(must.Get[*redis.Options](t)(redis.ParseURL(url)))
			defer operator.Close()
			for n := range int64(20) {
				v, outcome := r.Take(store.Call{Request: store.Request{Name: store.Name{Tenant: tenantNo(0)}, Limits: generous}})
				if outcome != Decided || v.Usages[quota.Minute].Used != n+1 || r.IsDown() {
					t.Fatalf("decision %d: used %d, outcome %d, down: %t", n, v.Usages[quota.Minute].Used, outcome, r.IsDown())
				}
				must.Do(t, operator.ClientKillByFilter(background, "TYPE", "normal", "SKIPME", "yes").Err())
			}
			if s := r.client.PoolStats(); s.StaleConns < 10 || s.Hits == 0 {
				t.Errorf("go-redis has noticed %d of 19 closed connections, and used %d again", s.StaleConns, s.Hits)
			}
		})
	}
}

// A URL may name a database, and no client repeats a call by itself.
func TestConnect(t *testing.T) {
	for url, isTLS := range map[string]bool{
		"redis://u:p@localhost:6380/2": false, "rediss://u:p@localhost:6380/2": true, "unix://u:p@/run/redis?db=2": false,
		"redis+sentinel://u:p@localhost:26379/main/2": false,
	} {
		client := must.Get[redis.UniversalClient](t)(connect(url, time.Second))
		defer client.Close()
		o := client.(*redis.Client).Options()
		if o.DB != 2 || o.MaxRetries > 0 || o.Username != "u" || o.Password != "p" || (o.TLSConfig != nil) != isTLS {
			t.Errorf("%s: options %+v", url, o)
		}
	}
}
