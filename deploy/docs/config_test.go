// Package docs checks and writes the documents that describe several programs.
package docs

import (
	"flag"
	"os"
	"strings"
	"testing"

	"petgate/shared/testkit"
)

var update = flag.Bool("update", false, "write docs/config.md and docs/metrics.md from the programs")

const generated = "<!-- Written by `go test ./deploy/docs -update`. -->\n\n"

const configHead = "# Settings\n\n" + generated +
	"A flag takes precedence over its environment variable, and that over the default. An invalid value ends a program with exit\n" +
	"code 2, and every such value is named at once. Secrets have no flag, because flags are seen in `ps`: they come from the\n" +
	"environment, or from a file (`DATABASE_URL_FILE` names one that holds the URL).\n"

func TestConfig(t *testing.T) {
	var text strings.Builder
	text.WriteString(configHead)
	for _, program := range []string{"gateway", "petsvc", "keyadmin"} {
		path := testkit.Build(t, "petgate/"+program)
		p := testkit.Start(t, path, nil, "--help")
		if code := p.ExitCode(t); code != 0 {
			t.Fatalf("%s --help: exit code %d", program, code)
		}
		text.WriteString("\n## " + program + "\n\n```\n" +
			strings.ReplaceAll(strings.TrimSpace(p.Stdout.String()), path, program) + "\n```\n") // keyadmin names itself as it was called
	}
	want(t, "../../docs/config.md", text.String())
}

// want compares a document with its expected content, or writes it.
func want(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != text {
		t.Errorf("%s is not what the programs say: run go test ./deploy/docs -update", path)
	}
}
