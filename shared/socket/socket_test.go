package socket_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"petgate/shared/socket"
)

// pair returns both ends of a connection over the network.
func pair(t *testing.T, network string) (near *socket.Conn, far net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialed, err := net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	near = socket.New(dialed)
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// pipe is a connection without a socket.
func pipe(t *testing.T) (near *socket.Conn, far net.Conn) {
	one, other := net.Pipe()
	t.Cleanup(func() { one.Close(); other.Close() })
	return socket.New(one), other
}

func forEach(t *testing.T, test func(*testing.T, *socket.Conn, net.Conn)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			near, far := pair(t, network)
			test(t, near, far)
		})
	}
	t.Run("pipe", func(t *testing.T) {
		near, far := pipe(t)
		test(t, near, far)
	})
}

// More than the kernel buffers, so that both directions have to wait for the other end.
const manyBytes = 8 << 20

func random(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBytesArriveBothWaysAtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, near *socket.Conn, far net.Conn) {
		there, back := random(t, manyBytes), random(t, manyBytes)
		failed := make(chan error, 2)
		go func() {
			n, err := near.Write(there)
			if n != len(there) && err == nil {
				err = io.ErrShortWrite
			}
			failed <- err
		}()
		go func() {
			_, err := far.Write(back)
			failed <- err
		}()
		gotThere := make(chan []byte)
		go func() {
			b := make([]byte, len(there))
			_, _ = io.ReadFull(far, b)
			gotThere <- b
		}()
		gotBack := make([]byte, len(back))
		if _, err := io.ReadFull(near, gotBack); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(gotBack, back) || !bytes.Equal(<-gotThere, there) {
			t.Error("other bytes arrived than were sent")
		}
		for range 2 {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestExchange(t *testing.T) {
	forEach(t, func(t *testing.T, near *socket.Conn, far net.Conn) {
		for _, size := range []int{1, 100, manyBytes, 1} {
			question := random(t, size)
			heard := make(chan []byte, 1)
			go func() {
				b := make([]byte, size)
				_, _ = io.ReadFull(far, b)
				heard <- b
				_, _ = io.WriteString(far, "answer")
			}()
			in := make([]byte, 64)
			n, err := near.Exchange(question, in)
			if err != nil || string(in[:n]) != "answer" {
				t.Fatalf("%d bytes: %q, %v", size, in[:n], err)
			}
			if !bytes.Equal(<-heard, question) {
				t.Errorf("%d bytes: others were heard", size)
			}
		}
	})
}

// A response that arrives before the goroutine waits for it must be found: the poller reports it only once.
func TestExchangeFindsEveryAnswer(t *testing.T) {
	near, far := pair(t, "tcp")
	go func() {
		b := make([]byte, 1)
		for {
			if _, err := far.Read(b); err != nil {
				return
			}
			if _, err := far.Write(b); err != nil {
				return
			}
		}
	}()
	if err := near.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	in := make([]byte, 2)
	for i := range 20_000 {
		out := []byte{byte(i)}
		if n, err := near.Exchange(out, in); err != nil || n != 1 || in[0] != out[0] {
			t.Fatalf("exchange %d: %v, %v", i, in[:n], err)
		}
		if err := near.Check(); err != nil {
			t.Fatalf("exchange %d: %v", i, err)
		}
	}
}

func TestDeadlines(t *testing.T) {
	near, far := pair(t, "tcp")
	go func() { _, _ = io.Copy(io.Discard, io.LimitReader(far, 1)) }()
	in := make([]byte, 1)
	for name, call := range map[string]func() error{
		"read":     func() error { _, err := near.Read(in); return err },
		"exchange": func() error { _, err := near.Exchange([]byte{1}, in); return err },
		"write":    func() error { _, err := near.Write(make([]byte, manyBytes)); return err },
	} {
		if err := near.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		var timeout net.Error
		if err := call(); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEnds(t *testing.T) {
	in := make([]byte, 1)
	t.Run("closed by the peer", func(t *testing.T) {
		near, far := pair(t, "tcp")
		far.Close()
		if n, err := near.Read(in); n != 0 || err != io.EOF {
			t.Errorf("%d, %v", n, err)
		}
	})
	t.Run("during an exchange", func(t *testing.T) {
		near, far := pair(t, "tcp")
		go func() {
			_, _ = far.Read(make([]byte, 1))
			far.Close()
		}()
		if n, err := near.Exchange([]byte{1}, in); n != 0 || err != io.EOF {
			t.Errorf("%d, %v", n, err)
		}
	})
	t.Run("reset", func(t *testing.T) {
		near, far := pair(t, "tcp")
		_ = far.(*net.TCPConn).SetLinger(0)
		far.Close()
		if _, err := near.Read(in); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v", err)
		}
		if _, err := near.Write([]byte{1}); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write: %v", err)
		}
		if _, err := near.Exchange([]byte{1}, in); !errors.Is(err, socket.ErrStale) {
			t.Errorf("exchange: %v", err)
		}
	})
	t.Run("closed here", func(t *testing.T) {
		near, _ := pair(t, "tcp")
		ended := make(chan error)
		go func() {
			_, err := near.Read(make([]byte, 1))
			ended <- err
		}()
		near.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the read under way: %v", err)
		}
		if _, err := near.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write: %v", err)
		}
	})
	t.Run("half", func(t *testing.T) {
		near, far := pair(t, "tcp")
		if err := near.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if n, err := far.Read(in); n != 0 || err != io.EOF {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// Data that arrived before the request was sent is not its response.
func TestExchangeOnAStaleConnectionSendsNothing(t *testing.T) {
	near, far := pair(t, "tcp")
	if _, err := far.Write([]byte("unasked")); err != nil {
		t.Fatal(err)
	}
	awaitStale(t, near)
	if n, err := near.Exchange([]byte("question"), make([]byte, 8)); n != 0 || !errors.Is(err, socket.ErrStale) {
		t.Errorf("%d, %v", n, err)
	}
	near.Close()
	if heard, _ := io.ReadAll(far); len(heard) > 0 {
		t.Errorf("%q was sent", heard)
	}
}

func TestCheck(t *testing.T) {
	near, far := pair(t, "tcp")
	if err := near.Check(); err != nil {
		t.Fatalf("a quiet connection: %v", err)
	}
	if _, err := far.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	awaitStale(t, near)
	if n, err := near.Read(make([]byte, 8)); n != 1 || err != nil {
		t.Fatalf("Check has taken what it found: %d, %v", n, err)
	}
	if err := near.Check(); err != nil {
		t.Errorf("quiet again: %v", err)
	}
	far.Close()
	awaitStale(t, near)
}

// awaitStale gives the kernel time to deliver.
func awaitStale(t *testing.T, c *socket.Conn) {
	t.Helper()
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if err := c.Check(); errors.Is(err, socket.ErrStale) {
			return
		}
	}
	t.Fatal("Check noticed nothing")
}
