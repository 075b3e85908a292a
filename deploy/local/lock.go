package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// lockPath is the file that a running process of this command holds locked. Its text names that process. The system ends the lock with
// the process, also after kill -9; the file stays.
const lockPath = "var/local.lock"

// lock makes sure that one process of this command uses the directory var. address is where the process will listen. unlock must be called
// last.
func lock(address string) (unlock func(), err error) {
	if err := os.MkdirAll("var", 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(lockPath, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, running()
		}
		return nil, fmt.Errorf("lock %s: %w", lockPath, err)
	}
	if err = f.Truncate(0); err == nil {
		_, err = fmt.Fprintf(f, "%d %s\n", os.Getpid(), address)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// running describes the process that has the lock.
func running() error {
	text, _ := os.ReadFile(lockPath) // without it, the message says less
	pid, address, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if pid == "" || address == "" {
		return errors.New("`make run` is already running in this source tree: stop it with Ctrl-C in its terminal")
	}
	return fmt.Errorf("`make run` is already running in this source tree, on %s: stop it with Ctrl-C in its terminal or with `kill %s`",
		address, pid)
}
