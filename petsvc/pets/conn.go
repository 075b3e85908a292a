package pets

import (
	"net"
	"time"

	"petgate/shared/socket"
)

// deadlineSlack is that of the shortest of the server's timeouts.
var deadlineSlack = socket.Slack(readTimeout)

// listener accepts connections whose calls and deadlines cost little.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: socket.New(c)}, nil
}

// conn tells the connection of a deadline only when it is needed: most of those that fasthttp sets for reading are for
// bytes that it has already.
type conn struct {
	*socket.Conn
	deadline      time.Time // for the next read
	reads, writes socket.Deadline
}

// SetReadDeadline keeps the deadline until something is read.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

// SetWriteDeadline sets the deadline, or one a little later.
func (c *conn) SetWriteDeadline(t time.Time) error {
	if t, changed := c.writes.Move(t, deadlineSlack); changed {
		return c.Conn.SetWriteDeadline(t)
	}
	return nil
}

func (c *conn) Read(p []byte) (int, error) {
	if t, changed := c.reads.Move(c.deadline, deadlineSlack); changed {
		if err := c.Conn.SetReadDeadline(t); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(p)
}
