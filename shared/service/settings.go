package service

import (
	_ "embed"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

//go:embed settings.go
var source string

// Settings are the settings that all programs that serve have in common. A program embeds them with
// its own environment prefix:
//
//	service.Settings `embed:"" envprefix:"GATEWAY_"`
type Settings struct {
	// Least severe level to log: debug, info, warn or error.
	LogLevel slog.Level `env:"LOG_LEVEL" default:"info" placeholder:"LEVEL"`

	// After SIGTERM, how long connections are still accepted while /readyz fails: longer than the
	// load balancer takes to notice.
	DrainDelay time.Duration `env:"DRAIN_DELAY" default:"5s"`

	// After the drain delay, how long requests in flight may take before they are cut off.
	DrainLimit time.Duration `env:"DRAIN_LIMIT" default:"30s"`

	// Additional host names of the admin port, beside loopback names, its address and this host's
	// name.
	AdminHosts []string `env:"ADMIN_HOSTS" placeholder:"NAME"`

	AdminTLS `embed:""`

	// Serve /debug/pprof on the admin port.
	Pprof bool `env:"PPROF" default:"true" negatable:""`

	// Check the settings, ports and files, and exit: 0 if nothing is wrong, 2 if something is. If a
	// program answers at the admin port, it is taken for this one, and the ports are not checked.
	Check bool

	// Ask the program that runs with these settings whether it is ready, and exit: 0 if it is, 1 if
	// not.
	Probe bool

	// Print the version and exit.
	Version kong.VersionFlag
}

// Source implements Described.
func (*Settings) Source() string { return source }

// AdminTLS are the settings of TLS on the admin port.
type AdminTLS struct {
	// PEM certificate chain of the admin port. With it, the admin port uses TLS. A changed file is
	// read again.
	Cert string `name:"admin-tls-cert" env:"ADMIN_TLS_CERT" placeholder:"PATH"`

	// PEM key of that certificate.
	Key string `name:"admin-tls-key" env:"ADMIN_TLS_KEY" placeholder:"PATH"`

	// PEM certificates of authorities. Everything on the admin port but /healthz and /readyz then
	// needs a client certificate of one of them.
	ClientCA string `name:"admin-client-ca" env:"ADMIN_CLIENT_CA" placeholder:"PATH"`
}

// Source implements Described.
func (*AdminTLS) Source() string { return source }

// BadSettings checks the values.
func (s *Settings) BadSettings() BadSettings {
	var bad BadSettings
	bad.Require(s.DrainDelay >= 0, "drain-delay", "it must not be negative")
	bad.Require(s.DrainLimit > 0, "drain-limit", "it must be positive")
	s.AdminTLS.check(&bad)
	return bad
}

// Common returns the settings themselves, for programs that embed them.
func (s *Settings) Common() *Settings { return s }

// Written returns nothing, for programs that embed the settings and write no files.
func (s *Settings) Written() []string { return nil }

// Secret is a setting without a flag, because ps shows flags. It comes from its environment
// variable NAME, or from the file that NAME_FILE names. It prints as dots.
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

// BadSetting is a value that can be parsed but is not allowed.
type BadSetting struct {
	Flag string // the name without dashes, also for a secret; empty for a rule of several flags
	Rule string // what is allowed; the message begins with the setting and its value
}

// BadSettings are all problems that a check found.
type BadSettings []BadSetting

// Require records the setting as bad unless ok.
func (b *BadSettings) Require(ok bool, flag, rule string, args ...any) {
	if !ok {
		*b = append(*b, BadSetting{Flag: flag, Rule: fmt.Sprintf(rule, args...)})
	}
}

// RequirePorts records the address of a port as bad if Listen does not take its form, or if the
// other port has it. Port 0 is any free one.
func (b *BadSettings) RequirePorts(public, admin string) {
	b.Require(IsAddress(public), "listen", "use host:port or unix:/path")
	b.Require(IsAddress(admin), "admin-listen", "use host:port or unix:/path")
	b.Require(admin != public || strings.HasSuffix(admin, ":0"), "admin-listen", "it must differ from --listen")
}

// Checker checks its values after they have been parsed. Settings and commands may be Checkers.
type Checker interface{ BadSettings() BadSettings }

// Program is the settings of a program that serves: a pointer to a struct with kong's tags that
// embeds Settings.
type Program interface {
	Checker
	Common() *Settings
	Addresses() (public, admin string) // the settings of the ports' addresses
	Written() []string                 // the paths of files that the program writes; empty paths are left out
}

// Fixer is a Program that sets some of its settings itself. These are not in its help.
type Fixer interface {
	Fixed() []string // the names of the flags; for a secret, the name that its flag would have
}

// Load fills settings from flags, environment and defaults, in this order of precedence. If done,
// the program must end with the exit code: help, version, a check or a probe was requested, or a
// setting is bad and stderr names every problem.
func Load(settings Program, name, about string, args []string, stdout, stderr io.Writer) (code int, done bool) {
	command, err := CommandLine{Program: name, About: about, Args: args, Stdout: stdout, Stderr: stderr}.Parse(settings)
	switch {
	case err != nil:
		fmt.Fprintln(stderr, err)
		return exitUsage, true
	case command == nil:
		return 0, true
	case settings.Common().Check:
		if problems := inspect(settings, name); len(problems) > 0 {
			fmt.Fprintln(stderr, &UsageError{Program: name, Problems: problems})
			return exitUsage, true
		}
		fmt.Fprintf(stdout, "%s: the settings are good; the database and other servers were not asked\n", name)
		if s, ok := settings.(interface{ WriteOperations(to io.Writer) }); ok {
			s.WriteOperations(stdout)
		}
		return 0, true
	case settings.Common().Probe:
		_, admin := settings.Addresses()
		return probe(admin, settings.Common().AdminTLS.isSet(), name, stdout, stderr), true
	}
	return 0, false
}
