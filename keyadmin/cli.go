package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/service"
)

// exitCode is keyadmin's exit status. Scripts rely on the numbers.
type exitCode int

const (
	exitDone        exitCode = 0 // done, and confirmed by every registered gateway
	exitFailed      exitCode = 1 // nothing was changed, or the result is unknown
	exitUsage       exitCode = 2 // the command line is invalid; nothing was tried
	exitUnconfirmed exitCode = 3 // done, but some registered gateway has not applied it yet
)

// cli is the whole command line. Its flags are valid for every command.
type cli struct {
	DatabaseURLFile string           `name:"database-url-file" placeholder:"PATH" help:"Read the database's URL from this file instead of $$DATABASE_URL ($$DATABASE_URL_FILE)."`
	Output          string           `name:"output" short:"o" default:"table" placeholder:"FORMAT" help:"Print data as table (default) or json."`
	Version         kong.VersionFlag `name:"version" help:"Print the version and exit."`

	Migrate migrateCommand `cmd:"" help:"Create or upgrade the key tables."`
	Tenant  tenantCommands `cmd:"" help:"Paying customers: each owns keys and has one plan."`
	Plan    planCommands   `cmd:"" help:"Plans: how many requests a tenant may make."`
	Key     keyCommands    `cmd:"" help:"API keys: issue, show, rotate, revoke."`
	Ban     banCommands    `cmd:"" help:"Temporary bans of keys that ignore Retry-After."`
	Usage   usageCommands  `cmd:"" help:"What tenants have used, and whether a call would be refused."`
	Audit   auditCommand   `cmd:"" help:"Who changed what, and when."`
	Gateway gatewayCommand `cmd:"" help:"Gateways, and which changes each has applied."`
}

const description = `Keyadmin manages the tenants, plans and keys of Petgate.

Data goes to standard output, everything else to standard error. Tokens are read from standard input, never from
arguments. $$DATABASE_URL names the database (postgres://… or sqlite:PATH; default ` + defaultDatabaseURL + `).

Exit status: 0 done and confirmed by every gateway, 1 failed, 2 bad usage, 3 done but not confirmed by every gateway.`

// app is one run of a command with its input, output and database.
type app struct {
	stdio
	cli   *cli
	env   map[string]string
	in    input
	db    *database.DB
	store *keystore.Store
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
	ended := false // by --help or --version
	parser, err := kong.New(
		a.cli,
		kong.Name("keyadmin"),
		kong.Description(description),
		kong.Writers(a.Out, a.Err),
		kong.Exit(func(int) { ended = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Vars{"version": "keyadmin " + service.Version()},
	)
	if err != nil {
		panic("bug: command line declaration: " + err.Error())
	}
	parsed, err := parser.Parse(args)
	if ended {
		return nil
	}
	if err != nil {
		return err
	}
	a.in.format(a.cli.Output)
	parsed.BindTo(context.Background(), (*context.Context)(nil))
	return parsed.Run(a)
}

// report writes an error to standard error and returns the exit status for it.
func (a *app) report(err error) exitCode {
	var parse *kong.ParseError
	var usage usageError
	var laggards unconfirmedError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &laggards):
		a.warn("%v", err)
		return exitUnconfirmed
	case errors.As(err, &parse):
		command := "keyadmin"
		if node := parse.Context.Selected(); node != nil {
			command = node.FullPath()
		}
		a.warn("keyadmin: %v\nRun \"%s --help\" for usage.", err, command)
		return exitUsage
	case errors.As(err, &usage):
		a.warn("%v", usage)
		return exitUsage
	case errors.Is(err, keystore.ErrInvalid):
		a.warn("keyadmin: %v", err)
		return exitUsage
	case errors.Is(err, keystore.ErrOutdated):
		a.warn("keyadmin: %v: run `keyadmin migrate`", err)
		return exitFailed
	}
	a.warn("keyadmin: %v", err)
	return exitFailed
}

// secrets matches tokens and passwords. They must not be arguments: every user of the machine can read those with ps.
var secrets = regexp.MustCompile(`(?i)ptg_|://[^/]*:[^/]*@`)

// checkNoSecrets refuses arguments that contain a token or a password, without repeating them.
func checkNoSecrets(args []string) error {
	for i, arg := range args {
		switch match := secrets.FindString(arg); {
		case match == "":
		case strings.HasPrefix(match, "://"):
			return usageErrorf("argument %d contains a password. Every user of this machine can read it with ps; it is "+
				"not repeated here.\nPut the URL into $DATABASE_URL or into a file for --database-url-file.", i+1)
		default:
			return usageErrorf("argument %d looks like a token. Every user of this machine can read it with ps; it is "+
				"not repeated here.\nTokens are read from standard input: keyadmin key whoami < FILE\n"+
				"If it is a real token, replace its key: keyadmin key rotate KEY --grace 0", i+1)
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

const defaultDatabaseURL = "sqlite:var/petgate.db"

// databaseURL returns the database's URL: from the file named by the flag, else from the environment, else the default.
// There is no flag for the URL itself, because it may contain a password.
func (a *app) databaseURL() (string, error) {
	file, url := a.cli.DatabaseURLFile, a.env["DATABASE_URL"]
	if file == "" {
		if file = a.env["DATABASE_URL_FILE"]; file != "" && url != "" {
			return "", usageErrorf("both DATABASE_URL and DATABASE_URL_FILE are set: unset one of them")
		}
	}
	switch {
	case file != "":
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read the database's URL: %w", err)
		}
		if url = strings.TrimSpace(string(text)); url == "" {
			return "", fmt.Errorf("read the database's URL: %s is empty", file)
		}
	case url == "":
		url = defaultDatabaseURL
	}
	return url, nil
}

// actor is the name of the user in the audit log. Cron and containers often set none of the variables.
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
