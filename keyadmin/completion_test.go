package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
		{"restore |", ""},
		{"-o |", ""},
		{"nosuch command |", "migrate tenant plan key ban usage top audit gateway doctor export diff apply backup restore operator console completion"},
	} {
		words := strings.Split(strings.TrimSuffix(c.words, "|"), " ")
		if got := candidatesOf(s, words...); got != c.want {
			t.Errorf("%s: %q, want %q", c.words, got, c.want)
		}
	}
	s.record.Reset()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		s.ok("completion", shell)
	}
	s.want(exitUsage, "bash", "completion", "powershell")
	candidatesOf(s) // of no word
	candidatesOf(s, "key", "create", "acme", "-")
	s.golden("complete")
}

// Bash completes a command, a flag and the value of a flag.
func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.Symlink(testkit.Build(t, "petgate/keyadmin"), filepath.Join(dir, "keyadmin")))
	for line, want := range map[string]string{
		"keyadmin ten": "tenant", "keyadmin tenant sho": "show", "keyadmin plan list --out": "--output", "keyadmin backup file --key-": "--key-file",
		"keyadmin plan ": "list create update delete",
	} {
		cmd := exec.Command("bash", "--norc", "-c", `source <(keyadmin completion bash) && read -ra COMP_WORDS <<<"$1" && [[ $1 == *" " ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _keyadmin && echo "${COMPREPLY[*]}"`, "bash", line)
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
		if got, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: %s, %v, want %s", line, got, err, want)
		}
	}
}
