package testkit

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// watchScript waits for the end of the test process and then cleans up. Its arguments are a
// directory, which may be empty, and optionally a signal and a process ID. A line on its standard
// input ends it. The end of the input means that the test process has ended, perhaps by a kill.
// Then the script signals the process, continues it and its children if they are paused, waits up
// to two seconds, and removes the directory.
const watchScript = `
if read -r released; then exit; fi
if [ $# -eq 3 ]; then
	children=$(ps -A -o ppid= -o pid= | while read -r parent child; do [ "$parent" != "$3" ] || echo "$child"; done)
	kill -s "$2" "$3"; kill -s CONT "$3" $children
	tries=0
	while kill -s 0 "$3" && [ "$tries" -lt 40 ]; do sleep 0.05; tries=$((tries + 1)); done
	kill -s KILL "$3"
fi
[ -z "$1" ] || rm -rf "$1"
`

// watch is a running watchScript.
type watch struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

// watchProcess ends a process with a signal and removes dir after the test process has ended.
func watchProcess(pid int, signal syscall.Signal, dir string) (watch, error) {
	return startWatch(dir, signalNames[signal], strconv.Itoa(pid))
}

// watchDir removes dir after the test process has ended.
func watchDir(dir string) (watch, error) { return startWatch(dir) }

// In POSIX, `kill -s` accepts names only.
var signalNames = map[syscall.Signal]string{syscall.SIGKILL: "KILL", syscall.SIGQUIT: "QUIT"}

func startWatch(args ...string) (watch, error) {
	cmd := exec.Command("/bin/sh", append([]string{"-c", watchScript, "watch"}, args...)...)
	// A process group of its own, so that Ctrl-C does not end the watcher first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return watch{}, fmt.Errorf("testkit: watch a process: %w", err)
	}
	return watch{cmd: cmd, input: input}, nil
}

// release ends the watch of a process that has ended.
func (w watch) release() {
	_, _ = io.WriteString(w.input, "released\n")
	_ = w.input.Close()
	_ = w.cmd.Wait()
}

func splitLines(out []byte) []string {
	return strings.Split(string(bytes.TrimSpace(out)), "\n")
}
