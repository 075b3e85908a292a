package testkit

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"petgate/shared/testkit/must"
)

// startWithin limits the start of a server on a machine that is busy with other tests.
const startWithin = 2 * time.Minute

// Server is a private Postgres or Redis with its own data directory and port. It keeps both while
// it is stopped.
type Server struct {
	URL  string // of the server; for Postgres of its database "postgres"
	Addr string // host:port

	spec        spec
	cmd         *exec.Cmd // nil while stopped
	life        watch
	reservation io.Closer // of the port: nothing else takes it while the server is stopped
}

// spec says how to run one kind of server.
type spec struct {
	name  string
	dir   string
	args  []string // program and arguments
	owner *syscall.Credential
	stop  syscall.Signal // ends it at once and completely
	ping  func(*Server) error
}

// start runs the server and waits until it responds. After a kill, Postgres may have to wait until
// the last old process has ended, so start tries several times.
func (s *Server) start() error {
	deadline := time.Now().Add(startWithin)
	for {
		err := s.attempt(deadline)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *Server) attempt(deadline time.Time) error {
	logPath := filepath.Join(s.spec.dir, "server.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("testkit: log of %s: %w", s.spec.name, err)
	}
	defer log.Close()

	cmd := exec.Command(s.spec.args[0], s.spec.args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.spec.dir, log, log
	// A process group of its own: Ctrl-C in the terminal ends the tests, and they end their
	// servers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.spec.owner, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("testkit: start %s: %w", s.spec.name, err)
	}
	life, err := watchProcess(cmd.Process.Pid, s.spec.stop, s.spec.dir)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}

	var pingErr error
	ended := false
	answers := Await(time.Until(deadline), func() bool {
		// Not cmd.Wait in a goroutine: tests that look for leaked goroutines would find it.
		pid, waitErr := syscall.Wait4(cmd.Process.Pid, nil, syscall.WNOHANG, nil)
		ended = pid != 0 || waitErr != nil
		pingErr = s.spec.ping(s)
		return ended || pingErr == nil
	})
	if answers && !ended {
		s.cmd, s.life = cmd, life
		return nil
	}
	if !ended {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	life.release()
	text, _ := os.ReadFile(logPath)
	return fmt.Errorf("testkit: %s did not start: %w\n%s", s.spec.name, pingErr, text[max(0, len(text)-2000):])
}

// end signals the running server and waits for its end. It keeps the data.
func (s *Server) end(signal syscall.Signal) {
	if s.cmd == nil {
		return
	}
	pid := s.cmd.Process.Pid
	paused := children(pid) // now, while they can be found; otherwise they would stay paused
	_ = s.cmd.Process.Signal(signal)
	for _, p := range append(paused, pid) {
		_ = syscall.Kill(p, syscall.SIGCONT) // a paused process does not handle the first signal
	}
	_ = s.cmd.Wait()
	s.life.release()
	s.cmd = nil
}

// Stop shuts the server down. Start starts it again with its data.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.end(syscall.SIGINT) // for Postgres: without waiting for clients
}

// Kill kills the server. After Start it has only what it had written.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.end(syscall.SIGKILL)
}

// Start starts a stopped or killed server again with the same port and data.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if s.cmd != nil {
		t.Fatalf("testkit: %s runs already", s.spec.name)
	}
	must.Do(t, s.start())
}

// Pause is Process.Pause for the server and its children. The server is the first: then it starts
// no further child.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	server := s.signal(t, syscall.SIGSTOP)
	awaitStopped(t, server)
	for _, child := range signalChildren(server, syscall.SIGSTOP) {
		awaitStopped(t, child)
	}
}

// Resume ends a Pause.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	signalChildren(s.signal(t, syscall.SIGCONT), syscall.SIGCONT)
}

// signal signals the server and returns its process ID.
func (s *Server) signal(t testing.TB, signal syscall.Signal) int {
	t.Helper()
	if s.cmd == nil {
		t.Fatalf("testkit: %s is down", s.spec.name)
	}
	pid := s.cmd.Process.Pid
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatalf("testkit: signal %s: %v", s.spec.name, err)
	}
	return pid
}

// signalChildren signals the children of a process, and returns their process IDs. Each back end of
// Postgres has a process group of its own.
func signalChildren(pid int, signal syscall.Signal) []int {
	all := children(pid)
	for _, child := range all {
		_ = syscall.Kill(child, signal) // it may have ended
	}
	return all
}

// stopped matches the state in /proc/PID/stat of a thread that has stopped (T) or ended (Z, X). A
// child stays a zombie until its parent, which may be paused, has read its exit code.
var stopped = regexp.MustCompile(`\) [TZX] `)

// awaitStopped waits until every thread of a process has stopped, or the process has ended. A
// signal stops a thread when the kernel next looks at it, not when kill(2) returns. Only Linux
// tells: elsewhere it returns at once.
func awaitStopped(t testing.TB, pid int) {
	t.Helper()
	Eventually(t, time.Minute, "a process stops", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return !slices.ContainsFunc(threads, func(path string) bool {
			stat, err := os.ReadFile(path)
			return err == nil && !stopped.Match(stat)
		})
	})
}

func children(pid int) []int {
	out, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	var found []int
	for line := range slices.Values(splitLines(out)) {
		var child, parent int
		if _, err := fmt.Sscan(line, &child, &parent); err == nil && parent == pid {
			found = append(found, child)
		}
	}
	return found
}

func (s *Server) remove() {
	s.end(s.spec.stop)
	_ = s.reservation.Close()
	_ = os.RemoveAll(s.spec.dir)
}

// lazy is a server that all tests of the process share. Its watcher stops it.
type lazy struct {
	once   sync.Once
	server *Server
	err    error
}

func (l *lazy) get(t testing.TB, open func() (*Server, error)) *Server {
	t.Helper()
	l.once.Do(func() { l.server, l.err = open() })
	if l.err != nil {
		t.Fatal(l.err)
	}
	return l.server
}

// memory is a file system in memory, which most Linux machines have.
const memory = "/dev/shm"

// memoryBytesMin is how much has to be free there. Some test processes together use a few hundred
// megabytes.
const memoryBytesMin = 2 << 30

// dataDir returns the parent of data directories. In reduced size, data is in memory if there is
// room: Postgres makes 300 files for a database, which takes several times the processor time on a
// disk. In full size, data is on the disk, as an operator's is.
func dataDir() string {
	var fs syscall.Statfs_t
	if !FullSize && syscall.Statfs(memory, &fs) == nil && fs.Bavail*uint64(fs.Bsize) >= memoryBytesMin {
		return memory
	}
	return baseDir()
}

// baseDir returns the parent of programs and of what outlives a test process. All test processes of
// a user share it. If root runs the tests, the servers' user can access it.
func baseDir() string {
	if os.Getuid() == 0 {
		return "/tmp"
	}
	return os.TempDir()
}

// makeDir returns a new directory in parent that the owner of a server may write to.
func makeDir(parent string, owner *syscall.Credential) (string, error) {
	dir, err := os.MkdirTemp(parent, "petgate-test-")
	if err == nil && owner != nil {
		err = os.Chown(dir, int(owner.Uid), int(owner.Gid))
	}
	if err != nil {
		return "", fmt.Errorf("testkit: data directory: %w", err)
	}
	return dir, nil
}

// watchedDir is a directory of the test process, which is removed after it.
type watchedDir struct {
	sync.Mutex
	path string
	life watch
}

// get makes the directory in parent at the first call, and returns its path.
func (d *watchedDir) get(t testing.TB, parent string) string {
	t.Helper()
	d.Lock()
	defer d.Unlock()
	if d.path == "" {
		path, err := makeDir(parent, nil)
		if err == nil {
			d.life, err = watchDir(path)
		}
		must.Do(t, err)
		d.path = path
	}
	return d.path
}

// Unprivileged returns the user to run Postgres as, because Postgres refuses to run as root. nil is
// the current user.
func Unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("testkit: Postgres refuses to run as root and there is no user postgres or nobody")
}

// findBinary searches PATH and then the patterns' directories, highest version first.
func findBinary(name string, patterns ...string) (string, bool) {
	if path, err := exec.LookPath(name); err == nil {
		return path, true
	}
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern)
		slices.SortFunc(dirs, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
		for _, dir := range slices.Backward(dirs) {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, true
			}
		}
	}
	return "", false
}
