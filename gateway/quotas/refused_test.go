package quotas

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"petgate/shared/testkit"
)

// A wrong password in REDIS_URL is named, and the gateway is not ready before Redis has accepted it once. If the password changes
// later, the gateway stays ready.
func TestRefusedPasswordIsNamed(t *testing.T) {
	server := testkit.StartRedis(t)
	admin := goredis.NewClient(&goredis.Options{Addr: server.Addr})
	defer admin.Close()
	do := func(args ...any) {
		t.Helper()
		if err := admin.Do(background, args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	do("ACL", "SETUSER", "petgate", "on", ">right", "~*", "+@all")
	var log testkit.Output
	const wrong = "wrong-5nCq"
	l := openQuotas(t, Config{RedisURL: "redis://petgate:" + wrong + "@" + server.Addr, Budget: redisBudget, Log: slog.New(slog.NewTextHandler(&log, nil))})
	named := func(l Quotas, isReady bool) {
		t.Helper()
		testkit.Eventually(t, 10*time.Second, "the cause is named", func() bool {
			problems := fmt.Sprint(l.Health(background))
			return strings.Contains(problems, "refuses the user or the password: correct REDIS_URL") && (l.Ready() == nil) == isReady
		})
	}
	named(l, false)
	testkit.Eventually(t, 10*time.Second, "the log names the cause", func() bool {
		return strings.Contains(log.String(), "correct REDIS_URL") && strings.Contains(log.String(), "ERROR")
	})
	if text := log.String(); strings.Contains(text, wrong) {
		t.Errorf("the log has the password: %s", text)
	}
	if v := mustTake(t, l, asking(1, 60)); !v.Degraded {
		t.Errorf("requests that arrive all the same are decided by shares: %+v", v)
	}
	healthy := func() {
		t.Helper()
		testkit.Eventually(t, 10*time.Second, "Redis decides", func() bool { return l.Ready() == nil && len(l.Health(background)) == 0 })
	}
	do("ACL", "SETUSER", "petgate", ">"+wrong)
	healthy()
	do("ACL", "SETUSER", "petgate", "<"+wrong)
	do("CLIENT", "KILL", "USER", "petgate")
	if v := mustTake(t, l, asking(1, 60)); !v.Degraded {
		t.Errorf("after the password has changed: %+v", v)
	}
	named(l, true)
	do("ACL", "SETUSER", "petgate", ">"+wrong, "-fcall", "-eval", "-evalsha")
	testkit.Eventually(t, 10*time.Second, "a missing right is named", func() bool {
		return strings.Contains(fmt.Sprint(l.Health(background)), "ACL SETUSER")
	})
	do("ACL", "SETUSER", "petgate", "+@all")
	healthy()
}
