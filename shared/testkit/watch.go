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

// watchScript outlives the test process by a moment. Its arguments are a directory, which may be empty, a signal and a
// process ID, which may be left out. A line on its standard input ends it; the end of the input means that the test
// process is gone, perhaps killed: then it signals the process, lets it and its children go on if they are paused, gives it
// two seconds, and removes the directory.
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

// watchProcess has a process ended with a signal, and dir removed, when the test process is gone.
func watchProcess(pid int, signal syscall.Signal, dir string) (watch, error) {
	return startWatch(dir, signalNames[signal], strconv.Itoa(pid))
}

// watchDir has dir removed when the test process is gone.
func watchDir(dir string) (watch, error) { return startWatch(dir) }

// `kill -s` takes names only (POSIX).
var signalNames = map[syscall.Signal]string{syscall.SIGKILL: "KILL", syscall.SIGQUIT: "QUIT"}

func startWatch(args ...string) (watch, error) {
	cmd := exec.Command("/bin/sh", append([]string{"-c", watchScript, "watch"}, args...)...)
	// A group of its own, or Ctrl-C would end the watcher before what it watches.
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
