// Package deploy tests the scripts of this directory.
package deploy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// machine is a PATH of fake and real commands.
type machine struct{ path string }

func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{t.TempDir()}
	for _, name := range []string{
		"sh", "dirname", "sed", "sort", "head", "tail", "mktemp", "rm", "cat", "chmod", "go", "gcc", "env", "touch", "echo", "sleep",
	} {
		must.Do(t, os.Symlink(must.Get[string](t)(exec.LookPath(name)), filepath.Join(m.path, name)))
	}
	m.fake(t, "id", "echo 1000")
	m.fake(t, "initdb", "")
	m.fake(t, "postgres", "")
	return m
}

// fake puts a shell script into PATH. In the body of the script, `install NAME` makes a command of
// that name exist.
func (m machine) fake(t *testing.T, name, body string) {
	t.Helper()
	install := "install() { echo '#!/bin/sh' >" + m.path + "/$1; chmod 755 " + m.path + "/$1; }\n"
	script := "#!/bin/sh\n" + install + body + "\n"
	path := filepath.Join(m.path, name)
	must.Do(t, errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte(script), 0o755)))
}

// env is the environment of a run. What the run writes as root is also inside the machine.
func (m machine) env(more []string) []string {
	return append(more, "PATH="+m.path, "HOME="+os.Getenv("HOME"), "TMPDIR="+m.path, "POLICY_RC_D="+m.policy())
}

func (m machine) policy() string { return filepath.Join(m.path, "policy-rc.d") }

func (m machine) has(name string) bool {
	_, err := os.Stat(filepath.Join(m.path, name))
	return err == nil
}

func (m machine) run(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command("./services.sh", args...)
	cmd.Env = m.env(env)
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
	f("apt as root", map[string]string{"id": "echo 0", "apt-get": installs}, nil, 0, "redis: none\n",
		"about to install redis-server with apt-get, as root")
	f("apt by sudo", map[string]string{
		"sudo": `[ "$1" = -n ] || exit 1; shift; exec "$@"`, "apt-get": installs, "true": "",
	}, nil, 0, "redis: none\n", "about to install redis-server with apt-get, as root")
	f("brew", map[string]string{"brew": installs}, nil, 0, "redis: none\n",
		"about to install redis-server (Debian's names) with brew")
	f("apt fails, Docker engine", map[string]string{
		"id": "echo 0", "apt-get": "exit 1", "docker": `[ "$1" != port ] || echo 127.0.0.1:49153`,
	}, nil, 0, "redis: redis://127.0.0.1:49153\n", "about to start containers")
	f("no way with apt", map[string]string{"apt-get": "", "sudo": noSudo}, nil, 1, "",
		"sudo apt-get update && sudo apt-get install -y --no-install-recommends redis-server\n")
	f("no way at all", nil, nil, 1, "", "missing (Debian's names): redis-server")
	f("no Docker engine", map[string]string{"docker": "exit 1"}, nil, 1, "", "missing (Debian's names): redis-server")
	f("no C compiler", map[string]string{
		"redis-server": "", "id": "echo 0", "apt-get": `case "$*" in *install*gcc*) install cc-test ;; esac`,
	}, []string{"CC=cc-test"}, 0, "redis: none\n", "about to install gcc libc6-dev with apt-get")
	f("a program that only some tests need", map[string]string{
		"redis-server": "", "id": "echo 0", "apt-get": `case "$*" in *install*balancer*) install balancer ;; esac`,
	}, []string{"TEST_PROGRAMS=balancer"}, 0, "redis: none\n", "about to install balancer with apt-get")
	f("no way to such a program", map[string]string{"redis-server": ""}, []string{"TEST_PROGRAMS=balancer"}, 1, "",
		"missing (Debian's names): balancer")
	f("Go is too old", map[string]string{"redis-server": "", "go": "echo go1.20.1"}, nil, 1, "", "this is 1.20.1")
}

// Installed services are not started, and are no longer enabled at boot.
func TestServicesAreDisabled(t *testing.T) {
	m := newMachine(t)
	m.fake(t, "id", "echo 0")
	m.fake(
		t,
		"apt-get",
		`case "$*" in *install*redis*) "$POLICY_RC_D" || echo "policy: $?" >`+m.path+`/calls; install redis-server ;; esac`,
	)
	m.fake(t, "update-rc.d", `echo "update-rc.d $*" >>`+m.path+`/calls`)
	m.fake(t, "deb-systemd-helper", `echo "deb-systemd-helper $*" >>`+m.path+`/calls`)
	if code, _, errs := m.run(t, nil); code != 0 {
		t.Fatalf("exit code %d\n%s", code, errs)
	}
	calls, err := os.ReadFile(filepath.Join(m.path, "calls"))
	const want = "policy: 101\nupdate-rc.d redis-server disable\ndeb-systemd-helper disable redis-server.service\n"
	if err != nil || string(calls) != want {
		t.Errorf("%v, called\n%s\nwant\n%s", err, calls, want)
	}
	if m.has("policy-rc.d") {
		t.Error("policy-rc.d is left behind")
	}
}

// A signal while packages are installed leaves nothing behind.
func TestServicesAfterASignal(t *testing.T) {
	testkit.HearHangups(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			m := newMachine(t)
			m.fake(t, "id", "echo 0")
			m.fake(t, "apt-get", `case "$*" in *install*) touch `+m.path+`/installing; exec sleep 60 ;; esac`)
			cmd := exec.Command("./services.sh", "echo", "never")
			cmd.Env = m.env(nil)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal signals the whole group
			var said testkit.Output
			cmd.Stdout, cmd.Stderr = &said, &said
			must.Do(t, cmd.Start())
			testkit.Eventually(t, 20*time.Second, "packages are being installed",
				func() bool { return m.has("installing") })
			if !m.has("policy-rc.d") {
				t.Error("services would be started")
			}
			must.Do(t, syscall.Kill(-cmd.Process.Pid, signal))
			if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 128+int(signal) {
				t.Errorf("%v, want exit code %d\n%s", err, 128+int(signal), said.String())
			}
			logs, _ := filepath.Glob(filepath.Join(m.path, "tmp.*"))
			if m.has("policy-rc.d") || len(logs) > 0 || strings.Contains(said.String(), "never") {
				t.Errorf("policy-rc.d is left behind: %t, logs: %v, said:\n%s", m.has("policy-rc.d"), logs,
					said.String())
			}
		})
	}
}
