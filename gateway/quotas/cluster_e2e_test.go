//go:build e2e

package quotas

import (
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// callsAt is how often a Redis server has run a command.
func callsAt(t testing.TB, server *goredis.Client, command string) int {
	t.Helper()
	info, err := server.Info(background, "commandstats").Result()
	must.Do(t, err)
	for line := range strings.Lines(info) {
		if stats, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
			var n int
			if _, err := fmt.Sscanf(stats, "%d", &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// While one master of a cluster is down, Current asks the others at most once a second for each tenant, as always.
func TestCurrentWhileAnotherMasterIsDown(t *testing.T) {
	urls := testkit.RedisCluster(t, 3)
	l := openQuotas(t, Config{RedisURL: strings.Join(urls, ","), Budget: redisBudget}).(*Shared)
	masters := make([]*goredis.Client, len(urls))
	for i, url := range urls {
		masters[i] = dial(t, url)
	}
	asks := make([]Request, 60)
	takeOfAll := func() {
		for i := range asks {
			asks[i] = asking(i+1, 10_000)
			mustTake(t, l, asks[i])
		}
	}
	takeOfAll()
	must.Do(t, masters[0].ConfigSet(background, "maxmemory", "1").Err())
	testkit.Eventually(t, 10*time.Second, "a master is down", func() bool {
		takeOfAll()
		return l.redis.IsDown()
	})
	var up []Request
	for _, ask := range asks {
		if !l.redis.IsDownFor(ask.Tenant) {
			up = append(up, ask)
		}
	}
	if len(up) == 0 || len(up) == len(asks) {
		t.Fatalf("%d of %d tenants are on masters that are up: the test shows nothing", len(up), len(asks))
	}
	calls := func() int { return callsAt(t, masters[1], "fcall") + callsAt(t, masters[2], "fcall") }
	before, began := calls(), time.Now()
	for range 50 {
		for _, ask := range up {
			if v, err := l.Current(ask); err != nil || v.Degraded {
				t.Fatalf("%+v, %v", v, err)
			}
		}
	}
	seconds := 1 + int(time.Since(began)/time.Second)
	if n := calls() - before; n > (seconds+1)*len(up) {
		t.Errorf("%d calls in less than %d s for %d tenants", n, seconds, len(up))
	}
	if !l.redis.IsDown() {
		t.Error("no master is down: the test shows nothing")
	}
}
