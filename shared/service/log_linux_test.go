package service_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"petgate/shared/service"
	"petgate/shared/testkit/must"
)

// On a terminal, the log is text in which nothing moves the cursor.
func TestLogOnATerminal(t *testing.T) {
	screen := must.Get[*os.File](t)(os.OpenFile("/dev/ptmx", os.O_RDWR, 0))
	defer screen.Close()
	must.Do(t, unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0))
	n := must.Get[int](t)(unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN))
	terminal := must.Get[*os.File](t)(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0))
	defer terminal.Close()
	service.NewLog(terminal, slog.LevelInfo, "prog").Warn("gone", "why", "\x1b[2J")
	line := must.Get[string](t)(bufio.NewReader(screen).ReadString('\n'))
	if _, rest, _ := strings.Cut(line, " "); rest != `level=WARN msg=gone program=prog why="\x1b[2J"`+"\r\n" {
		t.Errorf("%q", line)
	}
}
