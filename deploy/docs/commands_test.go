package docs

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"petgate/gateway/operators"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// block is a fenced block of a page.
type block struct{ language, text, marker string }

var (
	fenced = regexp.MustCompile("(?ms)^(?: *<!-- ([^\n]*) -->\n+)?( *)```(\\w+)\n(.*?)^ *```$")
	runBy  = regexp.MustCompile(`^run by (Test\w+)$`)
	loose  = regexp.MustCompile(`(?m)^\n {4,}((?:` + programs + `) [^\n]*)`)
)

const programs = "curl|docker|export|gateway|go|keyadmin|make|mkdir|petsvc|psql|redis-cli|systemctl"

// commands returns the blocks of a page that a reader executes or gives to a program: all with a
// language other than that of answers.
func commands(text string) (found []block) {
	for _, match := range fenced.FindAllStringSubmatch(text, -1) {
		if match[3] != "json" {
			found = append(found, block{match[3], match[4], match[1]})
		}
	}
	return found
}

// isRun reports whether TestCommands executes the block.
func (b block) isRun() bool {
	return b.marker == "" && slices.Contains([]string{"sh", "bash"}, b.language)
}

// Every block of commands is executed by TestCommands, or a comment above it names the test that
// uses it, or says why none does.
func TestEveryBlockIsRunOrSaysWhyNot(t *testing.T) {
	all, defined, checked := pages(t), definedTests(t), 0
	for path, text := range all {
		for _, b := range commands(text) {
			checked++
			reason, isNot := strings.CutPrefix(b.marker, "not run: ")
			switch by := runBy.FindStringSubmatch(b.marker); {
			case by != nil:
				if !defined[by[1]] {
					t.Errorf("%s: there is no test %s", path, by[1])
				}
			case isNot && len(strings.Fields(reason)) >= 3, b.isRun():
			default:
				t.Errorf("%s: mark this block with <!-- run by TestName --> or <!-- not run: why -->, not with %q:\n%s",
					path, b.marker, b.text)
			}
		}
		for _, match := range loose.FindAllStringSubmatch(text, -1) {
			t.Errorf("%s: this command is not in a fenced block: %s", path, match[1])
		}
	}
	atLeast(t, checked, 20, "blocks")
}

// inline matches a command of keyadmin: its one or two words, and its arguments.
var (
	inline = regexp.MustCompile("`(?:bin/)?keyadmin ([a-z][a-z-]*(?: [a-z][a-z-]*)?)?([^`]*)`")
	flags  = regexp.MustCompile(`--([a-z][a-z-]*)`)
)

// help returns what keyadmin says of a command; nothing if there is no such command.
func help(t *testing.T, command ...string) string {
	t.Helper()
	p := testkit.Start(t, testkit.Build(t, "petgate/keyadmin"), nil, append(command, "--help")...)
	p.ExitCode(t)
	return p.Stdout.String()
}

// Every command of keyadmin in the text of a page or of an alert exists, with its flags.
func TestKeyadminHasTheCommandsOfThePages(t *testing.T) {
	helps, all := map[string]string{}, pages(t)
	all["rules.yml"] = read(t, "../prometheus/rules.yml")
	for path, text := range all {
		for _, match := range inline.FindAllStringSubmatch(text, -1) {
			command := match[1]
			if _, known := helps[command]; !known {
				helps[command] = help(t, strings.Fields(command)...)
			}
			if helps[command] == "" {
				t.Errorf("%s: there is no command %s", path, match[0])
			}
			for _, flag := range flags.FindAllStringSubmatch(match[0], -1) {
				if !regexp.MustCompile(`--(\[no-\])?` + flag[1] + `\b`).MatchString(helps[command]) {
					t.Errorf("%s: %s has no flag --%s", path, match[0], flag[1])
				}
			}
		}
	}
	atLeast(t, len(helps), 15, "commands")
}

// local are the commands of keyadmin that the operators' API does not have.
var local = map[string]string{
	"migrate":         "it is done before gateways start",
	"backup":          "it writes a file of this machine",
	"restore":         "it reads a file of this machine, as the owner of the tables",
	"export":          "it writes a file of this machine",
	"doctor":          "it compares with the clock and the connections of this machine",
	"top":             "it draws on a terminal",
	"completion":      "it is for the shell of this machine",
	"console":         "a program that has a token must not get a session",
	"operator create": "no token may make another",
	"operator list":   "as operator create",
	"operator revoke": "as operator create",
}

var listedCommand = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*(?: [a-z][a-z-]*)?)  +[A-Z]`)

// Every command of keyadmin has a call of the operators' API, or is in local. Every call names a
// command.
func TestEveryCommandHasItsCall(t *testing.T) {
	_, list, _ := strings.Cut(help(t), "\nCommands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var commands []string
	for _, match := range listedCommand.FindAllStringSubmatch(list, -1) {
		commands = append(commands, match[1])
	}
	atLeast(t, len(commands), 40, "commands")
	var document struct {
		Paths map[string]map[string]struct {
			Verb string `json:"x-keyadmin"`
		}
	}
	must.Do(t, json.Unmarshal(operators.Document(), &document))
	called := map[string]bool{}
	for path, methods := range document.Paths {
		for method, o := range methods {
			called[o.Verb] = true
			if !slices.Contains(commands, o.Verb) {
				t.Errorf("%s %s is what `keyadmin %s` does, which does not exist", method, path, o.Verb)
			}
		}
	}
	for _, command := range commands {
		if called[command] == (local[command] != "") {
			t.Errorf("keyadmin %s: it has a call: %t; why it has none: %q", command, called[command], local[command])
		}
	}
	page := read(t, "../../docs/operators-api.md")
	for command := range local {
		if !slices.Contains(commands, command) {
			t.Errorf("there is no command %s", command)
		}
		noun, _, _ := strings.Cut(command, " ")
		if !strings.Contains(page, "`"+command+"`") && !strings.Contains(page, "`"+noun+"`") {
			t.Errorf("docs/operators-api.md does not say that `%s` has no call", command)
		}
	}
}
