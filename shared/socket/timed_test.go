package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestTimed(t *testing.T) {
	const (
		idleTimeout  = 30 * time.Second
		readTimeout  = 4 * time.Second
		writeTimeout = 5 * time.Second
	)
	slack := Slack(readTimeout)
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := NewTimed(near, slack)
		defer c.Close()
		f := func(name string, timeout time.Duration, set func(time.Time) error, call func([]byte) (int, error)) {
			t.Helper()
			began := time.Now()
			if err := set(began.Add(timeout)); err != nil {
				t.Fatal(err)
			}
			_, err := call(make([]byte, 1))
			if late := time.Since(began) - timeout; !errors.Is(err, os.ErrDeadlineExceeded) || late < 0 || late > slack {
				t.Errorf("%s: %v, late by %v", name, err, late)
			}
		}
		f("idle", idleTimeout, c.SetReadDeadline, c.Read)
		f("read, sooner than before", readTimeout, c.SetReadDeadline, c.Read)
		f("write", writeTimeout, c.SetWriteDeadline, c.Write)

		// If each request sets a new deadline, the deadline passes only when no further request comes.
		go func() {
			for range 100 {
				time.Sleep(readTimeout / 2)
				_, _ = io.WriteString(far, "x")
			}
		}()
		for i := range 100 {
			_ = c.SetReadDeadline(time.Now().Add(readTimeout))
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
	})
}
