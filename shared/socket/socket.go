// Package socket makes the system calls of busy connections cheaper. It is for connections that
// every request uses. For others, use package net.
//
// A socket of package net never blocks in the kernel: if a call cannot continue, it returns, and
// the goroutine waits for the poller. Package net still announces every call to the scheduler as
// one that may block. The scheduler's monitor then checks every 20 µs. On a machine with more work
// than cores, a thread may lose its core during a call, and the monitor starts another thread. A
// Conn makes the same calls unannounced. Each copies at most 64 KiB. A Conn also needs no call that
// finds no data yet (see Ask), and seldom moves a timer of the runtime (see Slack).
package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// ErrStale says that an idle connection was closed by its peer, or that the peer has sent something
// on it.
var ErrStale = errors.New("socket: the idle connection was closed, or its peer sent something on it")

// UsualSlack is the Slack of connections whose timeouts are seconds.
const UsualSlack = 50 * time.Millisecond

// callBytesMax limits one quiet call: the goroutine cannot be preempted while the kernel copies.
const callBytesMax = 64 << 10

// Conn is a connection of package net with calls of its own. Its errors and deadlines are those of
// package net. Only one goroutine at a time may call Read, Check or Ask, and only one may call
// Write or Ask. Any goroutine may close it and set deadlines, which are late by up to Slack.
type Conn struct {
	net.Conn
	// Slack is how much later than asked a deadline is set. It then stays while it is not too early
	// for the next ones. It must not change when the connection is in use.
	Slack time.Duration

	raw     syscall.RawConn
	reads   deadline
	writes  deadline
	reading transfer
	writing transfer
	isStale bool // the result of the last peek
	isEnded bool // also

	// The callbacks of raw. They are made once, because a closure would cost an allocation in each
	// call.
	read, write, ask, peek func(fd uintptr) (done bool)
}

// transfer is a read or a write in progress.
type transfer struct {
	bytes []byte
	n     int
	errno syscall.Errno
}

// New returns c with quiet calls. A connection without a socket, such as net.Pipe's, keeps its own
// calls.
func New(c net.Conn) *Conn {
	s := &Conn{Conn: c}
	if socket, ok := c.(syscall.Conn); ok {
		s.raw, _ = socket.SyscallConn()
	}
	s.read, s.write = s.tryRead, s.tryWrite
	s.ask, s.peek = s.tryAsk, s.tryPeek
	return s
}

// Read reads the data that has arrived, and waits if there is none.
func (c *Conn) Read(p []byte) (int, error) {
	if c.raw == nil || len(p) == 0 {
		return c.Conn.Read(p)
	}
	c.reading = transfer{bytes: p}
	err := c.raw.Read(c.read)
	t := c.reading
	c.reading = transfer{}
	switch {
	case err != nil:
		return 0, err
	case t.errno != 0:
		return 0, c.wrap("read", t.errno)
	case t.n == 0:
		return 0, io.EOF
	}
	return t.n, nil
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

// Ask writes all of p, a request, and waits until its response may be read: a Read without Ask
// would first look for it in vain. If the connection is closed or has data before, Ask writes
// nothing and returns ErrStale. Its deadline is that of reads. If the kernel has no room for all of
// p at once, Ask is like Write.
func (c *Conn) Ask(p []byte) error {
	if c.raw == nil || len(p) == 0 {
		_, err := c.Write(p)
		return err
	}
	c.writing = transfer{bytes: p}
	err := c.raw.Read(c.ask)
	t := c.writing
	c.writing = transfer{}
	switch {
	case err != nil:
		return err
	case c.isStale:
		return ErrStale
	case t.errno != 0:
		return c.wrap("write", t.errno)
	case len(t.bytes) > 0: // the kernel had no room for it
		_, err = c.Write(t.bytes)
	}
	return err
}

// Check returns ErrStale if the connection is closed or has data. It does not wait.
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

// HasEnded reports whether the peer has closed the connection, and all that it has sent was read.
// It does not wait.
func (c *Conn) HasEnded() bool { return c.raw != nil && (c.raw.Read(c.peek) != nil || c.isEnded) }

// deadline is that of one direction.
type deadline struct {
	sync.Mutex
	at time.Time
}

// move has set change the deadline, unless the last one suits at too.
func (d *deadline) move(at time.Time, slack time.Duration, set func(time.Time) error) error {
	d.Lock()
	defer d.Unlock()
	if late := d.at.Sub(at); late >= 0 && late <= slack {
		return nil
	}
	if !at.IsZero() {
		at = at.Add(slack)
	}
	err := set(at)
	if err == nil {
		d.at = at
	}
	return err
}

// SetReadDeadline sets the deadline of reads. If the last one stays, there is no error.
func (c *Conn) SetReadDeadline(at time.Time) error {
	return c.reads.move(at, c.Slack, c.Conn.SetReadDeadline)
}

// SetWriteDeadline sets that of writes.
func (c *Conn) SetWriteDeadline(at time.Time) error {
	return c.writes.move(at, c.Slack, c.Conn.SetWriteDeadline)
}

// SetDeadline sets both.
func (c *Conn) SetDeadline(at time.Time) error {
	return errors.Join(c.SetReadDeadline(at), c.SetWriteDeadline(at))
}

// CloseWrite closes the sending side, if the connection has one.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// wrap turns an error of the kernel into the error that package net would return.
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
	t.n, t.errno = quietRead(fd, t.bytes[:min(len(t.bytes), callBytesMax)])
	return t.errno != syscall.EAGAIN
}

func (c *Conn) tryWrite(fd uintptr) bool {
	t := &c.writing
	for len(t.bytes) > 0 {
		n, errno := quietWrite(fd, t.bytes[:min(len(t.bytes), callBytesMax)])
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

// tryAsk is called again when the poller reports data. It looks for data before it writes: what
// arrived before the call may never be reported.
func (c *Conn) tryAsk(fd uintptr) bool {
	if len(c.writing.bytes) == 0 {
		return true
	}
	c.tryPeek(fd)
	if !c.isStale {
		c.tryWrite(fd)
	}
	return len(c.writing.bytes) > 0 // Ask goes on
}

func (c *Conn) tryPeek(fd uintptr) bool {
	n, errno := quietPeek(fd)
	c.isStale = errno != syscall.EAGAIN
	c.isEnded = n <= 0 && c.isStale
	return true
}
