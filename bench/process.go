package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one server of a run: ours, a peer's, or Redis.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *bytes.Buffer
}

// launch starts a program as owner; nil is the current user. Its standard output goes to a file, or
// with its standard error to the log. On Linux the program ends when bench does.
func launch(stdout *os.File, env []string, owner *syscall.Credential, name string, args ...string) (*process, error) {
	p := &process{name: filepath.Base(name), cmd: exec.Command(name, args...), log: new(bytes.Buffer)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if stdout != nil {
		p.cmd.Stdout = stdout
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Setpgid: true}
	endWithParent(p.cmd.SysProcAttr)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// stop ends the process and its children, and waits.
func (p *process) stop() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Wait()
}

// cpu is the processor time of the process and its children since their start.
func (p *process) cpu() (sum time.Duration) {
	for _, pid := range append(childrenOf(p.cmd.Process.Pid), p.cmd.Process.Pid) {
		sum += cpuOf(pid)
	}
	return sum
}

// resident is the memory of the process and its children, in bytes.
func (p *process) resident() int64 {
	var pages int64
	for _, pid := range append(childrenOf(p.cmd.Process.Pid), p.cmd.Process.Pid) {
		statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			continue
		}
		n, _ := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
		pages += n
	}
	return pages * int64(os.Getpagesize())
}

func childrenOf(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var pids []int
	for _, field := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// raiseDescriptors raises the limit of this process, which its children inherit, to the highest
// that is allowed.
func raiseDescriptors() (uint64, error) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	limit.Cur = limit.Max
	return limit.Max, errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
}

// awaitListener waits until connections to addr are accepted.
func awaitListener(ctx context.Context, addr string) error {
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing listens on %s: %w", addr, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// freeAddress returns a loopback address on which nothing listens at the moment.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}
