package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// keyShown is what keyadmin shows of a key.
type keyShown struct {
	fleet.Key
	Status      string    `json:"status"`
	GraceEndsAt time.Time `json:"graceEndsAt"`
	ReplacedBy  string    `json:"replacedBy"`
}

// show runs a command that prints JSON.
func show[T any](t testing.TB, f *fleet.Fleet, args ...string) (shown T) {
	t.Helper()
	out := f.MustKeyadmin(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		t.Fatalf("keyadmin %s printed %q: %v", strings.Join(args, " "), out, err)
	}
	return shown
}

// A key and its successor share one quota, and responses to the old key say when it ends. From then on, it is refused.
func TestRotation(t *testing.T) {
	t.Parallel()
	redis, prefix := testkit.Redis(t)
	s := openQuotaSite(t, fleet.Spec{Redis: redis, RedisPrefix: prefix, Gateways: 2}, "GATEWAY_BAN_AFTER=0")
	one, two := s.Gateways[0], s.Gateways[1]
	rotate := func(id, grace string) keyShown {
		return show[keyShown](t, s.Fleet, "key", "rotate", id, "--grace", grace, "--yes")
	}
	old := s.NewTenant("acme", "--minute", "10", "--day", "1000")
	if got := s.burst(old.Token, 5); !s.exactly(got[200], 5) {
		t.Errorf("the old key: %v", got)
	}
	fresh, again := rotate(old.ID, "1h"), rotate(old.ID, "1h")
	if fresh.Token == "" || again.Token != "" || again.ID != fresh.ID {
		t.Errorf("rotated to %s, and again to %s, with a token: %t, %t", fresh.ID, again.ID, fresh.Token != "", again.Token != "")
	}
	shown := show[keyShown](t, s.Fleet, "key", "show", old.ID)
	if left := time.Until(shown.GraceEndsAt); shown.ReplacedBy != fresh.ID || left > time.Hour || left < 50*time.Minute {
		t.Errorf("the old key is replaced by %s, with a grace of %v", shown.ReplacedBy, left)
	}
	if got := s.burst(fresh.Token, 7); !s.exactly(got[200], 5) { // used up by both together
		t.Errorf("the new key: %v", got)
	}
	// The header has whole seconds, and is not later than the end.
	field := one.MustAsk(t, old.Token).Header.Get("X-Key-Expires")
	expires, err := http.ParseTime(field)
	if late := expires.Sub(shown.GraceEndsAt); err != nil || late > 0 || late < -time.Second {
		t.Errorf("X-Key-Expires: %s, %v after the grace's end: %v", field, late, err)
	}

	s.MustKeyadmin("tenant", "set-quota", "acme", "--minute", "1000")
	short := rotate(fresh.ID, "2s")
	ends := show[keyShown](t, s.Fleet, "key", "show", fresh.ID).GraceEndsAt
	testkit.Eventually(t, fleet.ReplyWithin, "the grace ends", func() bool {
		got := one.MustAsk(t, fresh.Token)
		if got.Status == 401 && (time.Now().Before(ends) || !strings.Contains(got.Body, "was rotated and has ended")) {
			t.Errorf("%v before the grace's end: %v", time.Until(ends), got)
		}
		return got.Status == 401
	})
	if got := two.Want(t, short.Token, 200, ""); got.Header.Get("X-Key-Expires") != "" {
		t.Errorf("the last key expires: %v", got.Header)
	}
	t.Log("figure: a key and its successor on two gateways: 10 requests of a quota of 10, then both refused")
}
