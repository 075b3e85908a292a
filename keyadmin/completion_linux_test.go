package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// candidatesOf completes the last of the words and returns the candidates without their descriptions.
func candidatesOf(s *shell, words ...string) string {
	s.t.Helper()
	r := s.keyadmin(append([]string{completeCommand}, words...)...)
	if r.code != exitDone || r.stderr != "" {
		s.t.Errorf("%s: exit %d\n%s", quoted(words), r.code, r.stderr)
	}
	var all []string
	for line := range strings.Lines(r.stdout) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		all = append(all, word)
	}
	return strings.Join(all, " ")
}

func TestComplete(t *testing.T) {
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "acme")
	s.ok("tenant", "create", "acorn")
	spaced := s.ok("tenant", "create", "a tenant")
	likeKey, _, err := s.store().CreateTenant(t.Context(), keystore.TenantSpec{Name: "account", Plan: "free"})
	must.Do(t, err)
	if _, err := s.open().Exec(`UPDATE tenants SET name = 'key_account' WHERE name = 'account'`); err != nil { // as earlier versions allowed
		t.Fatal(err)
	}
	s.ok("key", "create", "acme", "--name", "ci")
	key := keyID(s, "acme")
	s.ok("key", "create", "acme", "--name", "old")
	s.ok("key", "revoke", keyID(s, "acme"), "--yes")
	s.gateway(s.store(), "gw-1", "10.0.0.5:9090")
	for _, c := range []struct{ words, want string }{
		{"|", "migrate tenant plan key ban usage top audit gateway doctor export diff apply backup restore operator console completion help"},
		{"te|", "tenant"},
		{"tenant s|", "show suspend set-plan set-quota"},
		{"help tenant s|", "show suspend set-plan set-quota"},
		{"tenant show ac|", "acme acorn"},
		{"tenant show |", spaced + " acme acorn " + likeKey.ID.String()},
		{"usage explain ten_|", spaced + " " + likeKey.ID.String()},
		{"usage explain key_|", key},
		{"tenant show acme |", ""},
		{"tenant set-plan acme |", "business enterprise free pro"},
		{"-o json tenant set-plan acme b|", "business"},
		{"tenant create new --plan p|", "pro"},
		{"tenant create new --plan=p|", "--plan=pro"},
		{"plan update f|", "free"},
		{"plan create f|", ""},
		{"key revoke |", key},
		{"key revoke key_|", key},
		{"key create acme --scope pets:r|", "pets:read"},
		{"key update --scope |", "pets:read pets:write usage:read"},
		{"key create acme --if|", "--if-not-exists"},
		{"audit --kind key.r|", "key.revoked key.rotated"},
		{"audit --tenant acm|", "acme"},
		{"usage show acme --by |", "minute hour day operation key outcome"},
		{"top --by |", "rate minute day refused bans"},
		{"gateway forget |", "gw-1"},
		{"apply |", completeFiles},
		{"restore |", completeFiles},
		{"-o |", "table json csv"},
		{"completion |", "bash zsh fish"},
		{"nosuch command |", "migrate tenant plan key ban usage top audit gateway doctor export diff apply backup restore operator console completion help"},
	} {
		words := strings.Split(strings.TrimSuffix(c.words, "|"), " ")
		if got := candidatesOf(s, words...); got != c.want {
			t.Errorf("%s: %q, want %q", c.words, got, c.want)
		}
	}
	s.env[0] = "DATABASE_URL=sqlite:/nowhere/none.db"
	if got := candidatesOf(s, "tenant", "show", ""); got != "" {
		t.Errorf("without a database: %q", got)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if r := s.want(exitDone, "", "completion", shell); !strings.Contains(r.stdout, completeCommand) {
			t.Errorf("the script for %s:\n%s", shell, r.stdout)
		}
	}
	s.want(exitUsage, "bash", "completion", "powershell")
}

// If the database does not answer, completion gives up after the limit.
func TestCompleteIsQuick(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
	must.Do(t, err)
	defer mute.Close()
	within(t, &completeWithin, 300*time.Millisecond)
	s := newShell(t, "postgres://"+mute.Addr().String()+"/petgate?sslmode=disable&connect_timeout=60")
	begin := time.Now()
	if got := candidatesOf(s, "tenant", "show", ""); got != "" {
		t.Errorf("candidates of a mute database: %q", got)
	}
	if took := time.Since(begin); took > 30*time.Second { // half of the connection's own timeout
		t.Errorf("took %v, the limit is %v", took, completeWithin)
	}
}

// At a terminal, Tab completes a command, a flag and a name of the database.
func TestCompletionInShells(t *testing.T) {
	binary := testkit.Build(t, "petgate/keyadmin")
	for _, c := range []struct {
		shell string
		args  []string
		setup string
	}{
		{"bash", []string{"--norc", "--noprofile", "-i"}, "source <(keyadmin completion bash)"},
		{"zsh", []string{"-f", "-i"}, "autoload -Uz compinit && compinit -u && source <(keyadmin completion zsh)"},
		{"zsh", []string{"-f", "-i"}, "mkdir ~/f; keyadmin completion zsh >~/f/_keyadmin; fpath=(~/f $fpath); autoload -Uz compinit && compinit -u"},
		{"fish", []string{"--no-config", "-i"}, "keyadmin completion fish | source"},
	} {
		path, err := exec.LookPath(c.shell)
		if err != nil {
			continue // this machine has no such shell
		}
		t.Run(c.shell, func(t *testing.T) {
			s := newMigrated(t, testkit.SQLite(t))
			s.ok("tenant", "create", "acme-of-the-east")
			dir := t.TempDir()
			must.Do(t, os.Symlink(binary, filepath.Join(dir, "keyadmin")))
			terminal := startTerminal(t, path, c.args, append(s.env, "PATH="+dir+":"+os.Getenv("PATH"), "PS1=ready> ", "TERM=dumb", "HOME="+dir, "COLUMNS=200"))
			terminal.enter(c.setup + "; echo set''up\n")
			terminal.await("setup\r\n")
			terminal.enter("keyadmin ten\t sho\t acme\t\n")
			terminal.await("Requests per minute")
			if out := terminal.text(); !strings.Contains(out, "acme-of-the-east") {
				t.Errorf("the terminal shows:\n%s", out)
			}
			terminal.enter("keyadmin plan list --out\t csv; echo do''ne\n")
			terminal.await("name,limits.minute")
			terminal.await("done\r\n")
			terminal.enter("exit\n")
		})
	}
}

// terminal is a pseudo-terminal with a program in it.
type terminal struct {
	t    *testing.T
	file *os.File
	cmd  *exec.Cmd

	mu   sync.Mutex
	seen strings.Builder
}

// startTerminal starts a program. prepare, if it is given, is called with the terminal before that.
func startTerminal(t *testing.T, path string, args, env []string, prepare ...func(*os.File)) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	must.Do(t, err)
	must.Do(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must.Do(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	must.Do(t, err)
	for _, f := range prepare {
		f(master)
	}
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must.Do(t, cmd.Start())
	slave.Close()
	terminal := &terminal{t: t, file: master, cmd: cmd}
	read := make(chan struct{})
	go func() {
		defer close(read)
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			terminal.mu.Lock()
			terminal.seen.Write(buffer[:n])
			terminal.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		master.Close()
		<-read
	})
	return terminal
}

func (t *terminal) enter(keys string) {
	t.t.Helper()
	if _, err := t.file.WriteString(keys); err != nil {
		t.t.Fatal(err)
	}
}

func (t *terminal) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen.String()
}

func (t *terminal) await(text string) {
	t.t.Helper()
	testkit.Eventually(t.t, 20*time.Second, fmt.Sprintf("the terminal shows %q", text), func() bool { return strings.Contains(t.text(), text) })
}
