//go:build e2e

package metering

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dustin/go-humanize"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// The process is killed at each of its requests: before the receiver has taken it, before it answers, and after it has answered. The
// next process continues.
func TestKilledExport(t *testing.T) {
	program := testkit.Build(t, "petgate/keyadmin")
	u := newMetered(t, testkit.SQLite(t))
	u.export(CSV, 0)
	u.use(u.tenants[0], u.hour(4), "listPets", 9) // a correction
	token := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	var process atomic.Pointer[exec.Cmd]
	kill := func() { _ = process.Load().Process.Kill() }
	for name, fault := range map[string]func(w http.ResponseWriter, take func()){
		"not taken":        func(http.ResponseWriter, func()) { kill(); panic(http.ErrAbortHandler) },
		"taken, no answer": func(_ http.ResponseWriter, take func()) { take(); kill(); panic(http.ErrAbortHandler) },
		"answered": func(w http.ResponseWriter, take func()) {
			take()
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			kill()
		},
	} {
		m := newMeter(t)
		export := func() error {
			cmd := exec.Command(program, "usage", "export", "--format", "cloudevents", "--since", "2026-01-01", "--to", m.URL, "--token-file", token)
			cmd.Env = []string{"DATABASE_URL=" + u.url}
			must.Do(t, cmd.Start())
			process.Store(cmd)
			return cmd.Wait()
		}
		kills := 0
		m.fail(func(n int, w http.ResponseWriter, take func()) bool {
			if n%2 == 0 {
				return false
			}
			fault(w, take)
			return true
		})
		for export() != nil {
			if kills++; kills > 20 {
				t.Fatalf("%s: no end", name)
			}
		}
		if got, want := fmt.Sprint(m.charged(t)), fmt.Sprint(u.charged(u.hour(1))); got != want || kills < 2 {
			t.Errorf("%s: after %d kills the receiver has %s, want %s", name, kills, got, want)
		}
		t.Logf("figure: kill -9 of an export at every other request (%s): %d kills, %d events, %d of them sent twice with the same contents; "+
			"the receiver's sums are equal", name, kills, len(m.events), m.repeated)
	}
}

// The memory of an export does not grow with its length.
func TestExportInConstantMemory(t *testing.T) {
	const tenants, days, every = 10_000, 400, 8
	binaryPath := testkit.Build(t, "petgate/keyadmin")
	url := testkit.Postgres(t)
	db, err := database.Open(url)
	must.Do(t, err)
	defer db.Close()
	must.Do(t, db.Migrate(t.Context(), keystore.Migrations))
	names := make([]string, tenants)
	for i := range names {
		var tenant id.Tenant
		binary.BigEndian.PutUint64(tenant[:], uint64(i+1))
		names[i] = tenant.String()
	}
	text, err := json.Marshal(names)
	must.Do(t, err)
	if _, err := db.Exec(`INSERT INTO tenants SELECT value, value, 'free', 0, 0, false, 1, 0, 0, 0 FROM json_array_elements_text(CAST($1 AS json))`, string(text)); err != nil {
		t.Fatal(err)
	}
	begun, rows := time.Now(), 0
	for ago := 1; ago <= days-1; ago += every {
		hour := instant.Of(begun.Add(-time.Duration(24*ago) * time.Hour)).Truncate(time.Hour)
		if _, err := db.Exec(`INSERT INTO usage_hours SELECT id, $1, 'listPets', 0, true, '', 'ok', 7 FROM tenants`, hour); err != nil {
			t.Fatal(err)
		}
		rows += tenants
	}
	seeded := time.Since(begun)
	export := func(since string, events int) (peak int64, took time.Duration) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, binaryPath, "usage", "export", "--format", "cloudevents", "--since", since)
		cmd.Env = []string{"DATABASE_URL=" + url}
		var said strings.Builder
		cmd.Stderr = &said // standard output is discarded
		began := time.Now()
		if err := cmd.Run(); err != nil || !strings.Contains(said.String(), humanize.Comma(int64(events))+" events") {
			t.Fatalf("%v, want %d events: %s", err, events, said.String())
		}
		return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss, time.Since(began)
	}
	short, _ := export("40d", rows/10)
	long, took := export("400d", rows)
	if long > short*5/4 {
		t.Errorf("the peak is %d kB for 400 days and %d kB for 40 days", long, short)
	}
	t.Logf("figure: export of 400 days of 10,000 tenants, each active in one hour of every eighth day (%s events, seeded in %v): %v, at most %d MB "+
		"resident; of 40 days: %d MB", humanize.Comma(int64(rows)), seeded.Round(time.Second), took.Round(100*time.Millisecond), long/1024, short/1024)
}
