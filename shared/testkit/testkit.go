// Package testkit gives tests real servers and real processes.
//
// Postgres and Redis run as private servers on free loopback ports: one of each per test process, started when first
// asked for, and as many more as a test wants to stop, kill or pause. They end with the test process, however it ends:
// a watching shell holds the read end of a pipe and kills them when the write end closes. TEST_DATABASE_URL and
// TEST_REDIS_URL replace the shared ones by servers that run already. A missing server fails the test with the cure; it
// is never a reason to skip.
//
// All functions are safe for parallel tests, and end the test with Fatal when they cannot do their work.
package testkit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// EachDatabase runs f as a subtest on a fresh database of each kind.
func EachDatabase(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) { f(t, Postgres(t)) })
	t.Run("sqlite", func(t *testing.T) { f(t, SQLite(t)) })
}

// SQLite returns the URL of a database file that does not exist yet, in a directory that ends with the test.
func SQLite(t testing.TB) string {
	return "sqlite:" + filepath.Join(t.TempDir(), "test.db")
}

// Eventually waits until cond holds and fails the test if it does not within the given time. It looks often, at least
// every 20 ms, so the wait costs little more than what is waited for.
func Eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	if !poll(within, cond) {
		t.Fatalf("not within %v: %s", within, what)
	}
}

func poll(within time.Duration, cond func() bool) bool {
	deadline := time.Now().Add(within)
	for pause := time.Millisecond; !cond(); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// FreePort returns a loopback TCP port that nobody listens on. It lies below the range from which kernels draw ports for
// outgoing connections, so that only another listener can take it; port+10000, the bus of a Redis Cluster node, as well.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func freePort() (int, error) {
	for range 100 {
		port := 10_000 + mathrand.IntN(12_000)
		if isFree(port) && isFree(port+10_000) {
			return port, nil
		}
	}
	return 0, errors.New("testkit: no free port in 100 draws")
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

// cure is the end of every message about a missing server.
const cure = "run deploy/services.sh, which finds or installs what the tests need"

func missing(what string) error { return fmt.Errorf("testkit: no %s on this machine: %s", what, cure) }
