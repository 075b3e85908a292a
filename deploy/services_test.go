// Package deploy tests the scripts of this directory.
package deploy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a PATH of fake and real commands.
type machine struct{ path string }

func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{t.TempDir()}
	for _, name := range []string{
		"sh", "dirname", "sed", "sort", "head", "tail", "mktemp", "rm", "cat", "chmod", "go", "gcc", "env", "touch", "echo",
	} {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(real, filepath.Join(m.path, name)); err != nil {
			t.Fatal(err)
		}
	}
	m.fake(t, "id", "echo 1000")
	m.fake(t, "initdb", "")
	m.fake(t, "postgres", "")
	return m
}

// fake puts a shell script into PATH. In it, install makes a command exist.
func (m machine) fake(t *testing.T, name, body string) {
	t.Helper()
	script := "#!/bin/sh\ninstall() { echo '#!/bin/sh' >" + m.path + "/$1; chmod 755 " + m.path + "/$1; }\n" + body + "\n"
	path := filepath.Join(m.path, name)
	if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte(script), 0o755)); err != nil {
		t.Fatal(err)
	}
}

func (m machine) run(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command("./services.sh", args...)
	cmd.Env = append(env, "PATH="+m.path, "HOME="+os.Getenv("HOME"))
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestServices(t *testing.T) {
	const noSudo = "exit 1"
	f := func(name string, fakes map[string]string, env []string, wantCode int, wantOut, wantErr string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			for command, body := range fakes {
				m.fake(t, command, body)
			}
			code, out, errs := m.run(t, env, "sh", "-c", `echo "redis: ${TEST_REDIS_URL:-none}"`)
			if code != wantCode || out != wantOut || !strings.Contains(errs, wantErr) || wantErr == "" && errs != "" {
				t.Errorf("exit code %d, want %d\nout: %s\nerr: %s", code, wantCode, out, errs)
			}
		})
	}
	const installs = `case "$*" in *install*redis*) install redis-server ;; esac`
	f("everything is there", map[string]string{"redis-server": ""}, nil, 0, "redis: none\n", "")
	f("URLs", nil, []string{"TEST_REDIS_URL=redis://r", "TEST_DATABASE_URL=postgres://p"}, 0, "redis: redis://r\n", "")
	f("apt as root", map[string]string{"id": "echo 0", "apt-get": installs}, nil, 0, "redis: none\n", "redis-server with apt")
	f("apt by sudo", map[string]string{
		"sudo": `[ "$1" = -n ] || exit 1; shift; exec "$@"`, "apt-get": installs, "true": "",
	}, nil, 0, "redis: none\n", "redis-server with apt")
	f("brew", map[string]string{"brew": installs}, nil, 0, "redis: none\n", "with brew")
	f("apt fails, Docker engine", map[string]string{
		"id": "echo 0", "apt-get": "exit 1", "docker": `[ "$1" != port ] || echo 127.0.0.1:49153`,
	}, nil, 0, "redis: redis://127.0.0.1:49153\n", "Docker engine")
	f("no way with apt", map[string]string{"apt-get": "", "sudo": noSudo}, nil, 1, "",
		"sudo apt-get update && sudo apt-get install -y --no-install-recommends redis-server\n")
	f("no way at all", nil, nil, 1, "", "missing (Debian's names): redis-server")
	f("no Docker engine", map[string]string{"docker": "exit 1"}, nil, 1, "", "missing (Debian's names): redis-server")
	f("no C compiler", map[string]string{
		"redis-server": "", "id": "echo 0", "apt-get": `case "$*" in *install*gcc*) install cc-test ;; esac`,
	}, []string{"CC=cc-test"}, 0, "redis: none\n", "installing gcc libc6-dev with apt")
	f("a program that only some tests need", map[string]string{
		"redis-server": "", "id": "echo 0", "apt-get": `case "$*" in *install*balancer*) install balancer ;; esac`,
	}, []string{"TEST_PROGRAMS=balancer"}, 0, "redis: none\n", "installing balancer with apt")
	f("no way to such a program", map[string]string{"redis-server": ""}, []string{"TEST_PROGRAMS=balancer"}, 1, "",
		"missing (Debian's names): balancer")
	f("Go is too old", map[string]string{"redis-server": "", "go": "echo go1.20.1"}, nil, 1, "", "this is 1.20.1")
}
