package service

import (
	"fmt"
	"net"
	"os"
	"strconv"
)

// firstPassed is the first file descriptor that systemd passes: SD_LISTEN_FDS_START in
// sd_listen_fds(3).
const firstPassed = 3

// passedSocket returns the listening socket that systemd has passed to this process
// (sd_listen_fds(3)), or nil if there is none. A second call returns nil. systemd keeps a copy of
// the socket. So connections that arrive while the program restarts wait in the kernel for the next
// process: none is refused.
func passedSocket() (net.Listener, error) {
	count, _ := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || count == 0 {
		return nil, nil
	}
	if err := os.Unsetenv("LISTEN_FDS"); err != nil {
		return nil, err
	}
	if count != 1 {
		return nil, fmt.Errorf(
			"systemd passes %d sockets, and this program takes one: leave one ListenStream= in the socket unit", count)
	}
	file := os.NewFile(firstPassed, "LISTEN_FDS")
	defer file.Close() // FileListener makes a copy
	ln, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("the socket that systemd passes: it must be a stream socket, with Accept=no: %w", err)
	}
	return ln, nil
}

// notify sends a state to the service manager (sd_notify(3)). It does nothing if there is none.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}
