package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// panicVariable lets TestTopRestoresTheTerminal run this test binary again, as a keyadmin that panics.
const panicVariable = "KEYADMIN_TEST_PANIC"

// However top ends, the terminal shows its earlier content, has its cursor, and echoes what is typed.
func TestTopRestoresTheTerminal(t *testing.T) {
	if url := os.Getenv(panicVariable); url != "" {
		io, calls := system(), 0
		io.Clock = func() time.Time {
			if calls++; calls > 8 {
				panic("a planted bug")
			}
			return time.Now()
		}
		os.Exit(int(run([]string{"top"}, []string{"DATABASE_URL=" + url}, io)))
	}
	binary := testkit.Build(t, "petgate/keyadmin")
	self, err := os.Executable()
	must.Do(t, err)
	s := newMigrated(t, testkit.SQLite(t))
	signal := func(sig syscall.Signal) func(*terminal) {
		return func(terminal *terminal) { _ = terminal.cmd.Process.Signal(sig) }
	}
	key := func(text string) func(*terminal) { return func(terminal *terminal) { terminal.enter(text) } }
	for _, c := range []struct {
		name string
		end  func(*terminal)
		exit int
	}{
		{"q", key("q"), 0},
		{"Ctrl-C", key("\x03"), 0},
		{"SIGINT", signal(syscall.SIGINT), 0},
		{"SIGTERM", signal(syscall.SIGTERM), 0},
		{"SIGHUP", signal(syscall.SIGHUP), 0},
		{"a panic", nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, args, env := binary, []string{"top"}, append([]string{"TERM=xterm"}, s.env...)
			if c.end == nil {
				path, args = self, []string{"-test.run=^TestTopRestoresTheTerminal$"}
				env = append(env, panicVariable+"="+strings.TrimPrefix(s.env[0], "DATABASE_URL="))
			}
			var before *unix.Termios
			terminal := startTerminal(t, path, args, env, func(file *os.File) {
				var err error
				if before, err = unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS); err != nil {
					t.Fatal(err)
				}
			})
			terminal.await("q quit")
			during, err := unix.IoctlGetTermios(int(terminal.file.Fd()), unix.TCGETS)
			must.Do(t, err)
			if c.end != nil {
				if during.Lflag&unix.ECHO != 0 {
					t.Error("the terminal echoes keys while top runs")
				}
				c.end(terminal)
			}
			_ = terminal.cmd.Wait()
			if got := terminal.cmd.ProcessState.ExitCode(); got != c.exit {
				t.Errorf("exit %d, want %d", got, c.exit)
			}
			after, err := unix.IoctlGetTermios(int(terminal.file.Fd()), unix.TCGETS)
			must.Do(t, err)
			if *after != *before {
				t.Errorf("the terminal's settings: %+v, want %+v", after, before)
			}
			terminal.await("\x1b[?1049l")
			if c.end == nil {
				terminal.await("a planted bug")
			}
			if text := terminal.text(); strings.Count(text, "\x1b[?1049h") != 1 {
				t.Errorf("the terminal shows %q", text)
			}
		})
	}
}
