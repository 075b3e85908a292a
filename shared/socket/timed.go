package socket

import (
	"net"
	"time"
)

// Timed is a Conn with cheap deadlines. A read deadline is set only when something is read: most read deadlines of servers are for
// bytes that they already have. Deadlines are up to slack late, so that one deadline serves several requests.
type Timed struct {
	*Conn
	slack         time.Duration
	deadline      time.Time // for the next read
	reads, writes Deadline
}

// NewTimed returns c with quiet calls and cheap deadlines.
func NewTimed(c net.Conn, slack time.Duration) *Timed { return &Timed{Conn: New(c), slack: slack} }

// SetDeadline sets both deadlines.
func (t *Timed) SetDeadline(at time.Time) error {
	t.deadline = at
	return t.SetWriteDeadline(at)
}

// SetReadDeadline stores the deadline until something is read.
func (t *Timed) SetReadDeadline(at time.Time) error {
	t.deadline = at
	return nil
}

// SetWriteDeadline sets the deadline or one a little later.
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
