//go:build e2e

package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// What a tenant has left of its quotas and its key are the same after a move to Postgres by a backup.
func TestMoveKeepsQuotas(t *testing.T) {
	l := newLocal(t)
	l.startReady(t)
	token := l.token(t)
	today := time.Now().UTC().YearDay()
	var last http.Header
	for range 7 {
		response, body := l.call(t, token, http.MethodGet, "/v1/pets", "")
		if last = response.Header; response.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", response.StatusCode, body)
		}
	}
	l.Signal(syscall.SIGINT)
	if code := l.ExitCode(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	url, backup := testkit.Postgres(t), filepath.Join(t.TempDir(), "backup")
	keyadmin := testkit.Build(t, "petgate/keyadmin")
	for _, step := range [][]string{{"sqlite:" + filepath.Join(l.dir, databasePath), "backup", backup}, {url, "restore", backup, "--yes"}} {
		p := testkit.Start(t, keyadmin, []string{"DATABASE_URL=" + step[0]}, step[1:]...)
		if code := p.ExitCode(t); code != 0 {
			t.Fatalf("keyadmin %s ends with %d\n%s%s", step[1], code, p.Stdout, p.Stderr)
		}
	}
	f := fleet.Start(t, fleet.Spec{Database: url, Gateways: 1})
	reply := f.Gateways[0].Want(t, token, http.StatusOK, "")
	day := func(field string) string {
		_, day, _ := strings.Cut(field, `"day";r=`)
		day, _, _ = strings.Cut(day, ";")
		return day
	}
	was, is := day(last.Get("RateLimit")), day(reply.Header.Get("RateLimit"))
	if (was != "993" || is != "992") && time.Now().UTC().YearDay() == today { // at midnight, the day begins again
		t.Errorf("the day had %s requests left before the move, and %s after one more request", was, is)
	}
}
