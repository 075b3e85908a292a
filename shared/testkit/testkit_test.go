package testkit

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/shared/testkit/must"
)

// A back end may end at the instant at which its server is paused. It is then a zombie until the server goes on.
func TestPauseWhileABackEndEnds(t *testing.T) {
	s := StartPostgres(t)
	processes := children(s.cmd.Process.Pid)
	awaitStopped(t, s.signal(t, syscall.SIGSTOP))
	must.Do(t, syscall.Kill(processes[0], syscall.SIGKILL))
	s.Pause(t)
	s.Resume(t)
}

// A process that is paused when its server ends does not survive the server.
func TestPausedServerLeavesNothingBehind(t *testing.T) {
	s := StartPostgres(t)
	for range 2 {
		db, err := sql.Open("postgres", s.URL)
		must.Do(t, err)
		defer db.Close()
		must.Do(t, db.Ping())
		processes := children(s.cmd.Process.Pid)
		if len(processes) < 2 {
			t.Fatalf("a server with the processes %v", processes)
		}
		s.Pause(t)
		s.Kill(t)
		for _, pid := range processes {
			Eventually(t, 5*time.Second, fmt.Sprintf("process %d has ended", pid), func() bool { return !isRunning(pid) })
		}
		s.Start(t)
	}
}

// A port belongs to one test until that test ends. Without reservations, 400 draws from 10,000 ports almost always draw one twice.
// The test runs itself as a child that starts servers, kills that child, and looks for what is left.
func TestServersEndWithAKilledTest(t *testing.T) {
	const variable = "TESTKIT_CHILD"
	if os.Getenv(variable) != "" {
		for _, s := range []*Server{StartRedis(t), StartPostgres(t)} {
			_, _ = os.Stdout.WriteString(strconv.Itoa(s.cmd.Process.Pid) + " " + s.spec.dir + "\n")
		}
		select {}
	}
	self, err := os.Executable()
	must.Do(t, err)
	child := exec.Command(self, "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), variable+"=yes")
	out, err := child.StdoutPipe()
	must.Do(t, err)
	must.Do(t, child.Start())
	lines := bufio.NewScanner(out)
	var servers [][]string
	for len(servers) < 2 && lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) == 2 {
			servers = append(servers, fields)
		}
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if len(servers) != 2 {
		t.Fatalf("the child started %d servers, want 2", len(servers))
	}
	for _, server := range servers {
		Eventually(t, 10*time.Second, "server and directory are gone: "+server[1], func() bool {
			pid, _ := strconv.Atoi(server[0])
			_, err := os.Stat(server[1])
			return !isRunning(pid) && os.IsNotExist(err)
		})
	}
}

// isRunning is false for a zombie as well: in a container, perhaps no process reaps an orphan.
func isRunning(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(string(out), "Z")
}
