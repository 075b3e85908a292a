package directory

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
)

var (
	tenantsLoaded = testkit.Size(500, 25_000)
	keysLoaded    = testkit.Size(5_000, 250_000)
	bogusLookups  = testkit.Size(20_000, 1_000_000)
	lookupsTimed  = testkit.Size(20_000, 1_000_000)
	allocations   = testkit.Size(50_000, 1_000_000)
)

// measurement is what one process finds out about its directory.
type measurement struct {
	Keys                          int
	Load, Snapshot, FromSnapshot  time.Duration
	LoadCPU                       time.Duration
	Resident, Peak                int64 // bytes
	AfterBogus, Churned           int64
	BogusFound                    int
	LookupNanos, LookupNanosTwice float64 // alone, and on two cores at once
}

// measure loads and looks up as a gateway does, in a process that does nothing else.
func measure() error {
	ctx := context.Background()
	db, err := database.Open(os.Getenv("DIRECTORY_TEST_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	var m measurement
	begun := time.Now()
	d, err := Open(ctx, keystore.New(db, nil, nil, "gw-1"), Config{
		GatewayID: "gw-1", Snapshot: filepath.Join(os.Getenv("DIRECTORY_TEST_DIR"), "snapshot"),
		Loaded: func(_, _ int) { // as a gateway does with a million keys
			debug.SetGCPercent(30)
			debug.FreeOSMemory()
		},
	})
	if err != nil {
		return err
	}
	if err := d.Ready(); err != nil {
		return err
	}
	m.Load = time.Since(begun)
	m.LoadCPU = cpu()
	m.Keys = d.state.Load().keys.len
	m.Resident, m.Peak = resident("VmRSS"), resident("VmHWM")

	db.Close() // statements fail from now on
	for i := range uint64(bogusLookups) {
		if _, found := d.Lookup(bogus(i)); found {
			m.BogusFound++
		}
	}
	m.AfterBogus = resident("VmRSS")

	n := m.Keys
	m.LookupNanos = lookups(d, n, 1)
	m.LookupNanosTwice = lookups(d, n, 2)

	churn()
	m.Churned = resident("VmRSS")
	begun = time.Now()
	d.snapshot.invalidate()
	if err := d.takeSnapshot(); err != nil {
		return err
	}
	m.Snapshot = time.Since(begun)
	begun = time.Now()
	next := newState(&d.versions)
	if _, err := readSnapshot(d.cfg.Snapshot, "gw-1", next.rows(next.setBan)); err != nil {
		return err
	}
	if next.keys.len != m.Keys {
		return fmt.Errorf("the snapshot has %d keys of %d", next.keys.len, m.Keys)
	}
	m.FromSnapshot = time.Since(begun)
	return json.NewEncoder(os.Stdout).Encode(m)
}

var garbage []byte

// churn allocates memory as many requests would, so that the heap reaches the size at which it is collected.
func churn() {
	for range allocations {
		garbage = make([]byte, 500)
	}
}

// lookups returns the nanoseconds of one lookup when that many cores look up at once.
func lookups(d *Directory, keys, cores int) float64 {
	hashes := make([][32]byte, min(keys, 50_000))
	for i := range hashes {
		hashes[i] = mass("hash", i*(keys/len(hashes)))
	}
	done := make(chan int, cores)
	begun := time.Now()
	for range cores {
		go func() {
			missed := 0
			for i := range lookupsTimed {
				if e, ok := d.Lookup(hashes[i%len(hashes)]); !ok || !e.Limits.IsSet() {
					missed++
				}
			}
			done <- missed
		}()
	}
	for range cores {
		if missed := <-done; missed > 0 {
			panic(fmt.Sprintf("bug: %d keys not found", missed))
		}
	}
	return float64(time.Since(begun).Nanoseconds()) / float64(lookupsTimed)
}

// cpu returns the processor time of this process.
func cpu() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// resident reads one of this process's figures, in bytes, from /proc; without /proc, it returns the memory that Go got from the
// system.
func resident(field string) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.Sys - m.HeapReleased)
	}
	_, rest, _ := strings.Cut(string(status), field+":")
	kilobytes, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	return kilobytes << 10
}

// This test uses SQLite. A test in deploy/e2e loads a million keys from Postgres into a built gateway.
func TestScale(t *testing.T) {
	const megabyte = 1 << 20
	url := testkit.SQLite(t)
	db := openDB(t, url)
	seed(t, db, tenantsLoaded, keysLoaded)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "DIRECTORY_TEST_ROLE=measure", "DIRECTORY_TEST_URL="+url, "DIRECTORY_TEST_DIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var m measurement
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	t.Logf("figure: %d keys of %d tenants from %s: loaded in %v (%v of CPU), resident %d MB (peak %d MB, at work %d MB)",
		m.Keys, tenantsLoaded, db.Dialect(), m.Load.Round(time.Millisecond), m.LoadCPU.Round(time.Millisecond), m.Resident/megabyte, m.Peak/megabyte, m.Churned/megabyte)
	t.Logf("figure: look-up %.0f ns, %.0f ns on two cores at once; %d bogus look-ups: %+d kB", m.LookupNanos, m.LookupNanosTwice,
		bogusLookups, (m.AfterBogus-m.Resident)>>10)
	t.Logf("figure: snapshot written in %v, read in %v", m.Snapshot.Round(time.Millisecond), m.FromSnapshot.Round(time.Millisecond))
	if m.Keys != keysLoaded || m.BogusFound != 0 {
		t.Errorf("%d keys loaded, want %d; %d bogus ones found", m.Keys, keysLoaded, m.BogusFound)
	}
	if grown := m.AfterBogus - m.Resident; grown > 10*megabyte {
		t.Errorf("bogus look-ups took %d MB", grown/megabyte)
	}
	// A million keys take 4.5 to 6 s of processor time on an idle machine, and more where neighbours make each cache miss slower: only a
	// load that costs several times as much is a fault. SQLite's driver takes 60 % of the time, half of it to lock and unlock the
	// connection for each column: it offers no way to turn this off. Reading the fields of a row takes 22 %, and storing the record 12 %.
	if !raceEnabled && (m.LoadCPU > 6*time.Second || max(m.Peak, m.Churned) > 100*megabyte) {
		t.Errorf("load took %v of CPU, want at most 6 s; peak %d MB, at work %d MB, want at most 100", m.LoadCPU,
			m.Peak/megabyte, m.Churned/megabyte)
	}
}
