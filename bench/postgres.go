package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"petgate/petsvc/pets"
	"petgate/shared/database"
	"petgate/shared/testkit"
)

// postgres is a private server with the keys and the sample pets. A list of 20 of them is 1.2 kB.
type postgres struct {
	bin     string // where its programs are
	addr    string
	port    string
	url     string
	process *process
}

func openPostgres(ctx context.Context, l *lab) (*postgres, error) {
	bin, err := testkit.PostgresBin()
	if err != nil {
		return nil, err
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	s := &postgres{bin: bin, addr: addr, port: port}
	s.url = s.databaseURL("postgres")
	owner, err := testkit.Unprivileged()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(l.dir, "postgres")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	if owner != nil {
		if err := errors.Join(os.Chown(data, int(owner.Uid), int(owner.Gid)), os.Chmod(l.dir, 0o711)); err != nil {
			return nil, err
		}
	}
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-N", "-A", "trust", "-E", "UTF8", "--locale=C",
		"-U", "postgres", "-D", data)
	initdb.Dir, initdb.SysProcAttr = "/", &syscall.SysProcAttr{Credential: owner}
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	s.process, err = launch(nil, nil, owner, filepath.Join(bin, "postgres"), "-D", data, "-p", port, "-c",
		"listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=400")
	if err != nil {
		return nil, err
	}
	l.processes = append(l.processes, s.process)
	return s, s.seed(ctx)
}

func (s *postgres) databaseURL(name string) string {
	return "postgres://postgres@" + s.addr + "/" + name + "?sslmode=disable"
}

// createDatabase adds an empty database and returns its URL.
func (s *postgres) createDatabase(ctx context.Context, name string) (string, error) {
	db, err := database.Open(s.url)
	if err != nil {
		return "", err
	}
	defer db.Close()
	_, err = db.Exec("CREATE DATABASE " + name)
	return s.databaseURL(name), err
}

// seed waits until the server is ready and stores the sample pets.
func (s *postgres) seed(ctx context.Context) error {
	db, err := database.Open(s.url)
	if err != nil {
		return err
	}
	defer db.Close()
	for late := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err = db.Check(); err == nil || time.Now().After(late) || ctx.Err() != nil {
			break
		}
	}
	if err == nil {
		err = db.Migrate(ctx, pets.Migrations)
	}
	if err == nil {
		_, err = db.Exec(
			`INSERT INTO pets (name, category_id, status)
				SELECT 'Smokey', n % 4 + 1, 'available' FROM generate_series(1, 30) AS n`,
		)
	}
	if err == nil {
		_, err = db.Exec(`VACUUM ANALYZE pets`)
	}
	return err
}

// The pet service's queries with pgbench's variables. A list reads one row more than a page, to
// know whether there is a next page.
const (
	listQuery = "SELECT id, name, category_id, status FROM pets WHERE id > :after ORDER BY id LIMIT :rows;\n"
	getQuery  = "SELECT id, name, category_id, status FROM pets WHERE id = :id;\n"
)

var tps = regexp.MustCompile(`(?m)^tps = ([0-9.]+) \(without`)

// pgbench returns how often per second the server answers a query to a client that ignores the
// rows.
func (s *postgres) pgbench(
	ctx context.Context, l *lab, query string, connections int, duration time.Duration,
) (perSecond float64, err error) {
	script := filepath.Join(l.dir, "query.sql")
	if err := os.WriteFile(script, []byte(query), 0o644); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "pgbench"), "-n", "-M", "prepared", "-h", "127.0.0.1", "-p",
		s.port, "-U", "postgres", "-c", strconv.Itoa(connections), "-j", "1", "-T",
		fmt.Sprintf("%.0f", duration.Seconds()), "-f", script, "-D", "after=-9223372036854775808", "-D", "rows=21",
		"-D", "id=5", "postgres")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w\n%s", err, out)
	}
	match := tps.FindSubmatch(out)
	if match == nil {
		return 0, fmt.Errorf("pgbench printed no figure\n%s", out)
	}
	return strconv.ParseFloat(string(match[1]), 64)
}
