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
	"petgate/shared/testkit/must"
)

// pair returns both ends of a connection over the network.
func pair(t *testing.T, network string) (near *socket.Conn, far net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, address)
	must.Do(t, err)
	defer ln.Close()
	dialed := must.Get[net.Conn](t)(net.Dial(network, ln.Addr().String()))
	far, err = ln.Accept()
	if err != nil {
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
	must.Get[int](t)(rand.Read(b))
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
		must.Get[int](t)(io.ReadFull(near, gotBack))
		if !bytes.Equal(gotBack, back) || !bytes.Equal(<-gotThere, there) {
			t.Error("other bytes arrived than were sent")
		}
		for range 2 {
			must.Do(t, <-failed)
		}
	})
}

// A response that arrives before the goroutine waits for it must be found: the poller reports it
// only once.
func TestAsk(t *testing.T) {
	forEach(t, func(t *testing.T, near *socket.Conn, far net.Conn) {
		go func() { _, _ = io.Copy(far, far) }()
		must.Do(t, near.SetDeadline(time.Now().Add(time.Minute)))
		in := make([]byte, 2)
		for i := range 20_000 {
			must.Do(t, near.Ask([]byte{byte(i)}))
			if n, err := near.Read(in); n != 1 || err != nil || in[0] != byte(i) {
				t.Fatalf("request %d: %v, %v", i, in[:n], err)
			}
		}
		must.Do(t, near.Ask(nil))
	})
}

func TestAskWritesAll(t *testing.T) {
	forEach(t, func(t *testing.T, near *socket.Conn, far net.Conn) {
		request, got := random(t, manyBytes), make([]byte, manyBytes)
		failed := make(chan error, 1)
		go func() { failed <- near.Ask(request) }()
		must.Get[int](t)(io.ReadFull(far, got))
		must.Equal(t, bytes.Equal(got, request), true, "whether the request has arrived")
		far.Close()
		must.Do(t, <-failed)
	})
}

// Data that arrived before the request is not its response.
func TestAskOnAStaleConnectionWritesNothing(t *testing.T) {
	near, far := pair(t, "tcp")
	must.Get[int](t)(far.Write([]byte{1}))
	awaitStale(t, near)
	must.Equal(t, near.Ask([]byte{2}), socket.ErrStale, "ask")
	must.Get[int](t)(near.Read(make([]byte, 1)))
	must.Do(t, near.CloseWrite())
	must.Equal(t, len(must.Get[[]byte](t)(io.ReadAll(far))), 0, "the bytes that were sent")
}

func TestDeadlines(t *testing.T) {
	near, far := pair(t, "tcp")
	go func() { _, _ = io.Copy(io.Discard, io.LimitReader(far, 1)) }()
	expectDeadlines(t, near)
}

// expectDeadlines checks that a read and a write end at their deadline.
func expectDeadlines(t *testing.T, near *socket.Conn) {
	t.Helper()
	for i, call := range []func() error{
		func() error { _, err := near.Read(make([]byte, 1)); return err },
		func() error { return near.Ask(make([]byte, 1)) },
		func() error { _, err := near.Write(make([]byte, manyBytes)); return err },
		func() error { return near.Ask(make([]byte, 1)) }, // there is no room
	} {
		must.Do(t, near.SetDeadline(time.Now().Add(20*time.Millisecond)))
		done := make(chan error, 1)
		go func() { done <- call() }()
		select {
		case err := <-done:
			var timeout net.Error
			if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("call %d: %v", i, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("call %d: the thread blocks", i)
		}
	}
}

// setRead notes the read deadlines that it gets.
type setRead struct {
	net.Conn
	at    time.Time
	count int
}

func (s *setRead) SetReadDeadline(at time.Time) error {
	s.at, s.count = at, s.count+1
	return nil
}

func TestSlack(t *testing.T) {
	const slack = time.Second
	var set setRead
	c, now := socket.New(&set), time.Unix(1, 0)
	c.Slack = slack
	for range 10_000 {
		now = now.Add(time.Millisecond)
		must.Do(t, c.SetReadDeadline(now))
		must.Equal(t, !set.at.Before(now) && !set.at.After(now.Add(slack)), true, "whether %v is in time for %v",
			set.at, now)
	}
	must.Equal(t, set.count, 10, "changes in 10 s")
	for _, at := range []time.Time{now.Add(-time.Hour), {}, now} {
		must.Do(t, c.SetReadDeadline(at))
		must.Equal(t, set.at.IsZero() == at.IsZero() && set.at.Sub(at) <= slack, true, "whether %v is in time for %v",
			set.at, at)
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
		must.Equal(t, near.Check(), socket.ErrStale, "check")
		must.Equal(t, near.Ask(in), socket.ErrStale, "ask")
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
		if _, err := near.Write([]byte{1}); !errors.Is(err, net.ErrClosed) || near.Check() == nil || !near.HasEnded() {
			t.Errorf("write: %v", err)
		}
	})
	t.Run("after a request", func(t *testing.T) {
		near, far := pair(t, "tcp")
		go func() {
			_, _ = far.Read(make([]byte, 1))
			far.Close()
		}()
		must.Do(t, near.Ask(in))
		must.Equal(t, near.HasEnded(), true, "whether the connection has ended")
	})
	t.Run("half", func(t *testing.T) {
		near, far := pair(t, "tcp")
		must.Do(t, near.CloseWrite())
		must.Equal(t, errors.Is(near.Ask(in), syscall.EPIPE), true, "whether nothing can be asked")
		if n, err := far.Read(in); n != 0 || err != io.EOF {
			t.Errorf("%d, %v", n, err)
		}
	})
}

func TestCheck(t *testing.T) {
	near, far := pair(t, "tcp")
	must.Do(t, near.Check())
	must.Get[int](t)(far.Write([]byte{1}))
	awaitStale(t, near)
	must.Equal(t, near.HasEnded(), false, "whether a connection with unread data has ended")
	if n, err := near.Read(make([]byte, 8)); n != 1 || err != nil {
		t.Fatalf("Check has taken what it found: %d, %v", n, err)
	}
	must.Do(t, near.Check())
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
