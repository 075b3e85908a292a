package service

import (
	"bytes"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"petgate/shared/testkit/must"
)

func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	f := func(container memlimit.Provider, want int64, logs string) {
		t.Helper()
		out.Reset()
		limitMemory(container, log)
		must.Equal(t, debug.SetMemoryLimit(-1), want, "the limit")
		if !strings.Contains(out.String(), logs) || (logs == "") != (out.Len() == 0) {
			t.Errorf("the log says %q", &out)
		}
	}
	tenGB := memlimit.Limit(10_000_000_000)
	t.Setenv("GOMEMLIMIT", "1GiB")
	f(tenGB, before, "")
	must.Do(t, os.Unsetenv("GOMEMLIMIT"))
	f(func() (uint64, error) { return 0, memlimit.ErrNoLimit }, before, "")
	f(func() (uint64, error) { return 0, memlimit.ErrNoCgroup }, before, "")
	f(tenGB, 8_000_000_000, "limitBytes=8000000000")
}
