package testkit

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit/must"
)

// ResidentBytes is the process's memory that is in RAM. Like the methods below, it reads /proc,
// which only Linux has.
func (p *Process) ResidentBytes(t testing.TB) int64 {
	t.Helper()
	_, rest, _ := strings.Cut(p.proc(t, "status"), "VmRSS:")
	var kilobytes int64
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		t.Fatalf("testkit: memory of process %d: %v", p.PID(), err)
	}
	return kilobytes << 10
}

// ProcessorTime is the time that the process has used of all processors.
func (p *Process) ProcessorTime(t testing.TB) time.Duration {
	t.Helper()
	_, rest, _ := strings.Cut(p.proc(t, "stat"), ") ") // proc(5): the 14th and 15th field are utime and stime
	var ticks int64
	for _, field := range strings.Fields(rest)[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatalf("testkit: processor time of process %d: %v", p.PID(), err)
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100) // Linux counts in hundredths on every machine
}

// Descriptors is how many file descriptors the process has open.
func (p *Process) Descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	must.Do(t, err)
	return len(entries)
}

func (p *Process) proc(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID(), file))
	must.Do(t, err)
	return string(text)
}

// ProcessorTime is the time that the server's present processes have used of all processors. It
// counts nanoseconds, where Process.ProcessorTime counts hundredths of a second: Postgres has one
// process per connection, and each time would be rounded.
func (s *Server) ProcessorTime(t testing.TB) time.Duration {
	t.Helper()
	pid := s.cmd.Process.Pid
	var total time.Duration
	for _, p := range append(children(pid), pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", p))
		if err != nil {
			continue // it ended meanwhile
		}
		var nanos int64
		if _, err := fmt.Sscan(string(text), &nanos); err != nil {
			t.Fatalf("testkit: processor time of process %d: %v", p, err)
		}
		total += time.Duration(nanos)
	}
	return total
}
