package service

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// describe prints a document for packages, if the only argument asks for one: --man for the manual page, and --completion-bash,
// --completion-zsh or --completion-fish for a program without commands. They are not in the help: they are no settings. It reports
// whether it did.
func (p *Parser) describe() bool {
	if len(p.line.Args) != 1 {
		return false
	}
	out, hasCommands := p.line.Stdout, len(p.kong.Model.Children) > 0
	switch argument := p.line.Args[0]; {
	case argument == "--man":
		p.man(out)
	case hasCommands:
		return false
	case argument == "--completion-bash":
		fmt.Fprintf(out, "complete -o default -W '%s' %s\n", strings.Join(p.flagNames(), " "), p.line.Program)
	case argument == "--completion-zsh":
		fmt.Fprintf(out, "#compdef %s\n_arguments \\\n", p.line.Program)
		for _, flag := range p.kong.Model.Flags {
			value := ""
			if !flag.IsBool() {
				value = ":" + flag.Name + ":_default"
			}
			fmt.Fprintf(out, "  '--%s[%s]%s' \\\n", flag.Name, zshText.Replace(flag.Help), value)
		}
		fmt.Fprintln(out, "  '*: :'")
	case argument == "--completion-fish":
		for _, flag := range p.kong.Model.Flags {
			value := ""
			if !flag.IsBool() {
				value = " -r"
			}
			fmt.Fprintf(out, "complete -c %s -l %s%s -d '%s'\n", p.line.Program, flag.Name, value, fishText.Replace(flag.Help))
		}
	default:
		return false
	}
	return true
}

// How a text is written between single quotes.
var (
	zshText  = strings.NewReplacer("'", `'\''`, "[", `\[`, "]", `\]`, ":", `\:`)
	fishText = strings.NewReplacer(`\`, `\\`, "'", `\'`)
)

func (p *Parser) flagNames() []string {
	var names []string
	for _, flag := range p.kong.Model.Flags {
		names = append(names, "--"+flag.Name)
		if flag.Tag.Negatable != "" {
			names = append(names, "--no-"+flag.Name)
		}
	}
	return names
}

// man writes the manual page (man(7)). It has no date, so that every build of a version writes the same.
func (p *Parser) man(w io.Writer) {
	model := p.kong.Model
	fmt.Fprintf(w, ".TH %s 1 \"\" \"Petgate %s\" Petgate\n", strings.ToUpper(model.Name), roff(Version()))
	first, rest, _ := strings.Cut(model.Help, "\n")
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", roff(model.Name), roff(first))
	usage := "[\\fIflags\\fR]"
	if len(model.Children) > 0 {
		usage = "\\fIcommand\\fR " + usage
	}
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n%s\n", roff(model.Name), usage)
	if rest = strings.TrimSpace(rest); rest != "" {
		fmt.Fprint(w, ".SH DESCRIPTION\n")
		manText(w, rest)
	}
	if len(model.Flags) > 0 {
		fmt.Fprint(w, ".SH OPTIONS\n")
		manFlags(w, model.Flags)
	}
	if len(model.Children) > 0 {
		fmt.Fprint(w, ".SH COMMANDS\n")
		for _, command := range model.Leaves(true) {
			name := command.Path()
			for _, argument := range command.Positional {
				name += " " + argument.Summary()
			}
			fmt.Fprintf(w, ".SS %s\n", roff(name))
			manText(w, command.Help)
			for _, argument := range command.Positional {
				if argument.Help != "" {
					fmt.Fprintf(w, ".TP\n\\fI%s\\fR\n%s\n", roff(argument.Name), roff(argument.Help))
				}
			}
			manFlags(w, command.Flags)
			if command.Detail != "" {
				fmt.Fprint(w, ".PP\n")
				manText(w, command.Detail)
			}
		}
	}
	if len(p.secrets) > 0 {
		fmt.Fprint(w, ".SH ENVIRONMENT\nSecrets have no flags. With _FILE appended to a name, its value is the path of a file that holds the secret.\n")
		for _, flag := range p.secrets {
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(flag.Envs[0]), roff(helpOf(flag.Value)))
		}
	}
}

func manFlags(w io.Writer, flags []*kong.Flag) {
	for _, flag := range flags {
		name := "--" + flag.Name
		if flag.Tag.Negatable != "" {
			name = "--[no-]" + flag.Name
		}
		if flag.Short != 0 {
			name = "-" + string(flag.Short) + ", " + name
		}
		fmt.Fprintf(w, ".TP\n\\fB%s\\fR", roff(name))
		if !flag.IsBool() {
			fmt.Fprintf(w, "=\\fI%s\\fR", roff(flag.FormatPlaceHolder()))
		}
		fmt.Fprintf(w, "\n%s\n", roff(helpOf(flag.Value)))
	}
}

// manText writes paragraphs. Indented ones are examples: they keep their lines.
func manText(w io.Writer, text string) {
	for n, paragraph := range strings.Split(text, "\n\n") {
		switch {
		case strings.HasPrefix(paragraph, "    "):
			fmt.Fprintf(w, ".PP\n.EX\n%s\n.EE\n", roff(paragraph))
			continue
		case n > 0:
			fmt.Fprint(w, ".PP\n")
		}
		fmt.Fprintln(w, roff(paragraph))
	}
}

// roff returns a text in which roff finds no commands (groff(7), "Escape sequences").
func roff(text string) string {
	var escaped strings.Builder
	atStart := true
	for _, r := range text {
		switch {
		case atStart && (r == '.' || r == '\''):
			escaped.WriteString(`\&` + string(r))
		case r == '\\':
			escaped.WriteString(`\e`)
		case r == '-':
			escaped.WriteString(`\-`)
		case r >= utf8.RuneSelf:
			fmt.Fprintf(&escaped, `\[u%04X]`, r)
		default:
			escaped.WriteRune(r)
		}
		atStart = r == '\n'
	}
	return escaped.String()
}
