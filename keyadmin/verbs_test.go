package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"petgate/shared/operate"
	"petgate/shared/testkit/must"
	"petgate/shared/testkit/verbs"
)

// Each command for a change does what its verb does. Package operate has the texts.
func TestVerbs(t *testing.T) {
	t.Parallel()
	parser := must.Get[*kong.Kong](t)(kong.New(&cli{}, kong.Name("keyadmin"), kong.Vars{"version": "-"}))
	var all []verbs.Verb
	for _, command := range parser.Model.Leaves(true) {
		arguments := command.Target.FieldByName("Arguments")
		if !arguments.IsValid() {
			continue
		}
		all = append(all, verbs.Verb{
			Name: command.Path(), Arguments: arguments.Interface().(operate.Preparer),
			Send: func(t *testing.T, w *verbs.World,
				c verbs.Call,
			) verbs.Answer {
				return sendCommand(t, w, command, c)
			},
		})
	}
	if len(all) < 20 {
		t.Errorf("only %d commands make changes", len(all))
	}
	verbs.Check(t, "keyadmin:anna", all)
}

// sendCommand asks at a terminal, or carries out the command of a script that is sure. Without a
// terminal, a script that is not sure changes nothing.
func sendCommand(t *testing.T, w *verbs.World, command *kong.Node, c verbs.Call) verbs.Answer {
	t.Helper()
	s := newShell(t, w.URL)
	s.now = verbs.Noon
	args := append(strings.Fields(command.Path()), "-o", "json")
	canSayYes := slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == "yes" })
	args = append(args, argumentsOf(command, c.Given)...)
	if c.Sure {
		r := s.want(exitDone, "", append(args, "--yes")...)
		return verbs.Answer{Text: r.stderr, JSON: r.stdout}
	}
	s.terminal, s.stdin = true, "no\n"
	r := s.run(args)
	isAsking := strings.Contains(r.stderr, "[y/N] ")
	s.terminal = false
	switch {
	case isAsking != (r.code == exitFailed) || !isAsking && r.code != exitDone:
		t.Errorf("exit %d: %s", r.code, r.stderr)
	case isAsking && !canSayYes:
		t.Errorf("%s asks, and has no flag --yes", command.Path())
	case isAsking && !c.Harmless:
		s.want(exitUsage, "add --yes to the command. Nothing was changed.", args...)
	}
	return verbs.Answer{IsQuestion: isAsking, Text: r.stderr, JSON: r.stdout}
}

var capital = regexp.MustCompile("[A-Z]")

// argumentsOf writes arguments as the command line has them.
func argumentsOf(command *kong.Node, given verbs.Given) (args []string) {
	for _, a := range operate.ArgumentsOf(command.Target.FieldByName("Arguments").Type()) {
		flag := "--" + capital.ReplaceAllStringFunc(a.Name,
			func(letter string) string { return "-" + strings.ToLower(letter) })
		if name, isNamed := a.Tag.Lookup("name"); isNamed {
			flag = "--" + name
		}
		_, isPositional := a.Tag.Lookup("arg")
		for _, value := range given[a.Name] {
			switch {
			case isPositional:
				args = append(args, value)
			case a.Name == "environment":
				args = append(args, "--"+value)
			case value == "true":
				args = append(args, flag)
			default:
				args = append(args, flag, value)
			}
		}
	}
	return args
}
