package redis

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
)

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
		return newScript(client, "explain:", quota.Product, takeScript).Decide(background, d, make([]store.Result, 1))
	}
	// A Sentinel, and a Redis before 7, do not know the command.
	without := testkit.StartRedis(t, "--rename-command", "FCALL", "")
	forbidden := testkit.StartRedis(t, "--user", "default", "on", "nopass", "~*", "&*", "+@all", "-function")
	single := testkit.StartRedis(t)
	expired := testkit.NewAuthority(t).SaveServer(2, time.Now().Add(-time.Minute))
	port := strconv.Itoa(testkit.FreePort(t))
	testkit.StartRedis(t, "--tls-port", port, "--tls-cert-file", expired.Cert, "--tls-key-file", expired.Key, "--tls-auth-clients", "no", "--tls-ca-cert-file", expired.CA)
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
