package service_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"petgate/shared/service"
	"petgate/shared/testkit/must"
)

// On a terminal, a program's log is text in which nothing moves the cursor.
func TestLogOnATerminal(t *testing.T) {
	if os.Getenv("PROGRAM_OF_TEST") != "" { // this process is the program
		os.Args = os.Args[:1]
		service.Main("prog", "TEST_", "A program.", &settings{},
			func(context.Context, *slog.Logger) error { return errors.New("\x1b[2J") })
	}
	screen := must.Get[*os.File](t)(os.OpenFile("/dev/ptmx", os.O_RDWR, 0))
	defer screen.Close()
	must.Do(t, unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0))
	n := must.Get[int](t)(unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN))
	terminal := must.Get[*os.File](t)(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0))
	defer terminal.Close()
	program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLogOnATerminal$")
	program.Env, program.Stderr = append(os.Environ(), "PROGRAM_OF_TEST=1"), terminal
	_ = program.Run() // with an error, of which the log tells
	line := must.Get[string](t)(bufio.NewReader(screen).ReadString('\n'))
	_, rest, _ := strings.Cut(line, " ")
	must.Equal(t, rest, `level=ERROR msg=stopped program=prog error="\x1b[2J"`+"\r\n", "the line after its time")
}
