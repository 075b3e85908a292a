package redis

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Redis closes connections when it restarts, after its timeout, or when an operator says so. The
// next decision uses another connection, and no request is decided without Redis. go-redis looks at
// the socket of a connection before it uses it again: patientConn relies on this, and on go-redis
// calling only Read on the socket, never Control.
func TestAClosedConnectionIsNoOutage(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "redis")
	server := testkit.StartRedis(t, "--unixsocket", socket)
	for prefix, url := range map[string]string{"tcp:": server.URL, "unix:": "unix://" + socket + "?db=0"} {
		t.Run(prefix, func(t *testing.T) {
			r := open(t, Config{URL: url, Prefix: prefix})
			operator := redis.NewClient(must.Get[*redis.Options](t)(redis.ParseURL(url)))
			defer operator.Close()
			for n := range int64(20) {
				v, outcome := r.Take(
					store.Call{Request: store.Request{Name: store.Name{Tenant: tenantNo(0)}, Limits: generous}})
				if outcome != Decided || v.Usages[quota.Minute].Used != n+1 || r.IsDown() {
					t.Fatalf("decision %d: used %d, outcome %d, down: %t", n, v.Usages[quota.Minute].Used, outcome,
						r.IsDown())
				}
				must.Do(t, operator.ClientKillByFilter(always, "TYPE", "normal", "SKIPME", "yes").Err())
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

// The first URL has the credentials of a cluster.
func TestConnectToACluster(t *testing.T) {
	client := must.Get[redis.UniversalClient](t)(connect("rediss://u:p@localhost:1,rediss://localhost:2", time.Second))
	defer client.Close()
	o := client.(*redis.ClusterClient).Options()
	must.Equal(t, o.Username+" "+o.Password, "u p", "the credentials")
}

// reply is an error that Redis sent.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// A REDIS_URL that names the wrong kind of server is explained.
func TestExplain(t *testing.T) {
	t.Parallel()
	decide := func(url string) error {
		client, err := connect(url, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		d := []store.Demand{demandOf(tenantNo(1), 10, 100)}
		return newScript(client, "explain:", quota.Product, takeScript).Decide(always, d, make([]store.Result, 1))
	}
	// A Sentinel, and a Redis before 7, do not know the command.
	without := testkit.StartRedis(t, "--rename-command", "FCALL", "")
	forbidden := testkit.StartRedis(t, "--user", "default", "on", "nopass", "~*", "&*", "+@all", "-function")
	single := testkit.StartRedis(t)
	expired := testkit.NewAuthority(t).SaveServer(2, time.Now().Add(-time.Minute))
	port := strconv.Itoa(testkit.FreePort(t))
	testkit.StartRedis(t, "--tls-port", port, "--tls-cert-file", expired.Cert, "--tls-key-file", expired.Key,
		"--tls-auth-clients", "no", "--tls-ca-cert-file", expired.CA)
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"no functions", decide("redis://" + without.Addr), "or a Sentinel as redis+sentinel://"},
		{"a right is missing", decide("redis://" + forbidden.Addr), "ACL SETUSER"},
		{"two addresses without a cluster", decide("redis://" + single.Addr + ",redis://" + single.Addr), "name one address"},
		{"one address of a cluster", decide(testkit.RedisCluster(t, 3)[1]), "at least two nodes"},
		{"an expired certificate", decide("rediss://127.0.0.1:" + port), "the server's certificate expired at "},
		{"another error", reply("ERR syntax error"), ""},
	} {
		if c.err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		cure, _, explained := strings.Cut(Explain(c.err).Error(), ": "+c.err.Error())
		if explained != (c.want != "") || !strings.Contains(cure, c.want) {
			t.Errorf("%s: %v", c.name, Explain(c.err))
		}
	}
}
