package redis

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"petgate/shared/socket"
)

// step is how long a connection waits at a time. Smaller steps measure the silence of Redis more exactly while this process
// is off its processors; they cost nothing while Redis answers.
const step = 10 * time.Millisecond

// patientConn is a connection in go-redis's pool. It fails only if Redis has been silent for the whole budget while this
// process was running: each time that it waits in vain for a step, it counts one step, however long the wait really took. So
// a process that was stopped, or had to wait for a processor, first reads what has arrived meanwhile.
//
// It sets its own deadlines, and ignores those of go-redis, which pass while the process is stopped.
type patientConn struct {
	*socket.Conn
	budget  time.Duration
	silence time.Duration // since the last call was written
}

func (c *patientConn) Read(p []byte) (int, error) {
	for {
		if err := c.Conn.SetReadDeadline(time.Now().Add(step)); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(p)
		if n > 0 || !c.goesOn(err) {
			return n, err
		}
	}
}

func (c *patientConn) Write(p []byte) (written int, err error) {
	c.silence = 0
	for {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(step)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written:])
		written += n
		if written == len(p) || !c.goesOn(err) {
			return written, err
		}
	}
}

// goesOn counts a step of silence, and reports whether the budget allows for another one.
func (c *patientConn) goesOn(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	c.silence += step
	return c.silence < c.budget
}

// go-redis's deadlines are ignored.
func (*patientConn) SetDeadline(time.Time) error      { return nil }
func (*patientConn) SetReadDeadline(time.Time) error  { return nil }
func (*patientConn) SetWriteDeadline(time.Time) error { return nil }

// SyscallConn is called each time that go-redis takes the connection out of its pool: it peeks at the socket to see whether
// Redis has closed it meanwhile (internal/pool/conn_check.go). Through the net package that would be the only announced
// system call of a batch. So Check looks instead, and go-redis's own look finds nothing.
func (c *patientConn) SyscallConn() (syscall.RawConn, error) {
	if err := c.Conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return checked{}, c.Check()
}

// checked is a socket with nothing to read. It has no other use.
type checked struct{}

func (checked) Read(func(uintptr) bool) error  { return nil }
func (checked) Write(func(uintptr) bool) error { return errors.ErrUnsupported }
func (checked) Control(func(uintptr)) error    { return errors.ErrUnsupported }

var _ net.Conn = (*patientConn)(nil)
