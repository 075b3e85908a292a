package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"petgate/shared/testkit/must"
)

// StartSentinels starts three Sentinels of a master with one replica, named main, and returns their
// addresses when they know one another.
func StartSentinels(t testing.TB, master, replica *Server) (addrs []string) {
	t.Helper()
	host, port, _ := strings.Cut(master.Addr, ":")
	must := func(err error) {
		if err != nil {
			t.Fatalf("testkit: Sentinel: %v", err)
		}
	}
	must(command(replica.Addr, func(c *redis.Client) error { return c.ReplicaOf(background, host, port).Err() }))
	Eventually(t, startWithin, "the replica is connected", func() (is bool) {
		must(command(replica.Addr, func(c *redis.Client) error {
			is = strings.Contains(c.Info(background, "replication").Val(), "master_link_status:up")
			return nil
		}))
		return is
	})
	for range 3 {
		addrs = append(addrs, startSentinel(t, host, port))
	}
	Eventually(t, startWithin, "the Sentinels know one another", func() bool {
		for _, addr := range addrs {
			c := redis.NewSentinelClient(&redis.Options{Addr: addr})
			others, err := c.Sentinels(background, "main").Result()
			replicas, errOfReplicas := c.Replicas(background, "main").Result()
			_ = c.Close()
			if err != nil || errOfReplicas != nil || len(others) != 2 || len(replicas) != 1 {
				return false
			}
		}
		return true
	})
	return addrs
}

func startSentinel(t testing.TB, host, port string) (addr string) {
	dir, own := t.TempDir(), FreePort(t)
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf(`port %d
bind 127.0.0.1
dir %s
sentinel monitor main %s %s 2
sentinel down-after-milliseconds main 1500
sentinel failover-timeout main 10000
`, own, dir, host, port)
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	Start(t, "redis-server", nil, file, "--sentinel")
	return fmt.Sprintf("127.0.0.1:%d", own)
}
