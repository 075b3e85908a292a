// Package testkit gives tests real servers and real processes.
//
// Postgres and Redis run as private servers on free loopback ports: one of each per test process,
// started at its first use, and more for tests that stop, kill or pause a server. They end with the
// test process, also if it is killed: a shell reads from a pipe and kills the servers when the pipe
// closes. TEST_DATABASE_URL and TEST_REDIS_URL name existing servers to use instead of the shared
// ones. If a server is missing, the test fails with a message that says what to do; it never skips.
//
// All functions are safe for parallel tests. A function that has the test as a parameter ends it
// with Fatal if it fails.
package testkit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"petgate/shared/testkit/must"
)

// EachDatabase runs f as a subtest on a fresh database of each kind.
func EachDatabase(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) { f(t, Postgres(t)) })
	t.Run("sqlite", func(t *testing.T) { f(t, SQLite(t)) })
}

var sqliteFiles watchedDir

// SQLite returns the URL of a database file that does not exist yet, in a directory of its own,
// which is removed when the test ends.
func SQLite(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(sqliteFiles.get(t, dataDir()), "")
	must.Do(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return "sqlite:" + filepath.Join(dir, "test.db")
}

// Eventually waits until cond is true, and fails the test if that takes longer than the given time.
// It checks at least every 20 ms.
func Eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	if !Await(within, cond) {
		t.Fatalf("not within %v: %s", within, what)
	}
}

// Await is Eventually for processes without a test. It returns false if cond stayed false.
func Await(within time.Duration, cond func() bool) bool {
	deadline := time.Now().Add(within)
	for pause := time.Millisecond; !cond(); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// FreePort returns a free loopback TCP port, from a range that kernels do not use for outgoing
// connections: only another listener can take it. The same holds for port+10000, the bus of a Redis
// Cluster node. Until the test ends, no other test of this machine gets the port, also if nothing
// listens on it.
func FreePort(t testing.TB) int {
	t.Helper()
	port, reservation, err := reservePort()
	must.Do(t, err)
	t.Cleanup(func() { _ = reservation.Close() })
	return port
}

// reservePort draws a free port. Its reservation is a UDP socket with the same number: all test
// processes see it, and the kernel closes it when its process ends.
func reservePort() (port int, reservation net.PacketConn, err error) {
	for range 100 {
		port = 10_000 + mathrand.IntN(10_000)
		reservation, err = new(net.ListenConfig).ListenPacket(context.Background(), "udp", loopback(port))
		if err != nil {
			continue
		}
		if isFree(port) && isFree(port+10_000) {
			return port, reservation, nil
		}
		_ = reservation.Close()
	}
	return 0, nil, errors.New("testkit: no free port in 100 draws")
}

func isFree(port int) bool {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", loopback(port))
	if err != nil {
		return false
	}
	return ln.Close() == nil
}

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// fresh returns a name that no other test uses.
func fresh(prefix string) string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	return prefix + hex.EncodeToString(random[:])
}

// cure ends every message about a missing server.
const cure = "run deploy/services.sh, which finds or installs what the tests need"

func missing(what string) error { return fmt.Errorf("testkit: no %s on this machine: %s", what, cure) }
