// Package docs checks and writes the documents that describe several programs.
package docs

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

var update = flag.Bool("update", false, "write docs/config.md and docs/metrics.md from the programs")

const generated = "<!-- Written by `go test ./deploy/docs -update`. -->\n\n"

const configHead = "# Settings\n\n" + generated +
	"A flag takes precedence over its environment variable, and that over the default. An invalid value ends a program with exit\n" +
	"code 2. Secrets have no flag, because flags are seen in `ps`.\n"

func TestConfig(t *testing.T) {
	help := make(map[string]string)
	for _, program := range []string{"gateway", "petsvc", "keyadmin"} {
		path := testkit.Build(t, "petgate/"+program)
		p := testkit.Start(t, path, nil, "--help")
		if code := p.ExitCode(t); code != 0 {
			t.Fatalf("%s --help: exit code %d", program, code)
		}
		help[program] = strings.ReplaceAll(strings.TrimSpace(p.Stdout.String()), path, program) // keyadmin names itself as it was called
	}
	petsvc, same := withoutFlags(help["petsvc"], func(f string) bool {
		return strings.Contains(unfolded(help["gateway"]), unfolded(strings.ReplaceAll(f, "PETSVC_", "GATEWAY_")))
	})
	_, keyadmin, _ := strings.Cut(help["keyadmin"], "\n\nSecrets") // its help has the rest
	want(t, "../../docs/config.md", configHead+
		"\n## gateway\n\n```\n"+help["gateway"]+"\n```\n"+
		"\n## petsvc\n\nThese flags are those of the gateway, with `PETSVC_` in place of `GATEWAY_`: "+strings.Join(same, ", ")+".\n\n```\n"+petsvc+"\n```\n"+
		"\n## keyadmin\n\n`keyadmin COMMAND --help` has the flags. With TLS on [admin ports](operations.md#the-admin-port): `KEYADMIN_ADMIN_CA`, `KEYADMIN_ADMIN_CERT`,\n"+
		"`KEYADMIN_ADMIN_KEY`.\n\n```\nSecrets"+keyadmin+"\n```\n")
}

var (
	flagHelp = regexp.MustCompile(`(?m)^ +(?:-\w, +)?--(\S+).*\n(?:  +[^ -].*\n)*`)
	flagName = regexp.MustCompile(`[\w-]+`)
)

// withoutFlags removes the flags for which drop is true from a help text, and returns their names.
func withoutFlags(help string, drop func(flag string) bool) (rest string, names []string) {
	rest = flagHelp.ReplaceAllStringFunc(help, func(f string) string {
		if !drop(f) {
			return f
		}
		name := strings.TrimPrefix(flagHelp.FindStringSubmatch(f)[1], "[no-]")
		names = append(names, "`--"+flagName.FindString(name)+"`")
		return ""
	})
	return rest, names
}

// unfolded returns a text without its line breaks.
func unfolded(text string) string { return strings.Join(strings.Fields(text), " ") }

// want compares a document with its expected content, or writes it.
func want(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	}
	if read(t, path) != text {
		t.Errorf("%s is not what the programs say: run go test ./deploy/docs -update", path)
	}
}
