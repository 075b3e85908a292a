//go:build linux

package main

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// through returns both ends of a connection through a relay, and the relay's thread. It runs until the test process ends.
func through(t *testing.T, delay time.Duration) (near, far *net.TCPConn, thread int) {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	r, err := open(netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort(server.Addr().String()), delay)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(r.listener)
	if err != nil {
		t.Fatal(err)
	}
	// The connections that it accepts hold little, so writes to them wait.
	if err := unix.SetsockoptInt(r.listener, unix.SOL_SOCKET, unix.SO_SNDBUF, 64<<10); err != nil {
		t.Fatal(err)
	}
	started := make(chan int)
	go func() {
		runtime.LockOSThread()
		started <- unix.Gettid()
		for {
			if err := r.step(); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	thread = <-started
	client, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: bound.(*unix.SockaddrInet4).Port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	accepted, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	return client, accepted.(*net.TCPConn), thread
}

// Each piece carries the time at which it was sent.
func TestEachPieceIsDelayed(t *testing.T) {
	const delay, pieces = 5 * time.Millisecond, 20
	near, far, _ := through(t, delay)
	began := time.Now()
	for name, ends := range map[string][2]*net.TCPConn{"forth": {near, far}, "back": {far, near}} {
		go func() {
			for range pieces {
				_ = binary.Write(ends[0], binary.BigEndian, time.Since(began)) // a failure leaves the reader without data
			}
			_ = ends[0].CloseWrite()
		}()
		for i := range pieces {
			var sent time.Duration
			if err := binary.Read(ends[1], binary.BigEndian, &sent); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if took := time.Since(began) - sent; took < delay {
				t.Errorf("%s: piece %d took %v, less than %v", name, i, took, delay)
			}
		}
		if n, err := ends[1].Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%s: after the last piece %d bytes, %v", name, n, err)
		}
	}
}

// More bytes are under way than one read takes, or than the sockets hold. A signal may end a write that waits for its receiver, such as
// the signal by which Go's runtime preempts a thread.
func TestBytesKeepTheirOrder(t *testing.T) {
	near, far, thread := through(t, time.Millisecond)
	sent := make([]byte, 4<<20)
	_, _ = rand.Read(sent)
	for name, ends := range map[string][2]*net.TCPConn{"forth": {near, far}, "back": {far, near}} {
		_ = ends[1].SetReadBuffer(64 << 10)
		go func() {
			_, _ = ends[0].Write(sent) // a failure leaves the reader without data
			_ = ends[0].CloseWrite()
		}()
		var got []byte
		var err error
		for part := make([]byte, 64<<10); err == nil; {
			if err := unix.Tgkill(os.Getpid(), thread, unix.SIGURG); err != nil {
				t.Fatal(err)
			}
			var n int
			n, err = ends[1].Read(part)
			got = append(got, part[:n]...)
		}
		if err != io.EOF || !bytes.Equal(got, sent) {
			t.Errorf("%s: %d bytes, %v; want the %d that were sent", name, len(got), err, len(sent))
		}
	}
}
