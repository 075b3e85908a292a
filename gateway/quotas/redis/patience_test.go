package redis

import (
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/socket"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// late is a connection of a process that gets no CPU time while it waits. When it continues, its
// deadline has long passed.
type late struct {
	net.Conn
	pauses []time.Duration
}

func (c *late) Read(p []byte) (int, error) {
	if len(c.pauses) == 0 {
		return c.Conn.Read(p)
	}
	time.Sleep(c.pauses[0])
	c.pauses = c.pauses[1:]
	return 0, os.ErrDeadlineExceeded
}

// Time in which this process did not run does not count as silence of Redis.
func TestALateProcessReadsWhatHasArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		pauses := []time.Duration{2 * time.Second, 200 * time.Millisecond, 60 * time.Millisecond}
		c := &patientConn{Conn: socket.New(&late{here, pauses}), budget: 50 * time.Millisecond}
		go func() { _, _ = there.Write([]byte("answer")) }()
		answer := make([]byte, 10)
		if n, err := c.Read(answer); err != nil || string(answer[:n]) != "answer" {
			t.Errorf("read %q, %v", answer[:n], err)
		}
	})
}

// A Redis that is silent costs the budget, whatever deadlines go-redis sets, and the next call has
// a budget of its own.
func TestSilenceCostsTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		c := &patientConn{Conn: socket.New(here), budget: 50 * time.Millisecond}
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		for call := range 2 {
			go func() { _, _ = there.Read(make([]byte, 10)) }()
			must.Get[int](t)(c.Write([]byte("call")))
			began := time.Now()
			_, err := c.Read(make([]byte, 10))
			must.Equal(t, errors.Is(err, os.ErrDeadlineExceeded), true, "whether call %d is late: %v", call, err)
			must.Equal(t, time.Since(began), 50*time.Millisecond, "after how long call %d gave up", call)
		}
	})
}

// A Redis that was silent for the budget is not asked again: that would cost the budget again. One
// that breaks connections is asked three times.
func TestSilenceIsNotAskedAgain(t *testing.T) {
	listener := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	for _, want := range []uint32{1, 3} {
		client := must.Get[redis.UniversalClient](t)(connect("redis://"+listener.Addr().String(), 50*time.Millisecond))
		defer client.Close()
		s := newScript(client, "petgate:", quota.Product, takeScript)
		err := s.DecideBatch(always, 1, []store.Demand{demandOf(tenantNo(1), 10, 100)}, make([]store.Result, 1))
		if made := client.PoolStats().Misses; made != want ||
			isTimeout(err) != (want == 1) { // each call needs a connection of its own
			t.Errorf("%d calls were made, want %d; the last ended with %v", made, want, err)
		}
		go func() {
			for c, err := listener.Accept(); err == nil; c, err = listener.Accept() {
				_ = c.Close()
			}
		}()
	}
}

// A call whose answer is lost, once or twice, is charged once, on a single Redis and on a cluster:
// it is sent again under its number. A key's record and its tenant's are charged together.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	f := func(name string, start func(t *testing.T, lose *atomic.Int64) (urls string)) {
		t.Run(name, func(t *testing.T) {
			lose := new(atomic.Int64)
			r := open(t, Config{URL: start(t, lose)})
			all := int64(0)
			for n := range int64(60) {
				c, limit, times := callOf(tenantNo(int(n%4)), 10, 100), int64(10), n/4+1
				if n%2 == 1 {
					c.Key, c.Cap, limit = id.Key{1}, plan.Limits{Minute: 7}, 7
				}
				lost := 1 + n%2
				lose.Store(lost)
				v, outcome := r.Take(c)
				used, ofKey := v.Usages[quota.Day].Used, v.Usages[quota.KeyDay].Used
				if outcome != Decided || v.Granted == 1 != (times <= limit) || used != min(times, limit) ||
					c.IsCapped() && ofKey != used {
					t.Fatalf("request %d: outcome %d, %+v, %v", n, outcome, v, r.Cause())
				}
				all += lost - max(0, lose.Load())
			}
			if all < 60 || r.IsDown() {
				t.Errorf("%d answers lost, down: %t", all, r.IsDown())
			}
		})
	}
	f("single", func(t *testing.T, lose *atomic.Int64) string {
		return "redis://" + newTape(t, testkit.StartRedis(t).Addr, quota.Product, lose).addr
	})
	f("cluster", func(t *testing.T, lose *atomic.Int64) string {
		var urls []string
		var proxies []*tape
		for _, url := range testkit.RedisCluster(t, 3) {
			addr := strings.TrimPrefix(url, "redis://")
			p := newTape(t, addr, quota.Product, lose)
			_, port, _ := strings.Cut(p.addr, ":")
			node := redis.NewClient(&redis.Options{Addr: addr})
			defer node.Close()
			must.Do(t, node.ConfigSet(always, "cluster-announce-port", port).Err())
			proxies, urls = append(proxies, p), append(urls, "redis://"+p.addr)
		}
		for _, p := range proxies {
			node := redis.NewClient(&redis.Options{Addr: p.target})
			defer node.Close()
			testkit.Eventually(t, 20*time.Second, "the nodes tell the proxies' ports", func() bool {
				for _, shard := range node.ClusterShards(always).Val() {
					addr := net.JoinHostPort(shard.Nodes[0].IP, strconv.FormatInt(shard.Nodes[0].Port, 10))
					if !slices.ContainsFunc(proxies, func(p *tape) bool { return p.addr == addr }) {
						return false
					}
				}
				return true
			})
		}
		return strings.Join(urls, ",")
	})
}
