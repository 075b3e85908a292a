package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"regexp"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"petgate/shared/core/apikey"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/operate/declare"
	"petgate/shared/service"
)

// exitCode is keyadmin's exit status. Scripts rely on the numbers.
type exitCode int

const (
	exitDone   exitCode = 0 // done, and confirmed by every registered gateway
	exitFailed exitCode = 1 // nothing was changed
	exitUsage  exitCode = 2 // the command line is invalid; nothing was tried
	// done, but some registered gateway has not applied it yet; or it is unknown whether it is done
	exitUnconfirmed exitCode = 3
)

// cli is the whole command line. Its flags are valid for every command.
type cli struct {
	DatabaseURLFile string           `name:"database-url-file" placeholder:"PATH" help:"Read the database's URL from this file instead of $$DATABASE_URL."`
	Output          format           `name:"output" short:"o" default:"table" placeholder:"FORMAT" help:"Print data as table, json or csv."`
	DatabaseURL     service.Secret   `env:"DATABASE_URL" default:"sqlite:var/petgate.db" help:"The key database: postgres://… or sqlite:PATH."`
	Version         kong.VersionFlag `name:"version" help:"Print the version and exit."`

	Migrate migrateCommand  `cmd:"" help:"Create or upgrade the key tables."`
	Tenant  tenantCommands  `cmd:"" help:"Tenants: each owns keys and has one plan."`
	Plan    planCommands    `cmd:"" help:"Plans: how many requests a tenant may make."`
	Key     keyCommands     `cmd:"" help:"API keys: issue, show, rotate, revoke."`
	Ban     banCommands     `cmd:"" help:"Temporary bans of keys that ignore Retry-After."`
	Usage   usageCommands   `cmd:"" help:"What tenants have used, and whether a request would be refused."`
	Top     topCommand      `cmd:"" help:"Watch which tenants call now, and which gateways answer."`
	Audit   auditCommand    `cmd:"" help:"Who changed what, and when."`
	Gateway gatewayCommands `cmd:"" help:"Gateways, and which changes each has applied."`
	Doctor  doctorCommand   `cmd:"" help:"Find what is wrong with the database, the gateways and Redis, and how to mend it."`
	Export  exportCommand   `cmd:"" help:"Write plans, tenants and keys as a YAML document."`
	Diff    diffCommand     `cmd:"" help:"List what apply would change."`
	Apply   applyCommand    `cmd:"" help:"Make plans, tenants and keys as a YAML document says."`
	Backup  backupCommand   `cmd:"" help:"Write everything in the key database to a file."`
	Restore restoreCommand  `cmd:"" help:"Bring a backup back, without bringing back revoked keys."`

	Operator   operatorCommands  `cmd:"" help:"Tokens of the operators' API."`
	Console    consoleCommand    `cmd:"" help:"Print a link that opens the operators' console in a browser."`
	Completion completionCommand `cmd:"" help:"Print a script for your shell that completes commands and flags."`
}

const description = `Keyadmin manages the tenants, plans and keys of Petgate.

Data goes to standard output, everything else to standard error. Tokens are read from standard input, never from
arguments. $$DATABASE_URL names the database.

Exit status: 0 done and confirmed by every gateway, 1 failed, 2 bad usage, ` +
	"3 done but not confirmed by every gateway, or perhaps done."

// app is one run of a command with its input, output and database.
type app struct {
	stdio
	cli *cli
	env map[string]string
	db  *database.DB

	operator operate.Operator // of the database

	called string // the arguments, as a shell would need them; they have no secrets
}

// run executes one command line and returns its exit status.
func run(args, environ []string, io stdio) exitCode {
	a := &app{stdio: io, cli: &cli{}, env: environment(environ)}
	err := a.run(args)
	if a.db != nil {
		err = errors.Join(err, a.db.Close())
	}
	return a.report(err)
}

func (a *app) run(args []string) error {
	if err := checkNoSecrets(args); err != nil {
		return err
	}
	if len(args) > 0 && args[0] == completeCommand {
		return a.complete(args[1:])
	}
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = operate.ShellWord(arg)
	}
	a.called = strings.Join(words, " ")
	parsed, err := a.parse(args)
	if err != nil || parsed == nil { // it has printed the help or the version
		return err
	}
	ctx, err := withAdminTLS(context.Background(), a.env)
	if err != nil {
		return err
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	// A command whose Run asks for the operator finds the database open.
	if err := parsed.BindSingletonProvider(func(ctx context.Context) (operate.Operator, error) {
		err := a.open(ctx)
		return a.operator, err
	}); err != nil {
		return err
	}
	return explainMissing(parsed.Run(a))
}

// parse reads the command line into a.cli. It returns nil when it has printed the help or the
// version.
func (a *app) parse(args []string) (*kong.Context, error) {
	if len(args) > 0 && args[0] == "help" {
		args = append(args[1:len(args):len(args)], "--help")
	}
	var help bytes.Buffer
	parsed, err := service.CommandLine{
		Program: "keyadmin", About: description, Args: args, Stdout: &help, Stderr: a.Err,
		Env: func(name string) (value string, given bool) {
			value, given = a.env[name]
			return value, given
		},
		Options: []kong.Option{kong.PostBuild(addHelp)},
	}.Parse(a.cli)
	if help.Len() > 0 {
		_, writeErr := io.WriteString(a.Out, a.asCalled(help.String()))
		err = errors.Join(err, writeErr)
	}
	return parsed, err
}

//go:embed help.md
var helpText string

// helpOf has the help text of each command, with examples.
var helpOf = func() map[string]string {
	sections := map[string]string{}
	for section := range strings.SplitSeq(helpText, "\n## ") {
		command, text, _ := strings.Cut(section, "\n")
		sections[command] = strings.TrimSpace(text)
	}
	return sections
}()

// addHelp gives each command its help text, after what the command itself says.
func addHelp(k *kong.Kong) error {
	for _, command := range k.Model.Leaves(true) {
		command.Detail += helpOf[command.Path()]
	}
	return nil
}

// report writes an error to standard error and returns the exit status for it.
func (a *app) report(err error) exitCode {
	if err == nil {
		return exitDone
	}
	code, text := exitFailed, "keyadmin: "+err.Error()
	var badLine *service.UsageError
	var laggards unconfirmedError
	var argument *operate.ArgumentError
	var mistakes *declare.Mistakes
	switch {
	case errors.As(err, &laggards):
		code, text = exitUnconfirmed, err.Error()
	case errors.As(err, &badLine):
		code, text = exitUsage, badLine.Error()
	case errors.As(err, &mistakes):
		code, text = exitUsage, "keyadmin: "+mistakes.Error()
	case errors.Is(err, keystore.ErrInvalid), errors.As(err, &argument):
		code = exitUsage
	case errors.Is(err, keystore.ErrOutdated):
		text += ": run `keyadmin migrate`"
	}
	a.note("%s", text)
	return code
}

// passwords matches the password of a URL, and operatorToken the token of an operator.
var (
	passwords     = regexp.MustCompile(`://[^/]*:[^/]*@`)
	operatorToken = regexp.MustCompile(`(?i)pto_[0-9a-z]{20}`)
)

// checkNoSecrets refuses arguments that contain a token or a password, without repeating them.
// Every user of the machine can read arguments with ps.
func checkNoSecrets(args []string) error {
	for i, arg := range args {
		switch {
		case passwords.MatchString(arg):
			return usageErrorf(
				"argument %d contains a password. Every user of this machine can read it with ps; it is "+
					"not repeated here.\nPut the URL into $DATABASE_URL or into a file for --database-url-file.",
				i+1,
			)
		case apikey.IsIn([]byte(strings.ToLower(arg))) || operatorToken.MatchString(arg):
			return usageErrorf("argument %d looks like a token. Every user of this machine can read it with ps; it is "+
				"not repeated here.\nTokens are read from standard input: keyadmin key whoami < FILE\n"+
				"If it is a real token, replace its key: keyadmin key rotate KEY --grace 0; if it begins with "+
				"pto_: keyadmin operator revoke NAME", i+1)
		}
	}
	return nil
}

func environment(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	return env
}

// databaseURL returns the database's URL: --database-url-file takes precedence over the
// environment. There is no flag for the URL itself, because it may contain a password.
func (a *app) databaseURL() (string, error) {
	if a.cli.DatabaseURLFile == "" {
		return string(a.cli.DatabaseURL), nil
	}
	text, err := os.ReadFile(a.cli.DatabaseURLFile)
	if err != nil {
		return "", fmt.Errorf("read the database's URL: %w", err)
	}
	url := strings.TrimSpace(string(text))
	if url == "" {
		return "", fmt.Errorf("read the database's URL: %s is empty", a.cli.DatabaseURLFile)
	}
	return url, nil
}

// usageErrorf is a mistake in the command line that the checks of single flags and arguments do not
// find: exit 2, nothing was tried.
func usageErrorf(format string, args ...any) error {
	return &service.UsageError{Program: "keyadmin", Problems: []string{fmt.Sprintf(format, args...)}}
}

// actor is the name of the user in the audit log. Cron and containers often set none of the
// variables.
func (a *app) actor() string {
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME"} {
		if user := a.env[name]; user != "" {
			return "keyadmin:" + user
		}
	}
	if user, err := user.Current(); err == nil {
		return "keyadmin:" + user.Username
	}
	return "keyadmin:" + strconv.Itoa(os.Getuid())
}

// The environment variables with what the admin ports of gateways need, if they use TLS.
const (
	adminCAVariable   = "KEYADMIN_ADMIN_CA"   // path of the PEM certificates of their authorities; empty: the system's
	adminCertVariable = "KEYADMIN_ADMIN_CERT" // paths of the client certificate and its key, if they need one
	adminKeyVariable  = "KEYADMIN_ADMIN_KEY"
)

// withAdminTLS returns a context with which operate.AskAdmin uses the certificates that the
// environment names.
func withAdminTLS(ctx context.Context, env map[string]string) (context.Context, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := env[adminCAVariable]; path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, usageErrorf("%s: %v", adminCAVariable, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, usageErrorf("%s: %s has no PEM certificate", adminCAVariable, path)
		}
	}
	if cert, key := env[adminCertVariable], env[adminKeyVariable]; cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, usageErrorf("%s: it cannot be used with %s: %v", adminCertVariable, adminKeyVariable, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return operate.WithAdminTLS(ctx, config), nil
}
