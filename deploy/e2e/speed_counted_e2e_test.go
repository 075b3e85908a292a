//go:build e2e && linux && amd64 && !race

package e2e_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/gateway/answers"
	"petgate/gateway/directory"
	"petgate/gateway/edge"
	"petgate/gateway/quotas"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
	"petgate/shared/testkit/steps"
)

// countedVariable makes this test a gateway whose instructions are counted. Its value is a
// countedConfig.
const countedVariable = "TEST_COUNTED_GATEWAY"

// countedConfig has the settings of a gateway whose instructions are counted.
type countedConfig struct {
	Database, Upstream string
	Redis              string // its address; empty: quotas in memory
	AccessLog, TLS     bool
	Operations         int // of a document of the test's own; 0: that of the pets
}

// noDeadline is longer than a test. Deadlines of sockets do not stand still.
const noDeadline = time.Hour

// runCounted is the life of the gateway. Time stands still in it: so no timer of the gateway fires.
func runCounted(t *testing.T, config string) {
	synctest.Test(t, func(*testing.T) {
		fmt.Fprintln(os.Stderr, serveCounted(config))
		os.Exit(1)
	})
}

// serveCounted serves the listener that it inherits with the request path of a gateway. Unlike
// app.Run, it does nothing beside that: it does not follow the database, and saves nothing.
func serveCounted(config string) error {
	var cfg countedConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return err
	}
	ctx := context.Background()
	db, err := database.Open(cfg.Database)
	if err != nil {
		return err
	}
	log, metrics := slog.New(slog.NewTextHandler(os.Stderr, nil)), prometheus.NewRegistry()
	keys, err := directory.Open(ctx, keystore.New(db, nil, nil, "counted"),
		directory.Config{GatewayID: fmt.Sprint("counted-", os.Getpid()), Log: log, Metrics: metrics})
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	limitsConfig := quotas.Config{Metrics: metrics, Log: log}
	if cfg.Redis != "" {
		limitsConfig.RedisURL, limitsConfig.Budget = "redis://"+cfg.Redis, noDeadline
	}
	limits, err := quotas.Open(ctx, limitsConfig)
	if err != nil {
		return err
	}
	document := api.Pets()
	if cfg.Operations > 0 {
		if document, err = api.Load("own", ownDocument(cfg.Operations)); err != nil {
			return err
		}
	}
	edgeConfig := edge.Config{
		Environment: apikey.Live, Upstreams: []string{cfg.Upstream}, BanRule: ban.Product,
		ReadTimeout: noDeadline, WriteTimeout: noDeadline, IdleTimeout: noDeadline,
		UpstreamTimeout: noDeadline, UpstreamIdleTimeout: noDeadline,
		BodyBytesMax: 64 << 10, BodiesBytesMax: 256 << 20, TenantConnsMax: 128, ConcurrencyMax: 4096, ConnectionsMax: 32768,
	}
	if cfg.TLS {
		certified := httptest.NewTLSServer(nil)
		certified.Close()
		edgeConfig.TLS = &tls.Config{Certificates: certified.TLS.Certificates}
	}
	deps := edge.Deps{
		Directory: keys, Quotas: limits, Guard: limits.AuthFailures(0), Usage: keys, Operations: document.Operations, Pages: new(answers.Pages), Log: log,
		Metrics: metrics, Clock: time.Now,
	}
	if cfg.AccessLog {
		deps.AccessLog = os.Stdout
	}
	e, err := edge.New(edgeConfig, deps)
	if err != nil {
		return err
	}
	ln, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	return e.Serve(ln)
}

// ownDocument has this many operations.
func ownDocument(operations int) []byte {
	text := []byte("openapi: 3.1.0\ninfo: {title: Own, version: '1'}\npaths:\n")
	for n := range operations {
		text = fmt.Appendf(text, "  /group%03d/{id}/part/{name}: {get: {x-scope: 'pets:read'}}\n", n)
	}
	return text
}

// countedGateway is a gateway whose instructions are counted.
type countedGateway struct {
	*steps.Program
	addr  string
	isTLS bool
}

func startCounted(t *testing.T, cfg countedConfig) *countedGateway {
	t.Helper()
	ln := listen(t)
	file := must.Get[*os.File](t)(ln.File())
	defer file.Close()
	upstream := listen(t)
	cfg.Upstream = "http://" + upstream.Addr().String()
	redis, target := net.Listener(nil), cfg.Redis
	if target != "" {
		redis = listen(t)
		cfg.Redis = redis.Addr().String()
	}
	text := must.Get[[]byte](t)(json.Marshal(cfg))
	path := must.Get[string](t)(os.Executable())
	g := &countedGateway{addr: ln.Addr().String(), isTLS: cfg.TLS}
	g.Program = steps.Start(t, path, []string{"-test.run=^TestInstructions$"},
		[]string{countedVariable + "=" + string(text)}, file)
	go g.serveUpstream(t, upstream)
	if target != "" {
		go g.relay(t, redis, target)
	}
	return g
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	ln := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = ln.Close() })
	return ln.(*net.TCPListener)
}

// serveUpstream is the service behind the gateway.
func (g *countedGateway) serveUpstream(t *testing.T, ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go g.answer(t, c)
	}
}

func (g *countedGateway) answer(t *testing.T, c net.Conn) {
	defer c.Close()
	response := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1200\r\n\r\n" + strings.Repeat(
		"x", 1200)
	request := make([]byte, 4096)
	for {
		if _, err := c.Read(request); err != nil { // the gateway writes a request in one piece
			return
		}
		g.Gate(t)
		if _, err := io.WriteString(c, response); err != nil {
			return
		}
	}
}

// relay passes the gateway's connections to Redis on to this address.
func (g *countedGateway) relay(t *testing.T, ln net.Listener, target string) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		redis, err := net.Dial("tcp", target)
		if err != nil {
			c.Close()
			return
		}
		go func() {
			defer redis.Close()
			_, _ = io.Copy(redis, c)
		}()
		go func() {
			defer c.Close()
			reply := make([]byte, 4096)
			for {
				n, err := redis.Read(reply)
				if err != nil {
					return
				}
				g.Gate(t)
				if _, err := c.Write(reply[:n]); err != nil {
					return
				}
			}
		}()
	}
}

func (g *countedGateway) client() *fleet.Client {
	c := &fleet.Client{Addr: g.addr}
	if g.isTLS {
		c.TLS = &tls.Config{InsecureSkipVerify: true}
	}
	return c
}
