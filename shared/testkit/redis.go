package testkit

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/shared/testkit/must"
)

var sharedRedis lazy

// Redis returns the URL of a shared server and a key prefix that no other test uses. A test that
// flushes, configures or stops a server has to use StartRedis.
func Redis(t testing.TB) (url, prefix string) {
	t.Helper()
	url = os.Getenv("TEST_REDIS_URL")
	if url == "" {
		url = sharedRedis.get(t, func() (*Server, error) { return openRedis() }).URL
	}
	return url, fresh("test") + ":"
}

// StartRedis returns a server for this test only. Arguments are those of redis-server, such as
// "--appendonly", "yes"; without it, the server forgets everything when it ends.
func StartRedis(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := openRedis(args...)
	must.Do(t, err)
	t.Cleanup(s.remove)
	return s
}

func openRedis(args ...string) (*Server, error) {
	binary, ok := findBinary("redis-server")
	if !ok {
		return nil, missing("Redis (redis-server)")
	}
	dir, err := makeDir(dataDir(), nil)
	if err != nil {
		return nil, err
	}
	return openOnFreePort(dir, func(port int) *Server {
		addr := loopback(port)
		line := []string{
			binary, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
			"--save", "", "--appendonly", "no", "--daemonize", "no",
		}
		return &Server{
			URL:  "redis://" + addr,
			Addr: addr,
			spec: spec{
				name: "Redis", dir: dir, args: append(line, args...), stop: syscall.SIGKILL,
				ping: pingRedis,
			},
		}
	})
}

// Not go-redis: it logs and repeats every refused connection while the server starts.
func pingRedis(s *Server) error {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && answer != "+PONG\r\n" {
		err = fmt.Errorf("it answers %q", answer)
	}
	return err
}

var background = context.Background()

// command runs f with a new client.
func command(addr string, f func(*redis.Client) error) error {
	options := redis.Options{Addr: addr, PoolSize: 1, MaxRetries: -1}
	options.DialTimeout, options.ReadTimeout = startWithin, startWithin
	c := redis.NewClient(&options)
	defer c.Close()
	return f(c)
}

// RedisCluster returns the URLs of a private Redis Cluster of masters.
func RedisCluster(t testing.TB, nodes int) (urls []string) {
	t.Helper()
	for _, s := range RedisClusterOf(t, nodes, 0) {
		urls = append(urls, s.URL)
	}
	return urls
}

// RedisClusterOf returns the servers of a private Redis Cluster: first the masters, then replicas
// of them in turn.
func RedisClusterOf(t testing.TB, masters, replicas int, args ...string) []*Server {
	t.Helper()
	const slots = 16384
	servers := make([]*Server, masters+replicas)
	ids := make([]string, len(servers))
	for i := range servers {
		servers[i] = StartRedis(t,
			append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000"}, args...)...)
		host, port, _ := strings.Cut(servers[0].Addr, ":")
		err := command(servers[i].Addr, func(c *redis.Client) (err error) {
			// Distinct epochs before the nodes meet; otherwise they would first have to agree on
			// them.
			if err := c.Do(background, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
				return err
			}
			if ids[i], err = c.ClusterMyID(background).Result(); err != nil {
				return err
			}
			if i < masters {
				if err := c.ClusterAddSlotsRange(background, i*slots/masters, (i+1)*slots/masters-1).Err(); err != nil {
					return err
				}
			}
			return c.ClusterMeet(background, host, port).Err()
		})
		if err != nil {
			t.Fatalf("testkit: cluster node %d: %v", i, err)
		}
	}
	knows := func(s *Server, ask func(*redis.Client) (string, error), want ...string) bool {
		answer := ""
		err := command(s.Addr, func(c *redis.Client) (err error) {
			answer, err = ask(c)
			return err
		})
		for _, one := range want {
			if !strings.Contains(answer, one) {
				return false
			}
		}
		return err == nil
	}
	Eventually(t, startWithin, "every node of the Redis Cluster knows all slots", func() bool {
		for _, s := range servers {
			info := func(c *redis.Client) (string, error) { return c.ClusterInfo(background).Result() }
			if !knows(s, info, "cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d", len(servers))) {
				return false
			}
		}
		return true
	})
	for i := 0; replicas == 0 && i < masters; i++ { // nothing would take over from a node that a busy machine stops
		patient := func(c *redis.Client) error { return c.ConfigSet(background, "cluster-node-timeout", "30000").Err() }
		must.Do(t, command(servers[i].Addr, patient))
	}
	for i := masters; i < len(servers); i++ {
		replicate := func(c *redis.Client) error { return c.ClusterReplicate(background, ids[i%masters]).Err() }
		if err := command(servers[i].Addr, replicate); err != nil {
			t.Fatalf("testkit: cluster node %d: %v", i, err)
		}
		Eventually(t, startWithin, "a node replicates its master", func() bool {
			info := func(c *redis.Client) (string, error) { return c.Info(background, "replication").Result() }
			return knows(servers[i], info, "master_link_status:up") && knows(servers[i%masters], info, "state=online")
		})
	}
	return servers
}
