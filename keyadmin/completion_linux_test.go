package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	t.Parallel()
	s := newShell(t, "sqlite:/nowhere/none.db")
	for _, c := range []struct{ words, want string }{
		{"|", "migrate tenant plan key ban usage top audit gateway doctor export diff apply backup restore operator console completion"},
		{"te|", "tenant"},
		{"tenant s|", "show suspend set-plan set-quota"},
		{"help tenant s|", "show suspend set-plan set-quota"},
		{"key create acme --if|", "--if-not-exists"},
		{"audit --kind key.r|", "key.revoked key.rotated"},
		{"usage show acme --by |", "minute hour day operation key outcome"},
		{"apply |", completeFiles},
		{"restore |", completeFiles},
		{"-o |", "table json csv"},
		{"completion |", "bash zsh fish"},
		{"nosuch command |", "migrate tenant plan key ban usage top audit gateway doctor export diff apply backup restore operator console completion"},
	} {
		words := strings.Split(strings.TrimSuffix(c.words, "|"), " ")
		if got := candidatesOf(s, words...); got != c.want {
			t.Errorf("%s: %q, want %q", c.words, got, c.want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if r := s.want(exitDone, "", "completion", shell); !strings.Contains(r.stdout, completeCommand) {
			t.Errorf("the script for %s:\n%s", shell, r.stdout)
		}
	}
	s.want(exitUsage, "bash", "completion", "powershell")
}

// At a terminal, Tab completes a command, a flag and the value of a flag.
func TestCompletionInShells(t *testing.T) {
	t.Parallel()
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
			terminal.enter("keyadmin ten\t sho\t acme-of-the-east\n")
			terminal.await("Requests per minute")
			if out := terminal.text(); !strings.Contains(out, "acme-of-the-east") {
				t.Errorf("the terminal shows:\n%s", out)
			}
			terminal.enter("keyadmin plan list --out\t c\t; echo do''ne\n")
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

// startTerminal starts a program.
func startTerminal(t *testing.T, path string, args, env []string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	must.Do(t, err)
	must.Do(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must.Do(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	must.Do(t, err)
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
