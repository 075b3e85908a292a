package redis

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"petgate/shared/socket"
)

const (
	// step is how long a connection waits at a time. It costs nothing while Redis answers.
	step = 10 * time.Millisecond
	// lateness of a step's end says that this process was off its processors.
	lateness = step / 2
	// patience bounds the silence on a machine that disturbs each budget: so many budgets of steps.
	patience = 10
)

// patientConn is a connection in go-redis's pool. It fails only if Redis has been silent for a whole budget, undisturbed:
// it waits in steps, and a step that ends late, because this process was stopped or had to wait for a processor, starts the
// budget anew. So such a process first reads what has arrived meanwhile.
//
// It sets its own deadlines, and ignores those of go-redis, which pass while the process is stopped.
type patientConn struct {
	*socket.Conn
	budget  time.Duration
	silence time.Duration // undisturbed, of the call under way
	steps   time.Duration // of the call under way, in vain
}

func (c *patientConn) Read(p []byte) (int, error) {
	for {
		ends := time.Now().Add(step)
		if err := c.Conn.SetReadDeadline(ends); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(p)
		if n > 0 || !c.goesOn(err, ends) {
			return n, err
		}
	}
}

func (c *patientConn) Write(p []byte) (written int, err error) {
	c.silence, c.steps = 0, 0
	for {
		ends := time.Now().Add(step)
		if err := c.Conn.SetWriteDeadline(ends); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written:])
		written += n
		if written == len(p) || !c.goesOn(err, ends) {
			return written, err
		}
	}
}

// goesOn counts a step of silence, and reports whether there is to be another one.
func (c *patientConn) goesOn(err error, ends time.Time) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	c.silence += step
	if time.Since(ends) > lateness {
		c.silence = 0
	}
	c.steps += step
	return c.silence < c.budget && c.steps < patience*c.budget
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
