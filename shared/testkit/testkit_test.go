package testkit

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestDatabasesAreFresh(t *testing.T) {
	for range 2 {
		if err := execute(Postgres(t), "CREATE TABLE mark (n int)"); err != nil {
			t.Fatal(err)
		}
	}
	if path, ok := strings.CutPrefix(SQLite(t), "sqlite:"); !ok || fileExists(path) {
		t.Errorf("SQLite() = %q, want sqlite: and a path that does not exist yet", path)
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestPostgresSurvivesAKill(t *testing.T) {
	s := StartPostgres(t)
	if err := execute(s.URL, "CREATE TABLE mark AS SELECT 7 AS n"); err != nil {
		t.Fatal(err)
	}
	s.Kill(t)
	if err := execute(s.URL, "SELECT 1"); err == nil {
		t.Fatal("a killed server answers")
	}
	s.Start(t)
	db, err := sql.Open("postgres", s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	if err := db.QueryRow("SELECT n FROM mark").Scan(&n); err != nil || n != 7 {
		t.Errorf("after the kill: %d, %v; want 7", n, err)
	}

	s.Pause(t)
	answered := make(chan error, 1)
	go func() { answered <- db.QueryRow("SELECT n FROM mark").Scan(&n) }()
	select {
	case err := <-answered:
		t.Errorf("a paused server answers: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	s.Resume(t)
	if err := <-answered; err != nil {
		t.Errorf("after Resume: %v", err)
	}
}

// A back end may end at the instant at which its server is paused. It is then a zombie until the server goes on.
func TestPauseWhileABackEndEnds(t *testing.T) {
	s := StartPostgres(t)
	processes := children(s.cmd.Process.Pid)
	awaitStopped(t, s.signal(t, syscall.SIGSTOP))
	if err := syscall.Kill(processes[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.Pause(t)
	s.Resume(t)
}

// A process that is paused when its server ends does not survive the server.
func TestPausedServerLeavesNothingBehind(t *testing.T) {
	s := StartPostgres(t)
	for range 2 {
		db, err := sql.Open("postgres", s.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.Ping(); err != nil {
			t.Fatal(err)
		}
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

func TestRedisKeepsAnAppendOnlyFile(t *testing.T) {
	s := StartRedis(t, "--appendonly", "yes")
	set := func(c *redis.Client) error { return c.Set(background, "mark", 7, 0).Err() }
	if err := command(s.Addr, set); err != nil {
		t.Fatal(err)
	}
	s.Kill(t)
	if err := command(s.Addr, set); err == nil {
		t.Error("a killed server answers")
	}
	s.Start(t)
	if err := command(s.Addr, func(c *redis.Client) error { return c.Get(background, "mark").Err() }); err != nil {
		t.Errorf("after the kill: %v", err)
	}
}

func TestRedisCluster(t *testing.T) {
	urls := RedisCluster(t, 3)
	addrs := make([]string, len(urls))
	for i, url := range urls {
		addrs[i] = strings.TrimPrefix(url, "redis://")
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer c.Close()
	for i := range 50 {
		if err := c.Set(background, strconv.Itoa(i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPrefixesDiffer(t *testing.T) {
	_, a := Redis(t)
	url, b := Redis(t)
	if a == b || !strings.HasPrefix(url, "redis") {
		t.Errorf("Redis() = %q with prefixes %q and %q", url, a, b)
	}
}

// A port belongs to one test until that test ends. Without reservations, 400 draws from 10,000 ports almost always draw one twice.
func TestFreePortsDiffer(t *testing.T) {
	t.Parallel()
	drawn := map[int]bool{}
	for range 400 {
		port := FreePort(t)
		if drawn[port] {
			t.Fatalf("port %d was given twice", port)
		}
		drawn[port] = true
	}
}

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
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self, "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), variable+"=yes")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
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
			return !isRunning(pid) && !fileExists(server[1])
		})
	}
}

// isRunning is false for a zombie as well: in a container, perhaps no process reaps an orphan.
func isRunning(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(string(out), "Z")
}

func TestProcess(t *testing.T) {
	p := Start(t, "/bin/sh", []string{"GREETING=hello"}, "-c", `echo "$GREETING"; echo trouble >&2; exit 3`)
	if code := p.ExitCode(t); code != 3 || p.Stdout.String() != "hello\n" || p.Stderr.String() != "trouble\n" {
		t.Errorf("exit code %d, output %q, errors %q", code, p.Stdout, p.Stderr)
	}
	p = Start(t, "/bin/sh", nil, "-c", `trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done`)
	Eventually(t, 5*time.Second, "the trap is set", func() bool { return p.Stdout.String() != "" })
	if code := p.Stop(); code != 5 {
		t.Errorf("Stop() = %d, want 5", code)
	}
	p = Start(t, "/bin/sleep", nil, "60")
	p.Signal(syscall.SIGKILL)
	if code := p.ExitCode(t); code != -1 {
		t.Errorf("exit code after a kill: %d, want -1", code)
	}
}

func TestBuild(t *testing.T) {
	t.Setenv("PETGATE_BIN", t.TempDir())
	built := Build(t, "cmd/test2json")
	if again := Build(t, "cmd/test2json"); again != built || !fileExists(built) {
		t.Errorf("Build() = %q, then %q", built, again)
	}
	given := filepath.Join(os.Getenv("PETGATE_BIN"), "test2json")
	if err := os.WriteFile(given, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := Build(t, "cmd/test2json"); got != given {
		t.Errorf("Build() with PETGATE_BIN = %q, want %q", got, given)
	}
}

func TestProxy(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	p := NewProxy(t, echo.Addr().String())
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	const patience = 20 * time.Second // for what must come, on a busy machine
	ask := func(conn net.Conn, within time.Duration) error {
		_ = conn.SetDeadline(time.Now().Add(within))
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		return err
	}

	conn := dial()
	if err := ask(conn, patience); err != nil {
		t.Fatalf("healthy: %v", err)
	}
	if n := p.RoundTrips(); n != 1 {
		t.Errorf("%d round trips, want 1", n)
	}
	p.Latency(30 * time.Millisecond)
	if start := time.Now(); ask(conn, patience) != nil || time.Since(start) < 60*time.Millisecond {
		t.Errorf("with a latency of 30 ms each way the answer took %v", time.Since(start))
	}
	p.BlackHole()
	if err := ask(conn, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("black hole, an old connection: %v", err)
	}
	if err := ask(dial(), 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("black hole, a new connection: %v", err)
	}
	p.Restore(t)
	if err := ask(dial(), patience); err != nil {
		t.Errorf("restored: %v", err)
	}
	conn = dial()
	if err := ask(conn, patience); err != nil {
		t.Fatal(err)
	}
	p.Reset()
	if err := ask(conn, patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after Reset: %v, want the connection's end", err)
	}
	p.Kill()
	if conn, err := net.Dial("tcp", p.Addr); err == nil {
		_ = conn.Close()
		t.Error("a killed proxy accepts")
	}
	p.Restore(t)
	if err := ask(dial(), patience); err != nil {
		t.Errorf("restored after Kill: %v", err)
	}
}
