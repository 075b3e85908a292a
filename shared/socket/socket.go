// Package socket makes the system calls of busy connections where they cost least.
//
// A socket of Go's never blocks in the kernel: where there is nothing to read, or no room to write, the call returns and
// the goroutine waits for the poller. Still, the net package announces every call to the scheduler as one that may last.
// That keeps the scheduler's monitor awake, every 20 µs, and on a machine with more work than cores the monitor finds calls
// that do last, because their thread had to wait for its turn, and gives their work to further threads, which wait as well.
// A Conn makes the same calls unannounced. They return as soon as the kernel has copied the bytes.
//
// It is made for connections that each request uses several times. Any other is as well off with package net.
package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// ErrStale says that a connection on which nothing is expected was closed by its peer, or that there is something to be
// read.
var ErrStale = errors.New("socket: the connection was closed, or its peer spoke unasked")

// Conn is a connection of the net package's with calls of its own. It fails with errors of the same kinds, and heeds the same
// deadlines. Unlike with other connections, only one goroutine may read, check or exchange at a time, and only one may write
// or exchange; any may close it and set deadlines.
type Conn struct {
	net.Conn
	raw     syscall.RawConn
	reading transfer
	writing transfer
	isStale bool // what peek found

	// What the poller calls, made once: closures of each call would be an allocation a call.
	read, write, exchange, peek func(fd uintptr) (done bool)
}

// transfer is a call that is under way.
type transfer struct {
	bytes []byte
	n     int
	errno syscall.Errno
}

// New returns c with calls of its own. A connection that is no socket of the kernel's, as net.Pipe's, keeps the calls that
// it has.
func New(c net.Conn) *Conn {
	s := &Conn{Conn: c}
	if socket, ok := c.(syscall.Conn); ok {
		s.raw, _ = socket.SyscallConn()
	}
	s.read, s.write, s.exchange, s.peek = s.tryRead, s.tryWrite, s.tryExchange, s.tryPeek
	return s
}

// Read reads what is there, and waits for it if there is nothing.
func (c *Conn) Read(p []byte) (int, error) {
	if c.raw == nil || len(p) == 0 {
		return c.Conn.Read(p)
	}
	c.reading = transfer{bytes: p}
	return c.readWith(c.read)
}

// Write writes all of p.
func (c *Conn) Write(p []byte) (int, error) {
	if c.raw == nil || len(p) == 0 {
		return c.Conn.Write(p)
	}
	c.writing = transfer{bytes: p}
	err := c.raw.Write(c.write)
	t := c.writing
	c.writing = transfer{}
	if err == nil {
		err = c.wrap("write", t.errno)
	}
	return t.n, err
}

// Exchange writes all of out, waits for the answer and reads what is there of it. It spares the read that finds nothing
// yet, with which Read begins. If the peer has closed the connection or spoken before, it writes nothing and returns
// ErrStale.
func (c *Conn) Exchange(out, in []byte) (n int, err error) {
	if c.raw == nil || len(out) == 0 || len(in) == 0 {
		if _, err := c.Write(out); err != nil {
			return 0, err
		}
		return c.Read(in)
	}
	c.reading, c.writing = transfer{bytes: in}, transfer{bytes: out}
	n, err = c.readWith(c.exchange)
	t := c.writing
	c.writing = transfer{}
	switch {
	case err != nil:
		return n, err
	case c.isStale:
		return 0, ErrStale
	case t.errno != 0:
		return 0, c.wrap("write", t.errno)
	case len(t.bytes) > 0: // the kernel had no room for all of it
		if _, err := c.Write(t.bytes); err != nil {
			return 0, err
		}
		return c.Read(in)
	}
	return n, nil
}

// Check returns ErrStale unless the connection is open and nothing is to be read, as far as this host knows. It does not
// wait.
func (c *Conn) Check() error {
	if c.raw == nil {
		return nil
	}
	if err := c.raw.Read(c.peek); err != nil {
		return err
	}
	if c.isStale {
		return ErrStale
	}
	return nil
}

// CloseWrite ends what is sent, where the connection can do that alone.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// readWith waits until try is done with reading.
func (c *Conn) readWith(try func(uintptr) bool) (int, error) {
	err := c.raw.Read(try)
	t := c.reading
	c.reading = transfer{}
	switch {
	case err != nil:
		return 0, err
	case t.errno != 0:
		return 0, c.wrap("read", t.errno)
	case t.n == 0 && t.bytes != nil:
		return 0, io.EOF
	}
	return t.n, nil
}

// wrap makes of the kernel's error what the net package makes of it.
func (c *Conn) wrap(call string, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return &net.OpError{
		Op: call, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(),
		Err: os.NewSyscallError(call, errno),
	}
}

func (c *Conn) tryRead(fd uintptr) bool {
	t := &c.reading
	t.n, t.errno = read(fd, t.bytes)
	return t.errno != syscall.EAGAIN
}

func (c *Conn) tryWrite(fd uintptr) bool {
	t := &c.writing
	for len(t.bytes) > 0 {
		n, errno := write(fd, t.bytes)
		if errno == syscall.EAGAIN {
			return false
		}
		if errno != 0 {
			t.errno = errno
			return true
		}
		t.n += n
		t.bytes = t.bytes[n:]
	}
	return true
}

// tryExchange writes at first. The poller has forgotten by then what it knew, and reports all that comes from then on: so
// there is no need to look for an answer before it does.
func (c *Conn) tryExchange(fd uintptr) bool {
	if len(c.writing.bytes) == 0 {
		return c.tryRead(fd)
	}
	if c.tryPeek(fd); !c.isStale {
		c.tryWrite(fd)
		if len(c.writing.bytes) == 0 {
			return false
		}
	}
	c.reading.bytes = nil // Exchange goes on
	return true
}

func (c *Conn) tryPeek(fd uintptr) bool {
	c.isStale = peek(fd) != syscall.EAGAIN
	return true
}
