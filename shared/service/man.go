package service

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// manual writes the manual page (man(7)): the help texts of the program and of all its commands, as a terminal shows them. It has no
// date, so that every build of a version writes the same.
func (p *parser) manual() {
	out := p.line.Stdout
	about, _, _ := strings.Cut(p.Model.Help, "\n")
	fmt.Fprintf(out, ".TH %s 1 \"\" \"Petgate %s\" Petgate\n", strings.ToUpper(p.Model.Name), roff(Version()))
	fmt.Fprintf(out, ".SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.EX\n%s.EE\n", roff(p.Model.Name), roff(about), roff(p.helpText()))
	for n, command := range p.Model.Leaves(true) {
		if n == 0 {
			fmt.Fprint(out, ".SH COMMANDS\n")
		}
		path := strings.Fields(command.Path())
		fmt.Fprintf(out, ".SS %s\n.EX\n%s.EE\n", roff(strings.Join(path, " ")), roff(p.helpText(path...)))
	}
}

// helpText returns what --help prints for a command.
func (p *parser) helpText(path ...string) string {
	var text strings.Builder
	p.Stdout = &text
	if command, err := kong.Trace(p.Kong, path); err == nil {
		_ = command.PrintUsage(false)
	}
	return text.String()
}

// special matches what roff does not print as it is (groff(7), "Escape sequences").
var special = regexp.MustCompile(`(?m)^[.']|[-\\]|[^\x00-\x7f]`)

// roff returns a text in which roff finds no commands.
func roff(text string) string {
	return special.ReplaceAllStringFunc(text, func(found string) string {
		switch found {
		case ".", "'":
			return `\&` + found
		case `\`:
			return `\e`
		case "-":
			return `\-`
		}
		return fmt.Sprintf(`\[u%04X]`, []rune(found)[0])
	})
}
