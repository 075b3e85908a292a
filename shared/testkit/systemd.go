package testkit

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"petgate/shared/testkit/must"
)

// Systemd plays the part of systemd for one program: a socket unit, which keeps a listening socket
// while the program restarts, and a service of Type=notify.
type Systemd struct {
	socket *os.File
	states *net.UnixConn
	path   string
}

// NewSystemd listens on a TCP address until the end of the test.
func NewSystemd(t testing.TB, address string) *Systemd {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	must.Do(t, err)
	defer ln.Close()
	socket, err := ln.(*net.TCPListener).File()
	must.Do(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	dir, err := makeDir(baseDir(), nil) // a test's own directory may have too long a path for a socket
	must.Do(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Systemd{socket: socket, path: filepath.Join(dir, "notify")}
	if s.states, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.states.Close() })
	return s
}

// Start is testkit.Start for a program that gets the socket (sd_listen_fds(3)).
func (s *Systemd) Start(t testing.TB, path string, env []string, args ...string) *Process {
	t.Helper()
	env = append(env[:len(env):len(env)], "LISTEN_FDS=1", "NOTIFY_SOCKET="+s.path)
	script := []string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, path} // the shell's process ID becomes the program's
	return start(t, s.socket, "/bin/sh", env, append(script, args...)...)
}

// Await waits until the program reports a state, such as READY=1 (sd_notify(3)). States before it
// are forgotten.
func (s *Systemd) Await(t testing.TB, state string) {
	t.Helper()
	_ = s.states.SetReadDeadline(time.Now().Add(stopWithin))
	for buf := make([]byte, 1<<10); ; {
		n, err := s.states.Read(buf)
		if err != nil {
			t.Fatalf("testkit: the program does not report %s: %v", state, err)
		}
		if string(buf[:n]) == state {
			return
		}
	}
}
