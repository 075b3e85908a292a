package service_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"petgate/shared/service"
)

// A parser that has parsed other lines says and fills the same as a new one.
func TestParserAgain(t *testing.T) {
	type target struct {
		Token service.Secret `env:"TOKEN" help:"A secret."`
		Add   struct {
			Name  string `arg:"" help:"Its name."`
			Owner string `required:"" help:"Its owner."`
			Short bool   `xor:"size" help:"Short."`
			Long  bool   `xor:"size" help:"Long."`
			Count int    `default:"3" help:"How many."`
		} `cmd:"" help:"Add one."`
		List struct {
			Names []string `help:"Only these."`
		} `cmd:"" help:"List all."`
	}
	one := &target{}
	used := service.NewParser(one, "prog", "A program.")
	parse := func(p *service.Parser, filled *target, line string) string {
		var out strings.Builder
		token, args := "", strings.Fields(line)
		if len(args) > 0 && strings.HasPrefix(args[0], "TOKEN=") {
			token, args = args[0][len("TOKEN="):], args[1:]
		}
		command, err := p.Parse(service.CommandLine{
			Program: "prog", Args: args, Stdout: &out, Stderr: io.Discard,
			Env: func(name string) (string, bool) { return token, name == "TOKEN" && token != "" },
		})
		name := ""
		if command != nil {
			name = command.Command()
		}
		return fmt.Sprintf("%s %+v %v %s", name, *filled, err, out.String())
	}
	lines := []string{
		"TOKEN=one add a --owner me --short --count 5", "add a", "add", "add a --owner you --long", "add a --owner you --count x", "list --names a,b",
		"list --count 5", "list", "--help", "add --help", "--man", "TOKEN=two list", "nonsense", "add b --owner me --short --long",
	}
	for _, line := range slices.Concat(lines, lines) {
		*one = target{}
		fresh := &target{}
		if got, want := parse(used, one, line), parse(service.NewParser(fresh, "prog", "A program."), fresh, line); got != want {
			t.Errorf("prog %s: %s\nwant as from a new parser: %s", line, got, want)
		}
	}
}
