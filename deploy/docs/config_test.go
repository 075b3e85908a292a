// Package docs keeps documents that are written from several programs.
package docs

import (
	"flag"
	"os"
	"strings"
	"testing"

	"petgate/shared/testkit"
)

var update = flag.Bool("update", false, "write docs/config.md from the programs' help")

const configHead = "# Settings\n\n" +
	"<!-- Written by `go test ./deploy/docs -update`. -->\n\n" +
	"A flag beats its environment variable, and that beats the default. A value that makes no sense ends a program with exit\n" +
	"code 2, and every such value is named at once. Secrets have no flag, because flags are seen in `ps`: they come from the\n" +
	"environment, or from a file (`DATABASE_URL_FILE` names one that holds the URL).\n"

func TestConfig(t *testing.T) {
	var want strings.Builder
	want.WriteString(configHead)
	for _, program := range []string{"gateway", "petsvc", "keyadmin"} {
		p := testkit.Start(t, testkit.Build(t, "petgate/"+program), nil, "--help")
		if code := p.ExitCode(t); code != 0 {
			t.Fatalf("%s --help: exit code %d", program, code)
		}
		want.WriteString("\n## " + program + "\n\n```\n" + strings.TrimSpace(p.Stdout.String()) + "\n```\n")
	}
	const path = "../../docs/config.md"
	if *update {
		if err := os.WriteFile(path, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Error("docs/config.md is not what the programs say: run go test ./deploy/docs -update")
	}
}
