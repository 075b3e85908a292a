package service

import (
	"cmp"
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
// kong stops at the first bad value. Parse continues with the default, so one run names every bad
// value of the command line and the environment. After an argument that kong cannot place, such as
// an unknown flag, only the environment is read.
type CommandLine struct {
	Program string
	About   string
	Args    []string
	Stdout  io.Writer
	Stderr  io.Writer

	// Env looks up secrets. Nil is the process's environment.
	Env func(name string) (string, bool)

	Options []kong.Option // more of kong's own options
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

// Parse fills target, a pointer to a struct with kong's tags. It returns the command to run, or nil
// if it has printed the help or the version. The error is a *UsageError.
func (c CommandLine) Parse(target any) (*kong.Context, error) {
	p := newReader(target, c)
	usage := &UsageError{Program: c.Program}
	command, err := p.Parse(c.Args)
	if p.ended {
		return nil, nil
	}
	var misplaced *kong.ParseError
	if errors.As(err, &misplaced) {
		command = misplaced.Context
		at := p.Model.Node
		if node := command.Selected(); node != nil {
			at = node
		}
		usage.Command = at.FullPath()
		usage.Problems = append(usage.Problems, p.explain(err.Error()))
		// Bad values do not fail here: they are collected.
		_ = command.Reset()
		_, _ = command.Apply()
	} else if err != nil {
		panic("bug: " + c.Program + ": " + err.Error())
	}
	p.readSecrets()
	usage.Problems = append(usage.Problems, p.problems...)
	usage.Problems = append(usage.Problems, p.check(target, command)...)
	if node := command.Selected(); node != nil && len(usage.Problems) == 0 {
		// Only now: not every flag of a command has a default, so its rules make sense only when
		// all flags could be read.
		usage.Problems = p.check(node.Target.Addr().Interface(), command)
	}
	if len(usage.Problems) > 0 {
		return nil, usage
	}
	return command, nil
}

// reader is kong with what it lacks: it collects the problems of values, and reads secrets.
type reader struct {
	*kong.Kong
	target   any // the settings
	line     CommandLine
	secrets  []*kong.Flag
	problems []string
	ended    bool // by --help or --version
}

// newReader returns a reader of one command line. A Fixer's own settings are not in the help.
func newReader(target any, c CommandLine) *reader {
	p := &reader{target: target, line: c}
	options := append(
		c.Options,
		kong.Name(cmp.Or(c.Program, "program")),
		kong.Description(c.About),
		kong.Vars{"version": c.Program + " " + Version()},
		kong.Writers(c.Stdout, c.Stderr),
		kong.Exit(func(int) { p.ended = true }),
		kong.Help(p.help),
		kong.ValueFormatter(helpOf),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	var err error
	p.Kong, err = kong.New(target, options...)
	if err != nil {
		panic("bug: the settings of " + c.Program + ": " + err.Error())
	}
	p.collect(p.Model.Node)
	if fixer, ok := target.(Fixer); ok {
		for _, name := range fixer.Fixed() {
			flagNamed(p.Model.Flags, name).Hidden = true
		}
	}
	for _, flag := range p.Model.Flags {
		if isSecret(flag) {
			p.secrets = append(p.secrets, flag)
		}
	}
	// They are removed, not hidden: kong would take a hidden flag from the command line.
	p.Model.Flags = slices.DeleteFunc(p.Model.Flags, isSecret)
	return p
}

// collect puts a collector before the decoder of every value.
func (p *reader) collect(node *kong.Node) {
	for _, flag := range node.Flags {
		flag.Mapper = &collector{Mapper: flag.Mapper, reader: p, name: nameOf(flag), isBool: flag.IsBool()}
	}
	for _, argument := range node.Positional {
		argument.Mapper = &collector{Mapper: argument.Mapper, reader: p, name: "<" + argument.Name + ">"}
	}
	for _, child := range node.Children {
		p.collect(child)
	}
}

func flagNamed(flags []*kong.Flag, name string) *kong.Flag {
	for _, flag := range flags {
		if flag.Name == name {
			return flag
		}
	}
	panic("bug: there is no flag --" + name)
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

func isSecret(flag *kong.Flag) bool { return flag.Target.Type() == reflect.TypeFor[Secret]() }

// helpOf returns a setting's help text. It adds the default if kong would show a placeholder
// instead.
func helpOf(v *kong.Value) string {
	text, isSecret := v.Help, v.Target.Type() == reflect.TypeFor[Secret]()
	if v.Default != "" && (v.Tag.PlaceHolder != "" || isSecret || v.Target.Kind() == reflect.Bool) {
		text += " Default: " + v.Default + "."
	}
	if len(v.Tag.Envs) != 0 && !isSecret {
		text += " ($" + v.Tag.Envs[0] + ")"
	}
	return text
}

// help adds the settings that have no flag to kong's text.
func (p *reader) help(options kong.HelpOptions, command *kong.Context) error {
	describe(p.target, append(slices.Clone(p.Model.Flags), p.secrets...))
	options.Compact = len(p.Model.Children) > 0
	if err := kong.DefaultHelpPrinter(options, command); err != nil {
		return err
	}
	if len(p.secrets) == 0 || command.Selected() != nil {
		return nil
	}
	fmt.Fprintln(command.Stdout, "\nSecrets, from the environment. "+
		"With _FILE appended to a name, its value is the path of a file that holds the secret:")
	for _, flag := range p.secrets {
		if !flag.Hidden {
			fmt.Fprintf(command.Stdout, "  %s\n      %s\n", flag.Envs[0], helpOf(flag.Value))
		}
	}
	return nil
}

// explain says what is wrong with an argument that kong cannot place.
func (p *reader) explain(problem string) string {
	for _, flag := range p.secrets {
		if strings.Contains(problem, "unknown flag --"+flag.Name) {
			problem += fmt.Sprintf(": flags are seen in ps, so set %[1]s or %[1]s_FILE", flag.Envs[0])
		}
	}
	return problem
}

// readSecrets reads each secret NAME, or the file that NAME_FILE names.
func (p *reader) readSecrets() {
	env := p.line.Env
	if env == nil {
		env = os.LookupEnv
	}
	for _, flag := range p.secrets {
		name := flag.Envs[0]
		value, given := env(name)
		switch file, _ := env(name + "_FILE"); {
		case file != "" && given:
			p.problems = append(p.problems, fmt.Sprintf("%[1]s and %[1]s_FILE are both set: set one of them", name))
		case file != "":
			text, err := os.ReadFile(file)
			value, given = strings.TrimRight(string(text), "\r\n"), err == nil
			if !given {
				p.problems = append(p.problems, name+"_FILE: "+err.Error())
			}
		}
		if !given {
			value = flag.Default // also after a problem: one message is enough
		}
		flag.Target.SetString(value)
	}
}

// check asks the settings, or a command, what is wrong with their values.
func (p *reader) check(target any, command *kong.Context) (problems []string) {
	checker, ok := target.(Checker)
	if !ok {
		return nil
	}
	for _, bad := range checker.BadSettings() {
		problem := bad.Rule
		if bad.Flag != "" {
			flag := flagNamed(append(slices.Clone(p.secrets), command.Flags()...), bad.Flag)
			problem = nameOf(flag)
			if !isSecret(flag) {
				problem += fmt.Sprintf(" is %q", fmt.Sprint(flag.Target.Interface()))
			}
			problem += ": " + bad.Rule
		}
		problems = append(problems, problem)
	}
	return problems
}

// collector records a value that does not decode and continues with the default.
type collector struct {
	kong.Mapper
	reader *reader
	name   string
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
	err := c.Mapper.Decode(ctx, target)
	if err == nil {
		return nil
	}
	if !given.IsValue() {
		return errors.New("it needs a value")
	}
	problem := c.name + ": " + err.Error()
	if cure := validValues[target.Type()]; cure != "" {
		problem = fmt.Sprintf("%s is %q: %s", c.name, given.String(), cure)
	}
	if !slices.Contains(c.reader.problems, problem) {
		c.reader.problems = append(c.reader.problems, problem)
	}
	target.SetZero()
	if !ctx.Value.HasDefault {
		return nil
	}
	scan := kong.ScanFromTokens(kong.Token{Type: kong.FlagValueToken, Value: ctx.Value.Default})
	return c.Mapper.Decode(&kong.DecodeContext{Value: ctx.Value, Scan: scan}, target)
}

// validValues describes the valid values of types whose errors of the standard library would name
// Go packages. Types of this project unmarshal themselves; their errors name the value and the
// cure.
var validValues = map[reflect.Type]string{
	reflect.TypeFor[slog.Level]():     "use debug, info, warn or error",
	reflect.TypeFor[[]netip.Prefix](): "use CIDR blocks separated by commas, such as 10.0.0.0/8,fd00::/8",
	reflect.TypeFor[time.Duration]():  "use a duration, such as 500ms, 10s or 1m30s",
	reflect.TypeFor[int]():            "use a whole number",
	reflect.TypeFor[bool]():           "use true or false",
}
