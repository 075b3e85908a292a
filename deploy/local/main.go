// Command local runs the whole product in one process, for a first look and for development:
// gateway, pet service, SQLite and quotas in process. It needs only the Go command.
//
// Its data is in the directory var of the module, with the key of the tenant demo. It has the
// settings of the gateway, except for the database, Redis, the console, TLS on the admin port and
// the drain delay.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/term"

	"petgate/gateway/app"
	"petgate/petsvc/pets"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
	"petgate/shared/keystore/sessions"
	"petgate/shared/service"
)

const (
	databasePath = "var/petgate.db"
	databaseURL  = "sqlite:" + databasePath
	socketPath   = "var/petsvc.sock" // relative, so it is short in any source tree
	accessPath   = "var/access.log"

	// connectionsMax is enough for one machine, and needs no higher limit of open files than most
	// systems have.
	connectionsMax = 4096

	// petsWithin is how long the pet service waits for its requests after the gateway has drained.
	// There should be none.
	petsWithin = 5 * time.Second
)

const about = "The whole product in one process. It has settings of the gateway; the others are fixed here. " +
	"With --api and --upstreams, the service of that document is behind the gateway instead of the pet service. "

// settings are those of the gateway.
type settings struct{ app.Config }

// Fixed names the settings that run sets itself, and those that have no effect without Redis and
// Postgres.
func (settings) Fixed() []string {
	return []string{
		"database-url", "database-connections", "redis-url", "redis-prefix", "limits-on-outage", "drain-delay",
		"console", "console-database-url",
	}
}

// BadSettings checks the values.
func (s *settings) BadSettings() service.BadSettings {
	bad := s.Config.BadSettings()
	bad.Require(s.API != "" || slices.Equal(s.Upstreams, []string{defaultUpstream}), "upstreams",
		"it needs --api: without a document, the pet service is behind the gateway")
	return bad
}

// defaultUpstream is what the gateway has if nothing is set.
const defaultUpstream = "http://127.0.0.1:8081"

func main() {
	var cfg settings
	if code, done := service.Load(&cfg, "local", about, os.Args[1:], os.Stdout, os.Stderr); done {
		os.Exit(code)
	}
	log := service.NewLog(os.Stderr, term.IsTerminal(int(os.Stderr.Fd())), max(cfg.LogLevel, slog.LevelWarn), "local")
	var err error
	code := service.Run(slog.New(slog.DiscardHandler), func(ctx context.Context) error {
		ctx, stop := untilHangup(ctx)
		defer stop()
		err = explain(run(ctx, cfg.Config, log))
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "local:", err)
	}
	os.Exit(code)
}

// explain adds the database's file to an error of the database.
func explain(err error) error {
	if errors.Is(err, keystore.ErrUnavailable) || database.Cure(err) != "" {
		return fmt.Errorf("the database %s: %w", databasePath, err)
	}
	return err
}

// untilHangup returns a context that also ends with SIGHUP: the terminal was closed. If SIGHUP is
// ignored, as with nohup, it stays ignored.
func untilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// run runs everything until ctx ends.
func run(ctx context.Context, cfg app.Config, log *slog.Logger) error {
	if text, _ := os.ReadFile("go.mod"); !bytes.HasPrefix(text, []byte("module petgate\n")) {
		return errors.New("run this in the root of the source tree of petgate")
	}
	// The socket comes first, also without pets: nothing of another process of this command may be
	// touched.
	if err := os.MkdirAll("var", 0o755); err != nil {
		return err
	}
	socket, err := service.Listen("unix:"+socketPath, "a copy of the source tree")
	if err != nil {
		return fmt.Errorf("%w; if it is another `make run`, stop it with Ctrl-C in its terminal", err)
	}
	defer socket.Close()
	if err := os.Chmod(socketPath, 0o600); err != nil {
		return err
	}
	ports, err := service.OpenPorts(&cfg, "GATEWAY_")
	if err != nil {
		return fmt.Errorf(
			"%w\nWith other ports: make run ARGS=\"--listen 127.0.0.1:8180 --admin-listen 127.0.0.1:9190\"", err)
	}
	db, err := database.OpenOrCreate(databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.Migrate(ctx, schema.Migrations); err != nil {
		return err
	}
	if cfg.API == "" {
		if err := seedPets(ctx, db); err != nil {
			return err
		}
		defer servePets(ctx, socket, db, cfg.BodyBytesMax, log)()
		cfg.Upstreams = []string{"unix:" + socketPath}
	}

	accessLog, err := os.OpenFile(accessPath, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer accessLog.Close()

	// The token file must be valid when the gateway becomes ready.
	key, err := keepDemoKey(ctx, keystore.New(db, nil, nil, "local"), &cfg)
	if err != nil {
		return err
	}
	cfg.DatabaseURL, cfg.RedisURL, cfg.DrainDelay = databaseURL, "", 0
	cfg.Console, cfg.ConsoleDatabaseURL, cfg.AdminTLS = true, "", service.AdminTLS{}
	cfg.ConnectionsMax = min(cfg.ConnectionsMax, connectionsMax)
	gateway := make(chan error, 1)
	go func() { gateway <- app.Run(ctx, cfg, ports, log, accessLog) }()
	invite := func() (code string, err error) {
		code, _, err = sessions.Of(keystore.New(db, nil, nil, actor())).InviteToConsole(ctx, sessions.ConsoleInvitation{
			Address: cfg.ReachableAdmin(ports.Admin.Addr()), Valid: time.Minute, Lasts: 8 * time.Hour,
		})
		return code, err
	}
	if err := await(ctx, cfg, ports, key, invite, gateway); err != nil {
		return err
	}
	if err := <-gateway; err != nil {
		return err
	}
	fmt.Println("\nStopped. The data is in var/; the next start uses it.")
	return nil
}

// await builds keyadmin, waits until everything is ready, and prints the welcome. It returns early
// if ctx or the gateway ends.
func await(
	ctx context.Context,
	cfg app.Config,
	ports service.Ports,
	key demoKey,
	invite func() (string, error),
	gateway chan error,
) error {
	fmt.Println("Compiling keyadmin for the second terminal …")
	if err := buildKeyadmin(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	admin := "http://" + ports.Admin.Addr().String()
	for ready := false; !ready; _, ready, _ = service.Readiness(ports.Admin.Addr().String(), false) {
		select {
		case err := <-gateway:
			gateway <- err
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
	scheme := "http"
	if cfg.TLSCert != "" {
		scheme = "https"
	}
	code, err := invite()
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Print(welcome(scheme+"://"+ports.Public.Addr().String(), admin, key, cfg, admin+"/console/login#"+code))
	return nil
}

// actor is the name of the user in the audit log.
func actor() string {
	if u, err := user.Current(); err == nil {
		return "local:" + u.Username
	}
	return "local"
}

// buildKeyadmin builds keyadmin for the second terminal, with the flags of `go run`, which has
// compiled most of it. It gets the commit of this program, and does not need git.
func buildKeyadmin(ctx context.Context) error {
	commit := "-ldflags=-X petgate/shared/service.commit=" + service.Commit()
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", commit, "-o", "bin/", "./keyadmin")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build bin/keyadmin: %w\n%s", err, out)
	}
	return nil
}

// servePets serves the pet service on a socket until stop is called.
func servePets(
	ctx context.Context, socket net.Listener, db *database.DB, bodyBytesMax int, log *slog.Logger,
) (stop func()) {
	server := pets.Open(ctx, db,
		pets.Config{Queue: 64, BodyBytesMax: bodyBytesMax, Log: log, Metrics: prometheus.NewRegistry()})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(socket) }()
	return func() {
		settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), petsWithin)
		defer cancel()
		if err := errors.Join(server.Shutdown(settle), <-ended); err != nil {
			log.Error("the pet service did not end in order", "error", err.Error())
		}
	}
}
