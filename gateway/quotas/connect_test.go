package quotas

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"petgate/shared/testkit"
)

// Redis closes connections: when it is restarted, by its timeout, at an operator's word. The next decision takes another
// one; nobody is let go without Redis for it.
func TestAClosedConnectionIsNoOutage(t *testing.T) {
	server := testkit.StartRedis(t)
	l := openLimiter(t, Config{RedisURL: server.URL, Metrics: prometheus.NewRegistry()})
	options, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	operator := redis.NewClient(options)
	defer operator.Close()
	for n := range int64(20) {
		v, err := l.Take(Ask{Tenant: tenant(0), Limits: generous})
		if err != nil || v.Minute.Used != n+1 || l.Mode() != modeShared {
			t.Fatalf("decision %d: used %d, %s, %v", n, v.Minute.Used, l.Mode(), err)
		}
		if err := operator.ClientKillByFilter(background, "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
			t.Fatal(err)
		}
	}
}
