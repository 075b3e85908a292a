package service

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// exitUsage is the exit code for invalid settings and command lines.
const exitUsage = 2

// CommandLine is the command line of a program. Parse fills a struct with kong's tags from it.
//
// kong stops at the first bad value. Parse continues with the default, so one run names every bad value of the command line and
// the environment. After an argument that kong cannot place, such as an unknown flag, only the environment is read.
type CommandLine struct {
	Program string
	About   string
	Args    []string
	Stdout  io.Writer
	Stderr  io.Writer

	// Env looks up secrets. Nil is the process's environment.
	Env func(name string) (string, bool)

	// Explain rewords kong's text about an argument that it cannot place. at is the command before this argument. Nil keeps kong's text.
	Explain func(at *kong.Node, problem string) string
}

// UsageError reports an invalid command line or invalid settings. Nothing was tried.
type UsageError struct {
	Program  string
	Problems []string
	Command  string // the command whose --help explains the arguments; empty if the arguments are valid
}

func (e *UsageError) Error() string {
	text := e.Program + ": " + e.Problems[0]
	if n := len(e.Problems); n > 1 {
		text = fmt.Sprintf("%s: %d problems:\n  %s", e.Program, n, strings.Join(e.Problems, "\n  "))
	}
	if e.Command != "" {
		text += fmt.Sprintf("\nRun \"%s --help\" for usage.", e.Command)
	}
	return text
}

// Parse fills target. It returns the command to run, or nil if it has printed the help, the version or another document. The error is
// a *UsageError.
func (c CommandLine) Parse(target any) (*kong.Context, error) {
	return NewParser(target, c.Program, c.About).Parse(c)
}

// Parser parses command lines into one target, one after another. It is not safe for concurrent use.
type Parser struct {
	line     CommandLine // the one being parsed
	target   any
	kong     *kong.Kong
	secrets  []*kong.Flag
	problems []string
	ended    bool // by --help or --version
}

// Parse is CommandLine.Parse for the parser's target. It changes only the fields that flags and arguments fill.
func (p *Parser) Parse(c CommandLine) (*kong.Context, error) {
	p.begin(c)
	if p.describe() {
		return nil, nil
	}
	usage := &UsageError{Program: c.Program}
	command, err := p.kong.Parse(c.Args)
	if p.ended {
		return nil, nil
	}
	var misplaced *kong.ParseError
	if errors.As(err, &misplaced) {
		command = misplaced.Context
		at := p.kong.Model.Node
		if node := command.Selected(); node != nil {
			at = node
		}
		usage.Command = at.FullPath()
		problem := err.Error() + p.hint(err)
		if c.Explain != nil {
			problem = c.Explain(at, problem)
		}
		usage.Problems = append(usage.Problems, problem)
		// Bad values do not fail here: they are collected.
		_ = command.Reset()
		_, _ = command.Apply()
	} else if err != nil {
		panic("bug: " + c.Program + ": " + err.Error())
	}
	p.readSecrets()
	usage.Problems = append(usage.Problems, p.problems...)
	usage.Problems = append(usage.Problems, p.check(p.target, command)...)
	if node := command.Selected(); node != nil && len(usage.Problems) == 0 {
		// Only now: not every flag of a command has a default, so its rules make sense only when all flags could be read.
		usage.Problems = p.check(node.Target.Addr().Interface(), command)
	}
	if len(usage.Problems) > 0 {
		return nil, usage
	}
	return command, nil
}

// NewParser returns a parser that fills target, a pointer to a struct with kong's tags.
func NewParser(target any, program, about string) *Parser {
	p := &Parser{target: target, line: CommandLine{Program: program}}
	built, err := kong.New(target,
		kong.Name(cmp.Or(program, "program")), kong.Description(about), kong.Vars{"version": program + " " + Version()},
		kong.Exit(func(int) { p.ended = true }), kong.Help(p.help), kong.ValueFormatter(helpOf),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	if err != nil {
		panic("bug: the settings of " + program + ": " + err.Error())
	}
	p.kong = built
	p.collect(built.Model.Node)
	if fixer, ok := target.(Fixer); ok {
		p.hide(fixer.Fixed())
	}
	for _, flag := range built.Model.Flags {
		if isSecret(flag) {
			p.secrets = append(p.secrets, flag)
		}
	}
	// They are removed, not hidden: kong would take a hidden flag from the command line.
	built.Model.Flags = slices.DeleteFunc(built.Model.Flags, isSecret)
	return p
}

// begin prepares for the next command line. kong marks in its model what an earlier one has set.
func (p *Parser) begin(c CommandLine) {
	if c.Env == nil {
		c.Env = os.LookupEnv
	}
	p.line, p.problems, p.ended = c, nil, false
	p.kong.Stdout, p.kong.Stderr = c.Stdout, c.Stderr
	_ = kong.Visit(p.kong.Model.Node, func(v kong.Visitable, next kong.Next) error {
		switch v := v.(type) {
		case *kong.Node:
			v.Active = false
		case *kong.Value:
			v.Set, v.Active = false, false
		}
		return next(nil)
	})
}

// hide leaves settings out of the help.
func (p *Parser) hide(names []string) {
	for _, name := range names {
		at := slices.IndexFunc(p.kong.Model.Flags, func(flag *kong.Flag) bool { return flag.Name == name })
		if at < 0 {
			panic("bug: there is no flag --" + name)
		}
		p.kong.Model.Flags[at].Hidden = true
	}
}

// collect puts a collector before the decoder of every value.
func (p *Parser) collect(node *kong.Node) {
	for _, flag := range node.Flags {
		flag.Mapper = &collector{parser: p, name: nameOf(flag), inner: flag.Mapper, isBool: flag.IsBool()}
	}
	for _, argument := range node.Positional {
		argument.Mapper = &collector{parser: p, name: "<" + argument.Name + ">", inner: argument.Mapper}
	}
	for _, child := range node.Children {
		p.collect(child)
	}
}

// nameOf names a flag and its variable in messages.
func nameOf(flag *kong.Flag) string {
	switch {
	case isSecret(flag):
		return flag.Envs[0]
	case len(flag.Envs) == 0:
		return "--" + flag.Name
	}
	return flag.Envs[0] + " (--" + flag.Name + ")"
}

func isSecret(flag *kong.Flag) bool { return flag.Target.Type() == secretType }

// helpOf returns a setting's help text. It adds the default if kong would show a placeholder instead.
func helpOf(v *kong.Value) string {
	text := v.Help
	if v.Default != "" && (v.Tag.PlaceHolder != "" || v.Target.Type() == secretType || v.Target.Kind() == reflect.Bool) {
		text += " Default: " + v.Default + "."
	}
	if len(v.Tag.Envs) != 0 && v.Target.Type() != secretType {
		text += " ($" + v.Tag.Envs[0] + ")"
	}
	return text
}

// help adds the settings that have no flag to kong's text.
func (p *Parser) help(options kong.HelpOptions, command *kong.Context) error {
	options.Compact = len(p.kong.Model.Children) > 0
	if err := kong.DefaultHelpPrinter(options, command); err != nil || len(p.secrets) == 0 || command.Selected() != nil {
		return err
	}
	fmt.Fprintf(command.Stdout, "\nSecrets, from the environment. With _FILE appended to a name, its value is the path of a file that holds the secret:\n")
	for _, flag := range p.secrets {
		if !flag.Hidden {
			fmt.Fprintf(command.Stdout, "  %s\n      %s\n", flag.Envs[0], helpOf(flag.Value))
		}
	}
	return nil
}

func (p *Parser) hint(err error) string {
	for _, flag := range p.secrets {
		if strings.Contains(err.Error(), "unknown flag --"+flag.Name) {
			return fmt.Sprintf(": flags are seen in ps, so set %[1]s or %[1]s_FILE", flag.Envs[0])
		}
	}
	return ""
}

func (p *Parser) readSecrets() {
	for _, flag := range p.secrets {
		value, given, problem := lookupSecret(flag.Envs[0], p.line.Env)
		if problem != "" {
			p.problems = append(p.problems, problem)
		}
		if !given {
			value = flag.Default // also after a problem: one message is enough
		}
		flag.Target.SetString(value)
	}
}

// check asks the settings, or a command, what is wrong with their values.
func (p *Parser) check(target any, command *kong.Context) (problems []string) {
	checker, ok := target.(Checker)
	if !ok {
		return nil
	}
	flags := append(slices.Clone(p.secrets), command.Flags()...)
	for _, bad := range checker.BadSettings() {
		at := slices.IndexFunc(flags, func(flag *kong.Flag) bool { return flag.Name == bad.Flag })
		switch {
		case at < 0 && bad.Flag != "":
			panic("bug: there is no flag --" + bad.Flag)
		case at < 0:
			problems = append(problems, bad.Rule)
		case isSecret(flags[at]):
			problems = append(problems, nameOf(flags[at])+": "+bad.Rule)
		default:
			problems = append(problems,
				fmt.Sprintf("%s is %q: %s", nameOf(flags[at]), fmt.Sprint(flags[at].Target.Interface()), bad.Rule))
		}
	}
	return problems
}

// collector records a value that does not decode and continues with the default.
type collector struct {
	parser *Parser
	name   string
	inner  kong.Mapper
	isBool bool
}

// IsBool keeps kong from expecting a value after a switch.
func (c *collector) IsBool() bool { return c.isBool }

// Decode implements kong.Mapper.
func (c *collector) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	given := ctx.Scan.Peek()
	if given.String() == "" && target.Kind() == reflect.Slice {
		ctx.Scan.Pop() // NAME= is an empty list, not a list of one empty value
		if target.IsNil() {
			target.Set(reflect.MakeSlice(target.Type(), 0, 0)) // it was given
		}
		return nil
	}
	err := c.inner.Decode(ctx, target)
	if err == nil {
		return nil
	}
	if !given.IsValue() {
		return errors.New("it needs a value")
	}
	problem := c.name + ": " + err.Error()
	if cure := cureOf(target); cure != "" {
		problem = fmt.Sprintf("%s is %q: %s", c.name, given.String(), cure)
	}
	if !slices.Contains(c.parser.problems, problem) {
		c.parser.problems = append(c.parser.problems, problem)
	}
	target.SetZero()
	if !ctx.Value.HasDefault {
		return nil
	}
	scan := kong.ScanFromTokens(kong.Token{Type: kong.FlagValueToken, Value: ctx.Value.Default})
	return c.inner.Decode(&kong.DecodeContext{Value: ctx.Value, Scan: scan}, target)
}

// cureOf describes valid values of a type. The errors of the standard library would name Go packages. Types of this project
// unmarshal themselves; their errors name the value and the cure.
func cureOf(target reflect.Value) string {
	switch target.Interface().(type) {
	case slog.Level:
		return "use debug, info, warn or error"
	case []netip.Prefix:
		return "use CIDR blocks separated by commas, such as 10.0.0.0/8,fd00::/8"
	case time.Duration:
		return "use a duration, such as 500ms, 10s or 1m30s"
	case encoding.TextUnmarshaler:
		return ""
	case int:
		return "use a whole number"
	case bool:
		return "use true or false"
	}
	return ""
}
