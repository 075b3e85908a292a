package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Problem is something that /readyz reports.
type Problem struct {
	Name    string `json:"name"`           // the affected part in one word, such as "database"
	Detail  string `json:"detail"`         // what is wrong and how to mend it
	Serving bool   `json:"serving"`        // the program can serve in spite of it
	Cure    string `json:"cure,omitempty"` // "cause: cure" if the cause is known; else /readyz adds CureOf the name
}

// ProblemOf is the problem that an error means. If an error in its chain has a method Cure()
// string, the problem has that cure.
func ProblemOf(name string, err error, serving bool) Problem {
	p := Problem{Name: name, Detail: err.Error(), Serving: serving}
	if known := (interface{ Cure() string })(nil); errors.As(err, &known) {
		p.Cure = known.Cure()
	}
	return p
}

// CureOf returns what to do about a problem of this name. The detail says more. It is "" for other
// names.
func CureOf(name string) string { return cureOf[name] }

var cureOf = map[string]string{
	"certificate": "replace the files by a certificate and its key that fit together; changed files are read without " +
		"a restart",
	"start": "wait; if it lasts, read its log",
	"drain": "it is stopping; if this was not planned, start it again. Before a planned stop, start another one",
	"directory": "check that the gateway can reach the database; if it can, mend what the problem names, such as a " +
		"row or a right of its role",
	"database": "check that the database runs and can be reached from this host",
	"clock":    "let a time service (NTP) set the clocks of all hosts",
	"snapshot": "make room on its disk and let the gateway write to its directory. A directory that it could not " +
		"use at its start needs a restart; if another process uses the snapshot, give each gateway a " +
		"GATEWAY_SNAPSHOT of its own",
	"quotas": "check that Redis runs, that REDIS_URL of the gateway is right, and that all gateways use it; if " +
		"quotas cannot be saved, make room on the disk of GATEWAY_SNAPSHOT or of the database",
	"document": "correct the document, and send the gateway SIGHUP",
	"upstream": "check that it runs, and read its log; if it responds with 401, set GATEWAY_UPSTREAM_SECRET to what " +
		"it expects; for petsvc, its PETSVC_SECRET; if its certificate is not valid, renew it, or name its authority " +
		"in GATEWAY_UPSTREAM_CA",
}

// Admin is the private port: /healthz, /readyz, /metrics, /debug/pprof and the handlers of the
// program. It must not be published without client certificates: it has no password, and profiles
// show memory.
//
// It serves only host names that it knows. This prevents DNS rebinding: a web page could point a
// name of its own to this address and make a browser on this network read the response. It refuses
// what a browser sends for a page of another origin, unless the method is GET, HEAD or OPTIONS:
// these methods change nothing.
type Admin struct {
	// Metrics is the program's registry. It already has the metrics of the Go runtime and of the
	// process.
	Metrics *prometheus.Registry
	// Certificates shows what is wrong with certificates. The program adds the certificate of its
	// public port.
	Certificates *Certificates

	log      *slog.Logger
	mux      *http.ServeMux
	handler  http.Handler // mux behind the protection against other origins
	tls      AdminTLS
	server   *http.Server
	hosts    map[string]bool // names without a port, in lower case
	address  string          // once started
	ready    atomic.Pointer[func() []Problem]
	draining atomic.Bool
	ended    context.Context
	end      context.CancelFunc
}

// NewAdmin returns an admin port that is alive but not ready until SetReady is called. listen is
// the address setting; if it has a host name, requests may use that name.
func NewAdmin(log *slog.Logger, settings Settings, listen string) *Admin {
	a := &Admin{
		log:     log,
		Metrics: prometheus.NewRegistry(),
		mux:     http.NewServeMux(),
		tls:     settings.AdminTLS,
		hosts:   map[string]bool{"localhost": true},
	}
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		deny(w, http.StatusForbidden, "a page of another origin sent this request")
	}))
	a.handler = protection.Handler(a.mux)
	for _, host := range append(settings.AdminHosts, listen) {
		a.hosts[hostOf(host)] = true
	}
	if name, err := os.Hostname(); err == nil {
		a.hosts[hostOf(name)] = true
	}
	a.Metrics.MustRegister(collectors.NewGoCollector())
	a.Metrics.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	RegisterBuildInfo(a.Metrics)
	a.Certificates = NewCertificates(a.Metrics, log)
	a.ended, a.end = context.WithCancel(context.Background())
	a.SetReady(func() []Problem { return []Problem{{Name: "start", Detail: "the program is starting"}} })
	a.server = &http.Server{
		Handler:           a,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute, // a CPU profile takes 30 s unless the request asks for longer
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	a.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, http.StatusOK, map[string]string{"status": "alive", "version": Version()})
	})
	a.mux.HandleFunc("GET /readyz", a.serveReady)
	a.mux.HandleFunc("GET /favicon.ico",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	metrics := promhttp.HandlerFor(a.Metrics, promhttp.HandlerOpts{EnableOpenMetrics: true})
	a.mux.Handle("GET /metrics", promhttp.InstrumentMetricHandler(a.Metrics, metrics))
	if settings.Pprof {
		a.mux.Handle("/debug/pprof/", http.DefaultServeMux) // package pprof adds its pages there
	}
	return a
}

// RegisterBuildInfo adds the metric that names the running version.
func RegisterBuildInfo(registry prometheus.Registerer) {
	promauto.With(registry).NewGaugeVec(prometheus.GaugeOpts{
		Name: "petgate_build_info",
		Help: "Always 1. The labels name the version of the program and the Go release.",
	}, []string{"version", "goversion"}).WithLabelValues(Version(), runtime.Version()).Set(1)
}

// Handle adds a handler; the pattern is one of http.ServeMux.
func (a *Admin) Handle(pattern string, h http.Handler) { a.mux.Handle(pattern, h) }

// SetReady sets the function that /readyz calls for every request. It must not block for long.
func (a *Admin) SetReady(problems func() []Problem) { a.ready.Store(&problems) }

// ServeHTTP serves a request of the admin port.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !a.isKnown(r.Host, local) {
		deny(w, http.StatusMisdirectedRequest, "unknown host name "+r.Host+
			" for this admin port: use its address, or add the name to the setting --admin-hosts")
		return
	}
	if !a.tls.admits(r) {
		deny(w, http.StatusForbidden,
			"without a client certificate of an authority in --admin-client-ca, only /healthz and /readyz are served")
		return
	}
	a.handler.ServeHTTP(w, r)
}

func deny(w http.ResponseWriter, status int, why string) {
	WriteJSON(w, status, map[string]string{"error": why})
}

// isKnown reports whether a Host field names this port. A browser always sends one, so a request
// without it is harmless; health checks of load balancers are such requests. local is the address
// at which the connection arrived.
func (a *Admin) isKnown(field string, local net.Addr) bool {
	host := hostOf(field)
	if host == "" || a.hosts[host] {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if addr.Unmap().IsLoopback() {
		return true
	}
	tcp, ok := local.(*net.TCPAddr)
	return ok && tcp.AddrPort().Addr().Unmap() == addr.Unmap()
}

// hostOf returns the name or address of a Host field without port, IPv6 brackets and trailing dot.
func hostOf(field string) string {
	host, _, err := net.SplitHostPort(field)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(field, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// readyAnswer is the body of /readyz.
type readyAnswer struct {
	Ready    bool      `json:"ready"`
	Problems []Problem `json:"problems"`
}

func (a *Admin) serveReady(w http.ResponseWriter, _ *http.Request) {
	var answer readyAnswer
	answer.Problems = append([]Problem{}, (*a.ready.Load())()...)
	answer.Problems = append(answer.Problems, a.Certificates.review()...)
	if a.draining.Load() {
		answer.Problems = append(answer.Problems, Problem{Name: "drain", Detail: "the program is stopping"})
	}
	answer.Ready = true
	for i := range answer.Problems {
		p := &answer.Problems[i]
		p.Cure = cmp.Or(p.Cure, CureOf(p.Name))
		answer.Ready = answer.Ready && p.Serving
	}
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	WriteJSON(w, status, answer)
}

// drain makes /readyz fail from now on.
func (a *Admin) drain() { a.draining.Store(true) }

// Start serves ln in the background until Close. It fails if the files of the settings for TLS
// cannot be used.
func (a *Admin) Start(ln net.Listener) error {
	a.address = ln.Addr().String()
	if tcp, ok := ln.Addr().(*net.TCPAddr); ok && isPublic(tcp.AddrPort().Addr()) && a.tls.ClientCA == "" {
		a.log.Warn("the admin port listens on a public address and serves every client: use a private address, "+
			"or TLS with client certificates (--admin-tls-cert, --admin-tls-key, --admin-client-ca)",
			"adminAddress", a.address, "tls", a.tls.isSet())
	}
	ln, err := a.tls.listen(ln, a.Certificates, a.log)
	if err != nil {
		return fmt.Errorf("the admin port: %w", err)
	}
	go a.Certificates.watch(a.ended)
	go func() {
		if err := a.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("the admin port stopped unexpectedly", "error", err.Error())
		}
	}()
	return nil
}

// isPublic reports whether other networks may reach a listener at addr. The unspecified address
// stands for all addresses of the host.
func isPublic(addr netip.Addr) bool {
	return addr.IsUnspecified() || !addr.IsLoopback() && !addr.IsPrivate() && !addr.IsLinkLocalUnicast()
}

// Close ends the admin port and its connections.
func (a *Admin) Close() {
	a.end()
	_ = a.server.Close()
}

// WriteJSON responds with a value as JSON.
func WriteJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // fails only if the client is gone
}
