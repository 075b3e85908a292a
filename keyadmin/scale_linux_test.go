//go:build e2e

package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// The rows of TestScale. Each is made of its number n, which begins with 1.
const (
	scaleTenants = 20_000
	scaleKeys    = 1_000_000
	scaleEvents  = 500_000
)

// A list needs memory for the rows that it shows, not for all rows of the database: keyadmin may
// run beside a gateway.
func TestScale(t *testing.T) {
	program := testkit.Build(t, "petgate/keyadmin")
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		newMigrated(t, url)
		fillScale(t, url)
		const megabyte, startup = 1 << 20, 50 * time.Millisecond
		for _, test := range []struct {
			args     []string
			lines    int           // at least
			memory   int64         // at most
			cpu      time.Duration // at most; 0: as long as it takes
			contains string
		}{
			{args: []string{"audit", "-n", "5"}, lines: 6, memory: 30 * megabyte, cpu: startup, contains: "key.revoked"},
			{
				args: []string{"audit", "-n", "5", "--kind", "tenant"}, lines: 6, memory: 30 * megabyte, cpu: startup,
				contains: "tenant.created",
			},
			{args: []string{"key", "list", "-n", "30"}, lines: 31, memory: 30 * megabyte, cpu: startup, contains: "key_"},
			{args: []string{"key", "list", "tenant-00001", "-o", "csv"}, lines: 51, memory: 30 * megabyte, cpu: startup},
			{args: []string{"key", "list", "-o", "csv"}, lines: scaleKeys + 1, memory: 50 * megabyte},
			{args: []string{"audit", "-o", "json"}, lines: scaleEvents, memory: 50 * megabyte},
			{args: []string{"export"}, lines: scaleKeys, memory: 100 * megabyte},
			{args: []string{"usage", "export", "--format", "csv", "--since", "30d"}, lines: scaleEvents, memory: 50 * megabyte},
		} {
			var said scaleOutput
			peak, cpu := measured(t, program, url, &said, test.args...)
			what := strings.Join(test.args, " ")
			t.Logf("figure: %s with %d keys: %d MB, %v of CPU time, %d lines", what, scaleKeys, peak/megabyte,
				cpu.Round(time.Millisecond), said.lines)
			if said.lines < test.lines || !bytes.Contains(said.begin, []byte(test.contains)) {
				t.Errorf("%s prints %d lines, want %d: %.300s", what, said.lines, test.lines, said.begin)
			}
			if peak > test.memory {
				t.Errorf("%s takes %d MB, want at most %d", what, peak/megabyte, test.memory/megabyte)
			}
			if test.cpu != 0 && cpu > test.cpu {
				t.Errorf("%s takes %v of CPU time, want at most %v", what, cpu, test.cpu)
			}
		}
	})
}

// scaleOutput counts lines, and keeps the first.
type scaleOutput struct {
	lines int
	begin []byte
}

func (o *scaleOutput) Write(p []byte) (int, error) {
	o.lines += bytes.Count(p, []byte("\n"))
	if len(o.begin) < 4096 {
		o.begin = append(o.begin, p...)
	}
	return len(p), nil
}

// measured runs a command and returns the most memory that it had resident, and its CPU time. The
// system's own figure of the memory is not used: a new process begins with that of its parent.
func measured(t *testing.T, program, url string, out io.Writer, args ...string) (peak int64, cpu time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"DATABASE_URL=" + url}
	cmd.Stdout = out
	var said strings.Builder
	cmd.Stderr = &said
	must.Do(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil || peak == 0 {
				t.Fatalf("%s: %v, %d bytes: %s", args, err, peak, said.String())
			}
			return peak, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		case <-look.C: // the peak only grows, so the last look before the end is the one that counts
			if program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid)); program == cmd.Path {
				peak = max(peak, residentPeak(cmd.Process.Pid))
			}
		}
	}
}

func residentPeak(pid int) int64 {
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), "VmHWM:"); found {
			kilobytes, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}

func fillScale(t *testing.T, url string) {
	t.Helper()
	db := must.Get[*database.DB](t)(database.OpenPatient(url, false))
	defer db.Close()
	numbers := "generate_series(1, %d) AS r(n)"
	hash := "sha256(CAST(CAST(n AS TEXT) AS BYTEA))"
	digits := "lpad(to_hex(%s), 16, '0')"
	if db.Dialect() == database.SQLite {
		numbers = "(WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < %d) SELECT n FROM r)"
		hash = "randomblob(32)"
		digits = "printf('%%016x', %s)"
	}
	now := instant.Of(time.Now())
	tenant := "'ten_' || " + fmt.Sprintf(digits, fmt.Sprintf("n %% %d", scaleTenants))
	key := "'key_' || " + fmt.Sprintf(digits, "CAST(n AS BIGINT) * 7919")
	name := "'tenant-' || substr(CAST(100000 + n AS TEXT), 2)"
	for _, fill := range []struct {
		rows  int
		query string
	}{
		{scaleTenants, `INSERT INTO tenants (id, name, plan, minute_limit, day_limit, suspended, created_at)
			SELECT ` + tenant + `, ` + name + `, 'free', 0, 0, false, 1 FROM `},
		{scaleKeys, `INSERT INTO tenant_keys (id, tenant_id, hash, name, hint, environment, scopes, allow_list,
			created_at, expires_at, revoked_at, grace_ends_at, replaced_by, last_used_at)
			SELECT ` + key + `, ` + tenant + `, ` + hash + `, 'ci', 'abcd', 'live', 'pets:read pets:write',
			'', n, 0, 0, 0, '', 0 FROM `},
		{scaleEvents, `INSERT INTO events (id, uuid, at, actor, kind, tenant_id, key_id, plan, before_json, after_json)
			SELECT n, 'u', ` + fmt.Sprint(int64(now)-scaleEvents) + ` + n, 'keyadmin:ada',
			CASE WHEN n % 100000 < 10 THEN 'tenant.created' ELSE 'key.revoked' END, ` + tenant + `, ` + key + `,
			'', '', '{"name":"ci"}' FROM `},
		{scaleEvents, `INSERT INTO usage_hours (tenant_id, hour, operation, correction, charged, key_id, outcome, requests)
			SELECT ` + tenant + `, ` + fmt.Sprint(int64(now.Truncate(time.Hour))) +
			fmt.Sprintf(` - CAST(1 + n / %d AS BIGINT) * 3600000, 'listPets', 0, true, '', 'ok', 7 FROM `,
				scaleTenants)},
	} {
		must.Get[sql.Result](t)(db.Exec(fill.query + fmt.Sprintf(numbers, fill.rows)))
	}
	must.Get[sql.Result](t)(db.Exec(`ANALYZE`))
}

// Ten thousand tenants in one document take at most 30 s.
func TestApplyTenThousandTenants(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newMigrated(t, url)
		text := "version: 1\ntenants:\n"
		for n := range 10_000 {
			text += fmt.Sprintf("- {name: tenant-%05d, plan: enterprise, minute: %d, day: 100000}\n", n, n+1)
		}
		path, begin := s.file(text), time.Now()
		s.want(exitDone, "Applied 10,000 changes.", "apply", path, "--yes")
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		s.want(exitDone, "There is nothing to change.", "diff", path)
	})
}
