package e2e_test

import (
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

var (
	revocations    = testkit.Size(6, 40)
	revocationsCut = testkit.Size(2, 10) // while the listening sessions are cut repeatedly
)

// confirmation is how keyadmin says that all gateways have applied a change.
var confirmation = regexp.MustCompile(`confirmed by (\d+) of (\d+) gateways in (\d+ (?:ms|s))`)

// revoke revokes a key, which all gateways have to confirm. It returns when the command ended, and the time for the
// confirmation as the command reports it.
func revoke(t *testing.T, f *fleet.Fleet, key fleet.Key) (over time.Time, took time.Duration) {
	t.Helper()
	begun := time.Now()
	done := f.Keyadmin("key", "revoke", key.ID, "--yes", "--wait", "20s")
	over = time.Now()
	said := confirmation.FindStringSubmatch(done.Stderr)
	if done.Code != 0 || said == nil || said[1] != said[2] {
		t.Fatalf("keyadmin key revoke: exit code %d\n%s", done.Code, done.Stderr)
	}
	if took, err := time.ParseDuration(compact(said[3])); err == nil && took < time.Second {
		return over, took
	}
	return over, over.Sub(begun).Round(time.Millisecond) // the command reports a time of a second or more in whole seconds
}

func compact(text string) string { return regexp.MustCompile(`\s`).ReplaceAllString(text, "") }

// revokeUnderLoad revokes keys one after the other while all gateways get requests with them. It returns how long each
// confirmation took. No request that starts after the end of the command may be answered 200.
func revokeUnderLoad(t *testing.T, f *fleet.Fleet, keys []fleet.Key) []time.Duration {
	t.Helper()
	l := fleet.StartLoad(t, keys[0].Token, 2, 4*time.Millisecond, f.Gateways...)
	took := make([]time.Duration, len(keys))
	for i, key := range keys {
		l.SetToken(key.Token)
		l.Await(t, key.Token, 200, 3, time.Time{})
		var over time.Time
		over, took[i] = revoke(t, f, key)
		l.Await(t, key.Token, 401, 5, over)
		for _, s := range l.Take() {
			if s.Status != 200 && s.Status != 401 || s.Status == 401 && s.Token != key.Token && s.Token != keys[max(i-1, 0)].Token {
				t.Errorf("%s answers %v", s.Gateway.ID, s.Reply)
			}
			if s.Token == key.Token && s.Status == 200 && s.Started.After(over) {
				t.Errorf("%s answers 200 to a request begun %v after the revocation was confirmed", s.Gateway.ID, s.Started.Sub(over))
			}
		}
	}
	l.End()
	slices.Sort(took)
	return took
}

func TestRevocation(t *testing.T) {
	t.Parallel()
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: redis, RedisPrefix: prefix, Gateways: 3, Upstreams: fleet.FixedUpstream(t), GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=0s"},
	})
	f.MustKeyadmin(append([]string{"tenant", "create", "acme"}, fleet.Unlimited...)...)
	var keys []fleet.Key
	for range revocations + revocationsCut {
		keys = append(keys, f.NewKey("acme"))
	}
	next := func(n int) (some []fleet.Key) {
		some, keys = keys[:n], keys[n:]
		return some
	}

	took := revokeUnderLoad(t, f, next(revocations))
	t.Logf("figure: %d revocations under load, 3 gateways on Postgres: confirmed in %v (median), %v (worst); no 200 afterwards",
		len(took), took[len(took)/2], slices.Max(took))
	stop := cutListeners(t, openDatabase(t, f))
	took = revokeUnderLoad(t, f, next(revocationsCut))
	cuts := stop()
	t.Logf("figure: %d revocations while %d listening sessions were cut: confirmed in %v (median), %v (worst); no 200 afterwards",
		len(took), cuts, took[len(took)/2], slices.Max(took))
	if cuts < 3 {
		t.Errorf("%d sessions cut, want 3 or more", cuts)
	}
}

// cutListeners ends the gateways' listening sessions again and again, until stop is called. stop returns how many sessions were
// ended.
func cutListeners(t *testing.T, db *database.DB) (stop func() int) {
	t.Helper()
	end, cut := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-end:
				cut <- n
				return
			case <-time.After(20 * time.Millisecond):
			}
			var ended int
			// The empty statement is a listener's ping. A new session also shows it, until its first statement.
			err := db.Get(&ended, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND backend_type = 'client backend' AND state = 'idle'
				AND (query LIKE 'LISTEN%' OR query = '' AND backend_start < now() - interval '8 seconds')`)
			if err != nil {
				t.Error(err)
			}
			n += ended
		}
	}()
	stop = sync.OnceValue(func() int {
		close(end)
		return <-cut
	})
	t.Cleanup(func() { stop() })
	return stop
}
