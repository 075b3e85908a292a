// Package service has what all programs that serve need: settings, log, admin port, listeners,
// signals and the drain.
//
// Behind a load balancer, the drain loses no request. After SIGTERM or SIGINT:
//
//  1. /readyz fails at once. The program keeps serving for the drain delay, so that the load
//     balancer notices.
//  2. For one more second, responses have Connection: close, so that persistent connections end
//     between two requests.
//  3. The listener and idle connections are closed. Requests in flight have until the drain limit
//     to complete.
//
// A second signal, at least a second after the first, ends the process at once. Exit codes: 0 after
// a drain, 1 when the program could not start, serve or drain, 2 for bad settings.
package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// windDown is how long responses have Connection: close before idle connections are closed.
const windDown = time.Second

// forceAfter is how much later a second signal must come to end the process. Some supervisors send
// one signal twice.
var forceAfter = time.Second // a variable, so that a test can make it longer than itself

// Run runs a program and returns its exit code. SIGTERM and SIGINT end ctx; a second signal, a
// second later, ends the process. A second signal that comes earlier changes nothing, also after
// Run: the process still ends with the exit code. SIGPIPE is ignored: when the reader of standard
// output or standard error goes away, writes fail and the program goes on.
func Run(log *slog.Logger, program func(ctx context.Context) error) int {
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, func() { time.AfterFunc(forceAfter, stop) })
	if err := program(ctx); err != nil {
		log.Error("stopped", "error", err.Error())
		return 1
	}
	return 0
}

// Public is the server of the program's main port.
type Public interface {
	Serve(net.Listener) error           // until Shutdown
	Drain()                             // responses have Connection: close from now on
	Shutdown(ctx context.Context) error // ends idle connections, waits for requests in flight until ctx ends
}

// Serving is one running program.
type Serving struct {
	Public   Public
	Listener net.Listener
	Admin    *Admin // started by the program itself, so that /healthz responds before the program can serve
	Settings Settings
	Log      *slog.Logger
	Facts    []any // keys and values for the log line at the start, in addition to the addresses
}

// Run serves until ctx ends and then drains. It fails if it cannot serve or if requests had to be
// cut off.
func (s Serving) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.Public.Serve(s.Listener) }()
	s.notify("READY=1")
	s.Log.With(s.Facts...).Info("serving",
		"version", Version(), "listen", s.Listener.Addr().String(), "adminAddress", s.Admin.address)

	select {
	case err := <-ended:
		return errors.Join(errUnasked, err, s.shutdown())
	case <-ctx.Done():
	}
	s.Log.Info("draining", "delay", s.Settings.DrainDelay.String(), "limit", s.Settings.DrainLimit.String())
	s.notify("STOPPING=1")
	s.Admin.drain()
	if s.Settings.DrainDelay > 0 {
		if err := wait(ended, s.Settings.DrainDelay); err != nil {
			return err
		}
		s.Public.Drain()
		if err := wait(ended, windDown); err != nil {
			return err
		}
	}
	s.Public.Drain()
	if err := s.shutdown(); err != nil {
		return err
	}
	s.Log.Info("stopped")
	return nil
}

// notify reports a state to systemd.
func (s Serving) notify(state string) {
	if err := notify(state); err != nil {
		s.Log.Warn("systemd cannot be notified", "state", state, "error", err.Error())
	}
}

var errUnasked = errors.New("service: the server stopped unexpectedly")

func wait(ended <-chan error, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case err := <-ended:
		return errors.Join(errUnasked, err)
	}
}

// DrainMax is how long a drain takes at most.
func (s Settings) DrainMax() time.Duration { return s.DrainDelay + windDown + s.DrainLimit }

func (s Serving) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.Settings.DrainLimit)
	defer cancel()
	if err := s.Public.Shutdown(ctx); err != nil {
		return fmt.Errorf("service: requests in flight were cut off: %w", err)
	}
	return nil
}

// socketPathMax is the longest path that fits into a sockaddr_un on every system: macOS has 104
// bytes, one of them a NUL.
const socketPathMax = 103

// ListenPublic opens the program's main port: the socket that systemd has passed to the program, or
// else what Listen opens.
func ListenPublic(address, setting string) (net.Listener, error) {
	if ln, err := passedSocket(); ln != nil || err != nil {
		return ln, err
	}
	return Listen(address, setting)
}

// Ports are the listeners of a program.
type Ports struct{ Public, Admin net.Listener }

// OpenPorts opens both ports of a program, or neither. Its error names each port that cannot be
// opened. prefix is that of the program's variables.
func OpenPorts(settings Program, prefix string) (Ports, error) {
	atPublic, atAdmin := settings.Addresses()
	public, publicErr := ListenPublic(atPublic, prefix+"LISTEN or --listen")
	admin, adminErr := Listen(atAdmin, prefix+"ADMIN_LISTEN or --admin-listen")
	switch {
	case publicErr != nil && adminErr != nil:
		return Ports{}, fmt.Errorf("%w; %w", publicErr, adminErr)
	case publicErr != nil:
		return Ports{}, errors.Join(publicErr, admin.Close())
	case adminErr != nil:
		return Ports{}, errors.Join(adminErr, public.Close())
	}
	return Ports{Public: public, Admin: admin}, nil
}

const unixScheme = "unix:"

// socketMode lets the owner and the group of a Unix socket connect to it.
const socketMode = 0o660

// Listen opens host:port or unix:/path. setting is the name of the address's setting, for error
// messages.
func Listen(address, setting string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, unixScheme); ok {
		return listenUnix(path, setting)
	}
	ln, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		_, port, _ := net.SplitHostPort(address)
		return nil, fmt.Errorf(
			"%s is in use: stop what listens there (`lsof -i :%s` names it) or choose another with %s", address, port,
			setting)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s (%s): %w", address, setting, err)
	}
	return ln, nil
}

// IsAddress reports whether an address has a form that Listen takes.
func IsAddress(address string) bool {
	if path, ok := strings.CutPrefix(address, unixScheme); ok {
		return path != ""
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err == nil && port != ""
}

// IsLoopback reports whether only this host reaches an address that Listen takes.
func IsLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	addr, _ := netip.ParseAddr(host)
	return strings.HasPrefix(address, unixScheme) || host == "localhost" || addr.Unmap().IsLoopback()
}

func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// listenUnix replaces the socket of a killed process, which refuses connections. It replaces no
// other file.
func listenUnix(path, setting string) (net.Listener, error) {
	if len(path) > socketPathMax {
		return nil, fmt.Errorf(
			"the socket path %s has %d bytes, more than the %d that systems allow: choose a shorter one with %s", path,
			len(path), socketPathMax, setting)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("the socket %s is in use: stop the program that uses it, or choose another path with %s",
			path, setting)
	} else if errors.Is(err, syscall.ECONNREFUSED) && isSocket(path) {
		_ = os.Remove(path) // its program has ended
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on unix:%s (%s): %w", path, setting, err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}
