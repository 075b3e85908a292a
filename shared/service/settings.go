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
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Settings are those of every program that serves. A program embeds them with its own environment prefix:
//
//	service.Settings `embed:"" envprefix:"GATEWAY_"`
type Settings struct {
	LogLevel   slog.Level       `env:"LOG_LEVEL" default:"info" placeholder:"LEVEL" help:"Least severe level that is logged: debug, info, warn or error."`
	DrainDelay time.Duration    `env:"DRAIN_DELAY" default:"5s" help:"After SIGTERM, how long connections are still accepted while /readyz fails: longer than the load balancer's health interval."`
	DrainLimit time.Duration    `env:"DRAIN_LIMIT" default:"30s" help:"After that delay, how long requests in flight may take before they are cut off."`
	Check      bool             `help:"Check the settings, then exit: 0 when they are good, 2 when they are not."`
	Version    kong.VersionFlag `help:"Print the version and exit."`
}

// Problems returns what is wrong with the values.
func (s Settings) Problems() []string {
	var problems []string
	if s.DrainDelay < 0 || s.DrainLimit <= 0 {
		problems = append(problems, "--drain-delay must not be negative and --drain-limit must be positive")
	}
	return problems
}

// Secret is a setting that no flag can set, because flags are seen in `ps`: it comes from its environment variable, or
// from the file that the variable of the same name with _FILE appended names. It prints as dots.
type Secret string

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "••••"
}

// LogValue hides the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

var secretType = reflect.TypeFor[Secret]()

// Checker is a program's settings: a pointer to a struct with kong's tags, which knows what can be wrong with values that
// are well formed one by one. Problems name settings by their flags, to which Load adds the variables.
type Checker interface{ Problems() []string }

// Load fills settings from flags, environment and defaults, in this order of precedence. When the program must not go on,
// because it was asked for help, its version or a check, or because a value is bad, done is true and code is the exit
// code: every problem has been named on stderr, and the code is 2.
func Load(settings Checker, program, description string, args []string, stdout, stderr io.Writer) (code int, done bool) {
	l, err := newLoader(settings, program, description)
	if err != nil {
		panic("bug: settings of " + program + ": " + err.Error())
	}
	l.kong.Stdout, l.kong.Stderr = stdout, stderr
	l.kong.Exit = func(int) { done = true }
	l.parse(slices.Clone(args))
	if done {
		return 0, true
	}
	l.readSecrets()
	if problems := append(l.problems, l.named(settings.Problems())...); len(problems) != 0 {
		fmt.Fprintf(stderr, "%s: the settings have %s:\n", program, count(len(problems), "problem"))
		for _, problem := range problems {
			fmt.Fprintf(stderr, "  %s\n", problem)
		}
		return 2, true
	}
	if check := reflect.ValueOf(settings).Elem().FieldByName("Check"); check.IsValid() && check.Bool() {
		fmt.Fprintf(stdout, "%s: the settings are good\n", program)
		return 0, true
	}
	return 0, false
}

var flagName = regexp.MustCompile(`--[a-z][a-z-]*`)

// named writes every flag in the texts as VARIABLE (--flag).
func (l *loader) named(texts []string) []string {
	names := make(map[string]string, len(l.declared))
	for _, flag := range l.declared {
		names["--"+flag.Name] = nameOf(flag)
	}
	for i, text := range texts {
		texts[i] = flagName.ReplaceAllStringFunc(text, func(flag string) string { return cmp.Or(names[flag], flag) })
	}
	return texts
}

// nameOf is what a flag and its variable are called in messages.
func nameOf(flag *kong.Flag) string {
	if len(flag.Envs) == 0 {
		return "--" + flag.Name
	}
	return flag.Envs[0] + " (--" + flag.Name + ")"
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Setting describes one setting of a program.
type Setting struct {
	Flag    string // with its dashes; empty for a secret
	Env     string // empty for a flag without one
	Default string
	Help    string
	Secret  bool // Env+"_FILE" is read as well
}

// Describe lists a program's settings in the order of their declaration.
func Describe(settings Checker) ([]Setting, error) {
	l, err := newLoader(settings, "program", "")
	if err != nil {
		return nil, err
	}
	var described []Setting
	for _, flag := range l.declared {
		s := Setting{Flag: "--" + flag.Name, Default: flag.Default, Help: flag.Help, Secret: isSecret(flag)}
		if len(flag.Envs) != 0 {
			s.Env = flag.Envs[0]
		}
		if s.Secret {
			s.Flag = ""
		}
		described = append(described, s)
	}
	return described, nil
}

// WarnUnknown logs the variables of environ that begin with a program's prefix and are none of its settings, which are
// misspelt ones, most likely. Not a problem of the settings: Kubernetes gives a container variables for every service, and
// those of one named gateway begin with GATEWAY_.
func WarnUnknown(log *slog.Logger, settings Checker, prefix string, environ []string) {
	described, err := Describe(settings)
	if err != nil {
		panic("bug: settings: " + err.Error())
	}
	known := make(map[string]bool, 2*len(described))
	for _, s := range described {
		known[s.Env] = true
		known[s.Env+"_FILE"] = s.Secret
	}
	var unknown []string
	for _, entry := range environ {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, prefix) && !known[name] {
			unknown = append(unknown, name)
		}
	}
	if unknown != nil {
		log.Warn("ignoring variables that are no settings: --help lists those that are", "variables", unknown)
	}
}

// loader collects problems where kong would stop at the first one.
type loader struct {
	kong     *kong.Kong
	declared []*kong.Flag
	secrets  []*kong.Flag
	problems []string
}

func newLoader(settings Checker, program, description string) (*loader, error) {
	l := &loader{}
	parser, err := kong.New(settings,
		kong.Name(program), kong.Description(description), kong.Vars{"version": program + " " + Version()},
		kong.Help(l.help), kong.ValueFormatter(helpOf), kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100}),
	)
	if err != nil {
		return nil, err
	}
	l.kong = parser
	for _, flag := range parser.Model.Flags {
		if flag == parser.Model.HelpFlag {
			continue
		}
		l.declared = append(l.declared, flag)
		if isSecret(flag) {
			l.secrets = append(l.secrets, flag)
		}
		flag.Mapper = &collector{loader: l, flag: flag, inner: flag.Mapper, isBool: flag.IsBool()}
	}
	// Not hidden flags: kong would still take them from the command line.
	parser.Model.Flags = slices.DeleteFunc(parser.Model.Flags, isSecret)
	return l, nil
}

// helpOf is a setting's text in the help, which shows a default as the flag's value unless a placeholder stands there.
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

func isSecret(flag *kong.Flag) bool { return flag.Target.Type() == secretType }

// help adds the settings that have no flag to kong's text.
func (l *loader) help(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil || len(l.secrets) == 0 {
		return err
	}
	fmt.Fprintf(ctx.Stdout, "\nOnly from the environment, or from the file that the name with _FILE appended names:\n")
	for _, flag := range l.secrets {
		fmt.Fprintf(ctx.Stdout, "  %s\n      %s\n", flag.Envs[0], helpOf(flag.Value))
	}
	return nil
}

// parse runs kong until it has seen every argument, leaving out one that it cannot place after noting it.
func (l *loader) parse(args []string) {
	var misplaced []string
	for {
		l.problems = nil
		_, err := l.kong.Parse(args)
		var parseErr *kong.ParseError
		if err == nil {
			break
		}
		misplaced = append(misplaced, err.Error()+l.hint(err))
		if !errors.As(err, &parseErr) || parseErr.Context.Error == nil {
			break
		}
		path := parseErr.Context.Path
		at := len(args) - len(path[len(path)-1].Remainder())
		args = slices.Delete(args, at, at+1)
	}
	l.problems = append(misplaced, l.problems...)
}

func (l *loader) hint(err error) string {
	for _, flag := range l.secrets {
		if strings.Contains(err.Error(), "--"+flag.Name) {
			return fmt.Sprintf(": flags are seen in ps, so set %[1]s or %[1]s_FILE", flag.Envs[0])
		}
	}
	return ""
}

func (l *loader) readSecrets() {
	for _, flag := range l.secrets {
		name := flag.Envs[0]
		value, given := os.LookupEnv(name)
		file := os.Getenv(name + "_FILE")
		switch {
		case given && file != "":
			l.problems = append(l.problems, fmt.Sprintf("%[1]s and %[1]s_FILE are both set: set one of them", name))
		case file != "":
			text, err := os.ReadFile(file)
			if err != nil {
				l.problems = append(l.problems, name+"_FILE: "+err.Error())
				text = []byte(flag.Default) // one problem is enough
			}
			value = strings.TrimRight(string(text), "\r\n")
		case !given:
			value = flag.Default
		}
		flag.Target.SetString(value)
	}
}

// collector notes a value that does not decode and goes on with the default, so that the program's own checks have
// something sane to look at.
type collector struct {
	loader *loader
	flag   *kong.Flag
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
		return nil
	}
	err := c.inner.Decode(ctx, target)
	if err == nil {
		return nil
	}
	problem := fmt.Sprintf("%s: %q %s", nameOf(c.flag), cmp.Or(given.String(), "nothing"), misfit(target, err))
	if !slices.Contains(c.loader.problems, problem) {
		c.loader.problems = append(c.loader.problems, problem)
	}
	if !c.flag.HasDefault {
		return nil
	}
	scan := kong.ScanFromTokens(kong.Token{Type: kong.FlagValueToken, Value: c.flag.Default})
	return c.inner.Decode(&kong.DecodeContext{Value: ctx.Value, Scan: scan}, target)
}

// misfit says what a value is not. Not the error's text, unless the type is a program's own: it would name Go's packages.
func misfit(target reflect.Value, err error) string {
	switch target.Interface().(type) {
	case int:
		return "is no whole number"
	case bool:
		return "is neither true nor false"
	case time.Duration:
		return "is no duration, such as 500ms, 10s or 1m30s"
	case slog.Level:
		return "is no level: use debug, info, warn or error"
	case []netip.Prefix:
		return "is no list of CIDR blocks, such as 10.0.0.0/8,fd00::/8"
	}
	return "is not accepted: " + err.Error()
}
