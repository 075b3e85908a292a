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

// local are the commands of keyadmin that the operators' API does not have.
var local = map[string]string{
	"migrate": "it is done before gateways start", "restore": "it reads a file of this machine, as the owner of the tables", "backup": "it writes a file of this machine",
	"export": "it writes a file of this machine", "diff": "it reads a file of this machine", "apply": "it reads a file of this machine; the calls change one record each",
	"doctor": "it compares with the clock and the connections of this machine",
	"top":    "it draws on a terminal", "completion": "it is for the shell of this machine", "console": "who has a token must not get a session",
	"operator create": "no token may make another", "operator list": "as operator create", "operator revoke": "as operator create",
}

var listedCommand = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*(?: [a-z][a-z-]*)?)  +[A-Z]`)

// Every command of keyadmin has its call, or is in the list of those that have none, and the reverse.
func TestEveryCommandHasItsCall(t *testing.T) {
	p := testkit.Start(t, testkit.Build(t, "petgate/keyadmin"), nil, "--help")
	p.ExitCode(t)
	_, help, _ := strings.Cut(p.Stdout.String(), "\nCommands:\n")
	help, _, _ = strings.Cut(help, "\n\n")
	var commands []string
	for _, match := range listedCommand.FindAllStringSubmatch(help, -1) {
		commands = append(commands, match[1])
	}
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
	for command := range local {
		if !slices.Contains(commands, command) {
			t.Errorf("there is no command %s", command)
		}
	}
	page := read(t, "../../docs/operators-api.md")
	for command := range local {
		if noun, _, _ := strings.Cut(command, " "); !strings.Contains(page, "`"+command+"`") && !strings.Contains(page, "`"+noun+"`") {
			t.Errorf("docs/operators-api.md does not say that `%s` has no call", command)
		}
	}
	if len(commands) < 40 {
		t.Errorf("only %d commands found", len(commands))
	}
}
