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
	// stepsPerBudget is the number of steps in which a connection waits for one budget. A step
	// costs nothing while Redis answers.
	stepsPerBudget = 5
	// patience is how many budgets the whole wait may last. It is needed on a machine that
	// interrupts every budget.
	patience = 10
)

// patientConn is a connection in go-redis's pool. It fails only if Redis has been silent for a
// whole budget while this process was running. It waits in steps. If a step ends late, this process
// was stopped or had to wait for a CPU: the budget then starts again, so the process first reads
// what has arrived meanwhile.
//
// It sets its own deadlines. It ignores those of go-redis, which expire while the process is
// stopped.
type patientConn struct {
	*socket.Conn
	budget  time.Duration
	silence time.Duration // uninterrupted silence in the current call
	steps   time.Duration // all steps of the current call without an answer
}

func (c *patientConn) Read(p []byte) (int, error) {
	for {
		ends := time.Now().Add(c.step())
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
		ends := time.Now().Add(c.step())
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

// goesOn counts a step without an answer, and reports whether the connection waits for another
// step.
func (c *patientConn) goesOn(err error, ends time.Time) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	c.silence += c.step()
	if time.Since(ends) > c.step()/2 { // this process got no CPU time
		c.silence = 0
	}
	c.steps += c.step()
	return c.silence < c.budget && c.steps < patience*c.budget
}

func (c *patientConn) step() time.Duration { return c.budget / stepsPerBudget }

// go-redis's deadlines are ignored.
func (*patientConn) SetDeadline(time.Time) error      { return nil }
func (*patientConn) SetReadDeadline(time.Time) error  { return nil }
func (*patientConn) SetWriteDeadline(time.Time) error { return nil }

// SyscallConn is called each time that go-redis takes the connection out of its pool: go-redis
// peeks at the socket to see whether Redis has closed it (internal/pool/conn_check.go). Of all
// system calls of a batch, only this peek would involve the Go scheduler, if the net package made
// it. So Check peeks instead, and go-redis's own peek finds nothing.
func (c *patientConn) SyscallConn() (syscall.RawConn, error) {
	if err := c.Conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return checked{}, c.Check()
}

// checked is what go-redis peeks at instead of the socket: it has nothing to read.
type checked struct{}

func (checked) Read(func(uintptr) bool) error  { return nil }
func (checked) Write(func(uintptr) bool) error { return errors.ErrUnsupported }
func (checked) Control(func(uintptr)) error    { return errors.ErrUnsupported }

var _ net.Conn = (*patientConn)(nil)
