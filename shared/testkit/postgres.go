package testkit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/lib/pq" // testkit uses its servers before shared/database can open a database

	"petgate/shared/testkit/must"
)

// Directories of Postgres outside PATH. deploy/services.sh searches the same ones.
var postgresDirs = []string{
	"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin",
}

// Commits survive a Kill, because they are written. They need not survive a crash of the machine,
// so they are not synced.
var postgresArgs = []string{
	"-c", "listen_addresses=127.0.0.1",
	"-c", "fsync=off", "-c", "full_page_writes=off",
	"-c", "max_connections=400", "-c", "shared_buffers=64MB", "-c", "max_wal_size=256MB",
	"-c", "autovacuum=off", "-c", "log_min_messages=warning",
}

var sharedPostgres lazy

// Postgres returns the URL of a fresh, empty database. It is dropped when the test ends.
func Postgres(t testing.TB) string {
	t.Helper()
	admin := os.Getenv("TEST_DATABASE_URL")
	if admin == "" {
		admin = sharedPostgres.get(t, openPostgres).URL
	}
	name := fresh("petgate_test_")
	if err := execute(admin, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatalf("testkit: create a database at %s: %v", where("TEST_DATABASE_URL"), err)
	}
	t.Cleanup(func() {
		if err := execute(admin, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Logf("testkit: drop %s: %v", name, err)
		}
	})
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatalf("testkit: %s is not a URL", where("TEST_DATABASE_URL"))
	}
	u.Path = "/" + name
	return u.String()
}

// where names a server without showing a password.
func where(variable string) string {
	if os.Getenv(variable) != "" {
		return variable
	}
	return "the tests' own server"
}

// StartPostgres returns a server for this test only, which may be stopped, killed and paused.
func StartPostgres(t testing.TB) *Server {
	t.Helper()
	s, err := openPostgres()
	must.Do(t, err)
	t.Cleanup(s.remove)
	return s
}

// PostgresBin returns the directory of Postgres's programs. PATH may contain only links to some of
// them.
func PostgresBin() (string, error) {
	initdb, ok := findBinary("initdb", postgresDirs...)
	if !ok {
		return "", missing("Postgres (initdb)")
	}
	initdb, err := filepath.EvalSymlinks(initdb)
	if err != nil {
		return "", fmt.Errorf("testkit: %w", err)
	}
	return filepath.Dir(initdb), nil
}

func openPostgres() (*Server, error) {
	bin, err := PostgresBin()
	if err != nil {
		return nil, err
	}
	owner, err := Unprivileged()
	if err != nil {
		return nil, err
	}
	template, err := postgresTemplate(filepath.Join(bin, "initdb"), owner)
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(dataDir(), owner)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // its socket is for tests in a network of their own
		return nil, fmt.Errorf("testkit: data directory: %w", err)
	}
	data := filepath.Join(dir, "data")
	if err := run(owner, "cp", "-R", template, data); err != nil {
		return nil, err
	}
	return openOnFreePort(dir, func(port int) *Server {
		addr := loopback(port)
		args := []string{filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-p", strconv.Itoa(port)}
		return &Server{
			URL:  "postgres://postgres@" + addr + "/postgres?sslmode=disable",
			Addr: addr,
			spec: spec{
				name: "Postgres", dir: dir, args: append(args, postgresArgs...), owner: owner,
				stop: syscall.SIGQUIT, // stops at once and frees its shared memory
				ping: func(s *Server) error { return execute(s.URL, "SELECT 1") },
			},
		}
	})
}

// openOnFreePort starts a server. If another program has taken the port, it tries another one.
func openOnFreePort(dir string, make func(port int) *Server) (s *Server, err error) {
	for range 5 {
		port, reservation, reserveErr := reservePort()
		if err = reserveErr; err != nil {
			break
		}
		s = make(port)
		if err = s.attempt(time.Now().Add(startWithin)); err == nil {
			s.reservation = reservation
			return s, nil
		}
		_ = reservation.Close()
	}
	_ = os.RemoveAll(dir)
	return nil, err
}

// postgresTemplate returns a data directory to copy. initdb takes half a second of CPU, a copy a
// tenth of that. All test processes of a user share the template, under a lock.
func postgresTemplate(initdb string, owner *syscall.Credential) (string, error) {
	info, err := os.Stat(initdb)
	if err != nil {
		return "", fmt.Errorf("testkit: %w", err)
	}
	args := []string{
		"-N", "-A", "trust", "-E", "UTF8", "--locale=C", "--wal-segsize=1", "-U", "postgres",
	}
	sum := sha256.Sum256(fmt.Append(nil, initdb, info.ModTime(), info.Size(), args))
	cache := filepath.Join(baseDir(), "petgate-testkit-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("testkit: cache: %w", err)
	}
	if owner != nil {
		if err := os.Chown(cache, int(owner.Uid), int(owner.Gid)); err != nil {
			return "", fmt.Errorf("testkit: cache: %w", err)
		}
	}
	template := filepath.Join(cache, "postgres-"+hex.EncodeToString(sum[:6]))

	lock, err := os.OpenFile(template+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("testkit: cache: %w", err)
	}
	defer lock.Close() // and with it the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("testkit: lock the cache: %w", err)
	}
	if _, err := os.Stat(template); err == nil {
		return template, nil
	}
	unfinished := template + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return "", fmt.Errorf("testkit: cache: %w", err)
	}
	if err := run(owner, initdb, append(args, "-D", unfinished)...); err != nil {
		return "", err
	}
	if err := os.Rename(unfinished, template); err != nil {
		return "", fmt.Errorf("testkit: cache: %w", err)
	}
	return template, nil
}

func run(owner *syscall.Credential, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = baseDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testkit: %s: %w\n%s", filepath.Base(name), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// execute runs one statement on a connection of its own.
func execute(databaseURL, statement string) error {
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(context.Background(), statement)
	return err
}
