package contract_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// The programs of the pages in shell and Go, unchanged, against a gateway that first refuses them. The Go program is in a module of its
// own, with copies of the files that the page names.
func TestBackOffLoopsOfTheDocs(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{Database: testkit.SQLite(t), Gateways: 1})
	f.MustKeyadmin("tenant", "create", "patient")
	url := f.Gateways[0].URL
	stored := send(t, url, "before the ban", operations[1], request{token: f.NewKey("patient").Token})
	if stored.status != 201 {
		t.Fatalf("before the ban: %d %s", stored.status, stored.body)
	}
	for language, command := range map[string]func(dir, code string) *exec.Cmd{
		"sh": func(dir, code string) *exec.Cmd {
			return exec.Command("sh", "-e", write(t, filepath.Join(dir, "loop.sh"), code))
		},
		"go": func(dir, code string) *exec.Cmd {
			write(t, filepath.Join(dir, "go.mod"), "module example.com/pets\n\ngo 1.26\n")
			write(t, filepath.Join(dir, "main.go"), code)
			must.Do(t, os.Mkdir(filepath.Join(dir, "petgate"), 0o700))
			for _, name := range []string{"client.go", "error.go", "wait.go", "types.gen.go"} {
				source, err := os.ReadFile(filepath.Join("../../shared/api/clients/go", name))
				must.Do(t, err)
				write(t, filepath.Join(dir, "petgate", name), string(source))
			}
			return exec.Command("go", "run", ".")
		},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			const banned = 5 * time.Second // on a busy machine, the request and the start of the program come later
			k := f.NewKey("patient")
			dir := t.TempDir()
			cmd := command(dir, block(t, language))
			cmd.Dir = dir
			before := time.Now()
			f.MustKeyadmin("ban", "add", k.ID, "--for", banned.String(), "--reason", "a test", "--yes")
			refused := send(t, url, "in the ban", operations[0], request{token: k.Token})
			if refused.status != 429 {
				t.Fatalf("in the ban: %d %s", refused.status, refused.body)
			}
			cmd.Env = append(os.Environ(), "PETGATE_URL="+url, "PETGATE_TOKEN="+k.Token)
			out, err := cmd.CombinedOutput()
			took := time.Since(before)
			if err != nil || !strings.Contains(string(out), "Rex") || took < banned {
				t.Errorf("after %v: %v\n%s", took, err, out)
			}
		})
	}
}

// block returns the only block of a language on its page.
func block(t *testing.T, language string) string {
	t.Helper()
	page := map[string]string{"sh": "../../docs/api.md", "go": "../../shared/api/clients/go/README.md"}[language]
	text, err := os.ReadFile(page)
	must.Do(t, err)
	blocks := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 {
		t.Fatalf("%s has %d blocks of %s", page, len(blocks), language)
	}
	return blocks[0][1]
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
