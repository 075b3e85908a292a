package pets

import (
	"net"

	"petgate/shared/socket"
)

// listener accepts connections whose calls and deadlines cost little.
type listener struct{ *socket.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	// The slack is that of the shortest of the server's timeouts.
	return socket.NewTimed(c, socket.Slack(readTimeout)), nil
}
