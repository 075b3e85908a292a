package socket

import (
	"net"
	"time"
)

// Timed is a Conn on which deadlines cost little. A deadline for reading is kept until something is read: most of those that
// servers set are for bytes that they have already. The connection is told of a deadline that is up to slack late, and of no
// other one while that one serves.
type Timed struct {
	*Conn
	slack         time.Duration
	deadline      time.Time // for the next read
	reads, writes Deadline
}

// NewTimed returns c with calls and deadlines that cost little.
func NewTimed(c net.Conn, slack time.Duration) *Timed { return &Timed{Conn: New(c), slack: slack} }

// SetDeadline sets both deadlines.
func (t *Timed) SetDeadline(at time.Time) error {
	t.deadline = at
	return t.SetWriteDeadline(at)
}

// SetReadDeadline keeps the deadline until something is read.
func (t *Timed) SetReadDeadline(at time.Time) error {
	t.deadline = at
	return nil
}

// SetWriteDeadline sets the deadline, or one a little later.
func (t *Timed) SetWriteDeadline(at time.Time) error {
	if at, changed := t.writes.Move(at, t.slack); changed {
		return t.Conn.SetWriteDeadline(at)
	}
	return nil
}

func (t *Timed) Read(p []byte) (int, error) {
	if at, changed := t.reads.Move(t.deadline, t.slack); changed {
		if err := t.Conn.SetReadDeadline(at); err != nil {
			return 0, err
		}
	}
	return t.Conn.Read(p)
}
