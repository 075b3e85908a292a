// Package app assembles a gateway from its settings: the directory of keys, the quotas, the edge
// and the admin port.
//
// A gateway starts even if the database or Redis is unavailable. Without the database it serves
// from its snapshot; without Redis it admits its share of the limits. If it cannot serve, /readyz
// says why. It exits only for problems that do not end by themselves: a port in use, an invalid
// setting, a missing SQLite file.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"petgate/gateway/directory"
	"petgate/gateway/edge"
	"petgate/gateway/quotas"
	"petgate/shared/api"
	"petgate/shared/background"
	"petgate/shared/database"
	"petgate/shared/keystore"
	stored "petgate/shared/keystore/usage"
	"petgate/shared/service"
	"petgate/shared/trace"
)

// settleWithin bounds the last save of quotas to the database, after the last response.
const settleWithin = 5 * time.Second

// SignOffMax is the longest time that a gateway needs after the drain, even if the collector and
// the database fall silent: it exports its last spans (trace.CloseMax), saves quotas, writes its
// last usage and signs off. The save and the sign-off each begin statements for 5 s. A statement
// without an answer takes 6 s and ends its step. So all take at most 2 + 5 + 6 + 6 s. A supervisor
// must wait for service.Settings.DrainMax plus this.
const SignOffMax = 20 * time.Second

// statementConnections are the connections to Postgres for statements of usage.
const statementConnections = 2

// healthWithin bounds the Redis calls of /readyz. It is shorter than the second that a Kubernetes
// probe waits.
const healthWithin = 500 * time.Millisecond

// gateway is what Run opens, in three steps.
type gateway struct {
	cfg   Config
	self  string // its ID
	log   *slog.Logger
	admin *service.Admin
	store *keystore.Store
	keys  *directory.Directory

	limits      quotas.Quotas
	api         atomic.Pointer[api.API]
	badDocument atomic.Pointer[error] // why the document could not be read again; nil: it could
	public      *edge.Edge
	docs        docs

	closers []func() error // the last one is called first
}

func (g *gateway) onClose(f func() error) { g.closers = append(g.closers, f) }

func (g *gateway) close() (err error) {
	for _, f := range slices.Backward(g.closers) {
		err = errors.Join(err, f())
	}
	return err
}

// Run runs a gateway on its ports until ctx ends, then drains it and closes the ports. It writes a
// line to accessLog for each request, unless the settings turn that off.
func Run(ctx context.Context, cfg Config, ports service.Ports, log *slog.Logger, accessLog io.Writer) (err error) {
	defer ports.Public.Close()
	if cfg.document == nil { // the settings were not checked
		if cfg.document, err = cfg.readDocument(); err != nil {
			return errors.Join(err, ports.Admin.Close())
		}
	}
	g := &gateway{
		cfg:   cfg,
		log:   log,
		self:  cfg.gatewayID(),
		admin: service.NewAdmin(log, cfg.Settings, cfg.AdminListen),
	}
	if err := g.admin.Start(ports.Admin); err != nil {
		return errors.Join(err, ports.Admin.Close())
	}
	defer g.admin.Close()
	defer func() { err = errors.Join(err, g.close()) }()
	ctx, end := context.WithCancel(ctx)
	defer end()
	address := cfg.ReachableAdmin(ports.Admin.Addr())
	if err := g.openStores(ctx, end, address); err != nil {
		return err
	}
	if err := g.openPublic(accessLog); err != nil {
		return err
	}
	if err := g.mountAdmin(address); err != nil {
		return err
	}
	return service.Serving{
		Public:   g.public,
		Listener: ports.Public,
		Admin:    g.admin,
		Settings: cfg.Settings,
		Log:      log,
		Facts: []any{
			"environment", cfg.Environment.String(),
			"upstreams", cfg.Upstreams,
			"database", database.Redact(string(cfg.DatabaseURL)),
			"quotas", cfg.quotas(),
			"traces", cfg.Traces.Destination(),
		},
	}.Run(ctx)
}

// openStores opens the database, the directory and the quotas. The directory signs off last, when
// no more keys are accepted: it also writes the usage of the last requests. If it ends by itself,
// another process has taken this gateway's ID: end then drains the gateway, and close returns that
// error.
func (g *gateway) openStores(ctx context.Context, end context.CancelFunc, address string) error {
	cfg := &g.cfg
	var err error
	if g.store, err = g.openStore(cfg.DatabaseURL, cfg.DatabaseConnections); err != nil {
		return err
	}
	g.keys, err = directory.Open(ctx, g.store, directory.Config{
		GatewayID:      g.self,
		Environment:    cfg.Environment,
		AdminAddress:   address,
		Snapshot:       cfg.Snapshot,
		Document:       cfg.describe(cfg.document),
		MaxAge:         cfg.DirectoryMaxAge,
		LongestRequest: cfg.UpstreamTimeout,
		Log:            g.log,
		Metrics:        g.admin.Metrics,
		Loaded:         tuneCollector,
		PlansChanged:   g.docs.change,
		GatewaysChanged: func(was, is int) {
			if cfg.RedisURL == "" && was == 1 {
				g.log.Warn(apart(is))
			}
		},
	})
	if err != nil {
		return err
	}
	g.onClose(func() error { g.signOff(); return nil })
	var ended error
	var following background.Group
	following.Go(func(ctx context.Context) {
		ended = g.keys.Run(ctx)
		end()
	})
	g.onClose(func() error { following.Stop(); return ended })
	g.limits, err = quotas.Open(ctx, quotas.Config{
		RedisURL:     string(cfg.RedisURL),
		Prefix:       cfg.RedisPrefix,
		OnOutage:     cfg.LimitsOnOutage,
		LiveGateways: g.keys.Gateways,
		Leavers:      g.keys,
		Saver:        stored.Of(g.store),
		OutageFile:   cfg.outageFile(),
		GatewayID:    g.self,
		Metrics:      g.admin.Metrics,
		Log:          g.log,
	})
	if err != nil {
		return err
	}
	g.onClose(func() error {
		settle, cancel := context.WithTimeout(context.Background(), settleWithin)
		defer cancel()
		return g.limits.Close(settle)
	})
	return nil
}

// openStore opens a pool of connections to a database. It connects when it is asked for the first
// time. Each use has a pool of its own, so that none delays another.
func (g *gateway) openStore(url service.Secret, connections int) (*keystore.Store, error) {
	db, err := database.Open(string(url))
	if err != nil {
		return nil, err
	}
	g.onClose(db.Close)
	if db.Dialect() == database.Postgres {
		db.SetMaxOpenConns(connections)
		db.SetConnMaxIdleTime(time.Minute) // most gateways are rarely asked for pages and statements
	}
	return keystore.New(db, nil, nil, g.self), nil
}

// signOff signs off, and hands what Redis has not got yet to the other gateways.
func (g *gateway) signOff() {
	if shared, ok := g.limits.(*quotas.Shared); ok {
		shared.Leave(g.keys.SignOff)
		return
	}
	g.keys.SignOff("")
}

// openPublic makes the public side: all that serves requests.
func (g *gateway) openPublic(accessLog io.Writer) (err error) {
	cfg := &g.cfg
	g.api.Store(cfg.document)
	edgeConfig := cfg.edge()
	if cfg.TLSCert != "" {
		certificate, err := service.LoadCertificate(cfg.TLSCert, cfg.TLSKey, g.log)
		if err != nil {
			return err
		}
		edgeConfig.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.Get}
		g.admin.Certificates.Watch("public", certificate, cfg.TLSName)
	}
	if cfg.UpstreamCA != "" {
		authorities, err := service.ReadAuthorities(cfg.UpstreamCA)
		if err != nil {
			return fmt.Errorf("GATEWAY_UPSTREAM_CA: %w", err)
		}
		edgeConfig.UpstreamTLS = &tls.Config{RootCAs: authorities}
	}
	if err := fitDescriptors(&edgeConfig, g.log); err != nil {
		return err
	}
	if err := g.docs.admit(cfg.describe(cfg.document)); err != nil {
		return err
	}
	g.showDocs(cfg.document)
	if !cfg.AccessLog {
		accessLog = nil
	}
	statements, err := g.openStore(cfg.DatabaseURL, statementConnections)
	if err != nil {
		return err
	}
	tracer, err := trace.Open(trace.Config{
		Settings: cfg.Traces,
		Program:  "gateway",
		Instance: g.self,
		Log:      g.log,
		Metrics:  g.admin.Metrics,
	})
	if err != nil {
		return err
	}
	g.onClose(func() error { tracer.Close(trace.CloseMax); return nil })
	g.public, err = edge.New(edgeConfig, edge.Deps{
		Directory:  g.keys,
		Quotas:     g.limits,
		Guard:      g.limits.AuthFailures(cfg.AuthFailuresPerMinute),
		Usage:      g.keys.Usage(),
		Statements: stored.Of(statements),
		Operations: cfg.document.Operations,
		Pages:      &g.docs.pages,
		Log:        g.log,
		AccessLog:  accessLog,
		Tracer:     tracer,
		Metrics:    g.admin.Metrics,
		Clock:      time.Now,
	})
	if err != nil {
		return err
	}
	var tasks background.Group
	g.onClose(func() error { tasks.Stop(); return nil })
	tasks.Go(g.public.Upstreams().Check)
	if cfg.API != "" {
		tasks.Go(g.followDocument)
	}
	return nil
}

// mountAdmin adds to the admin port what keyadmin, the console and probes ask.
func (g *gateway) mountAdmin(address string) error {
	g.admin.Handle("GET /quota/{tenant}", http.HandlerFunc(g.serveQuota))
	g.admin.Handle("GET /about", http.HandlerFunc(g.serveAbout))
	g.admin.Handle("GET /live", http.HandlerFunc(g.serveLive))
	g.admin.SetReady(g.problems)
	return g.serveOperators(address)
}

// problems are those of /readyz.
func (g *gateway) problems() (found []service.Problem) {
	add := func(name string, err error, serving bool) {
		if err != nil {
			found = append(found, service.ProblemOf(name, err, serving))
		}
	}
	add("directory", g.keys.Ready(), false)
	add("database", g.keys.Behind(), true)
	add("snapshot", g.keys.Unkept(), true)
	add("clock", g.keys.Skewed(), true)
	if n := g.keys.Gateways(); g.cfg.RedisURL == "" && n > 1 {
		add("quotas", errors.New(apart(n)), true)
	}
	if err := g.limits.Ready(); err != nil {
		add("quotas", err, false)
	} else { // otherwise Health has the same cause
		asking, cancel := context.WithTimeout(context.Background(), healthWithin)
		defer cancel()
		for _, complaint := range g.limits.Health(asking) {
			add("quotas", complaint, true)
		}
	}
	if bad := g.badDocument.Load(); bad != nil {
		err := fmt.Errorf("%s was read again and cannot be served, so the one before is: %w", g.cfg.API, *bad)
		add("document", err, true)
	}
	for _, detail := range g.public.Upstreams().Problems() {
		add("upstream", errors.New(detail), true)
	}
	return found
}

// ReachableAdmin returns the address of the admin port for other hosts. With TLS, it begins with
// https://.
func (c *Config) ReachableAdmin(listener net.Addr) string {
	if c.AdminTLS.Cert != "" {
		return "https://" + reachable(listener)
	}
	return reachable(listener)
}

// reachable returns the address at which other hosts reach a listener. For a listener on all
// addresses it has the host's name.
func reachable(address net.Addr) string {
	tcp, isTCP := address.(*net.TCPAddr)
	host, err := os.Hostname()
	if !isTCP || !tcp.IP.IsUnspecified() || err != nil {
		return address.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// apart describes the problem of several gateways that each keep quotas in process.
func apart(gateways int) string {
	return fmt.Sprintf("%d gateways are registered and this one keeps quotas in process: a tenant may use its "+
		"whole limit at each; set REDIS_URL to one Redis for all", gateways)
}
