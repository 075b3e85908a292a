package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

var quiet = slog.New(slog.DiscardHandler)

func get(a *service.Admin, path string) (int, string) {
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
	return w.Code, w.Body.String()
}

func TestAdminPort(t *testing.T) {
	a := service.NewAdmin(quiet, service.Settings{Pprof: true}, "")
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 503, "/metrics": 200, "/debug/pprof/": 200, "/debug/pprof/goroutine": 200,
		"/": 404, "/favicon.ico": 204,
	} {
		code, body := get(a, path)
		must.Equal(t, code, want, "%s: %s", path, body)
		if code, _ := get(service.NewAdmin(quiet, service.Settings{}, ""), path); strings.Contains(path, "pprof") &&
			code != 404 {
			t.Errorf("%s without profiles: %d", path, code)
		}
	}
	problems := []service.Problem{{Name: "quotas", Detail: "eviction is on", Serving: true}}
	a.SetReady(func() []service.Problem { return problems })
	code, body := get(a, "/readyz")
	var answer struct {
		Ready    bool
		Problems []service.Problem
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || code != 200 || !answer.Ready ||
		len(answer.Problems) != 1 ||
		answer.Problems[0].Cure != service.CureOf("quotas") {
		t.Errorf("with a problem that is no obstacle: %d %s, %v", code, body, err)
	}
	problems = append(problems, service.Problem{Name: "schema", Detail: "run keyadmin migrate"})
	if code, body := get(a, "/readyz"); code != 503 || !strings.Contains(body, "keyadmin migrate") {
		t.Errorf("with an obstacle: %d %s", code, body)
	}
}

// A web page can make a browser call this port under any name that resolves to it. Only known names
// are answered.
func TestAdminAnswersToKnownHostsOnly(t *testing.T) {
	name := must.Get[string](t)(os.Hostname())
	a := service.NewAdmin(quiet, service.Settings{AdminHosts: []string{"Gw-1.internal", "10.9.9.9"}}, "gateway-1:9090")
	local := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 9090}
	for host, want := range map[string]int{
		"localhost": 200, "localhost:9090": 200, "LOCALHOST.:9090": 200, "127.0.0.1": 200, "127.0.0.1:80": 200, "127.8.8.8": 200,
		"[::1]": 200, "[::1]:9090": 200, "gateway-1:9090": 200, "gateway-1": 200, "gw-1.internal:9090": 200, "10.9.9.9:9090": 200,
		"10.0.0.7:9090": 200, "10.0.0.7": 200, name + ":9090": 200, "": 200,
		"evil.example": 421, "evil.example:9090": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421,
		"10.0.0.8:9090": 421, "gateway-2:9090": 421, "[::2]": 421, "localhost:9090:1": 421,
	} {
		r := httptest.NewRequest(http.MethodGet, "/healthz", nil)
		r.Host = host
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local)))
		must.Equal(t, w.Code, want, "Host %q", host)
		if want == 421 && !strings.Contains(w.Body.String(), "--admin-hosts") {
			t.Errorf("Host %q: the answer names no cure: %s", host, w.Body.String())
		}
	}
}

func TestAdminWarnsOfAPublicAddress(t *testing.T) {
	for address, want := range map[string]bool{
		"0.0.0.0": true, "::": true, "203.0.113.5": true, "2001:db8::1": true,
		"127.0.0.1": false, "::1": false, "10.1.2.3": false, "192.168.1.1": false, "fd00::1": false,
		"169.254.1.1": false, "fe80::1": false, "::ffff:10.1.2.3": false, "::ffff:203.0.113.5": true,
	} {
		must.Equal(t, service.IsPublic(netip.MustParseAddr(address)), want, "%s is public", address)
	}
	withCA := saved(testkit.NewAuthority(t).SaveServer(2, time.Now().Add(time.Hour)))
	withoutCA := withCA
	withoutCA.ClientCA = ""
	f := func(address string, settings service.AdminTLS, want bool) {
		t.Helper()
		var out bytes.Buffer
		a := service.NewAdmin(slog.New(slog.NewTextHandler(&out, nil)), service.Settings{AdminTLS: settings}, "")
		ln, err := service.Listen(address, "")
		if err == nil {
			err = a.Start(ln)
		}
		must.Do(t, err)
		a.Close()
		must.Equal(t, strings.Contains(out.String(), "public address"), want, "%s with %+v: warned", address, settings)
		must.Equal(t, strings.Contains(out.String(), "certificate of the admin port expires"), settings.Cert != "",
			"the certificate's end is logged")
		_, body := get(a, "/readyz")
		must.Equal(t, strings.Contains(body, `"name":"certificate"`), settings.Cert != "",
			"the certificate's end is in %s", body)
	}
	f("127.0.0.1:0", service.AdminTLS{}, false)
	f("0.0.0.0:0", service.AdminTLS{}, true)
	f("0.0.0.0:0", withoutCA, true)
	f("0.0.0.0:0", withCA, false)
}

// A page of another origin cannot make a browser change anything.
func TestAdminRefusesOtherOrigins(t *testing.T) {
	a := service.NewAdmin(quiet, service.Settings{}, "")
	changes := 0
	a.Handle("/change", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { changes++ }))
	f := func(method, header, value string, want int) {
		t.Helper()
		r := httptest.NewRequest(method, "http://localhost/change", nil)
		r.Header.Set(header, value)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code != want ||
			want == 403 && !strings.Contains(w.Body.String(), "a page of another origin sent this request") {
			t.Errorf("%s with %s %s: %d %s, want %d", method, header, value, w.Code, w.Body, want)
		}
	}
	f(http.MethodPost, "Sec-Fetch-Site", "cross-site", 403)
	f(http.MethodDelete, "Origin", "https://evil.example", 403)
	must.Equal(t, changes, 0, "refused requests that were carried out")
	f(http.MethodPost, "Sec-Fetch-Site", "same-origin", 200)
	f(http.MethodPost, "User-Agent", "curl", 200)
	must.Equal(t, changes, 2, "requests that were carried out")
}

// server is a Public that only records what happened, and when.
type server struct {
	mu     sync.Mutex
	events []string
	start  time.Time
	stop   chan struct{}
	slow   time.Duration // a request in flight takes this long
	fail   error
}

func (s *server) note(event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, event+" "+time.Since(s.start).String())
}

func (s *server) Serve(net.Listener) error {
	if s.fail != nil {
		return s.fail
	}
	<-s.stop
	return nil
}

func (s *server) Drain() { s.note("drain") }

func (s *server) Shutdown(ctx context.Context) error {
	s.note("shutdown")
	if s.fail == nil {
		close(s.stop)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.slow):
		return nil
	}
}

type listener struct{ net.Listener }

func (listener) Addr() net.Addr { return &net.TCPAddr{} }

func TestDrain(t *testing.T) {
	f := func(name string, delay, slow time.Duration, wantErr error, want string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			s := &server{start: time.Now(), stop: make(chan struct{}), slow: slow}
			a := service.NewAdmin(quiet, service.Settings{}, "")
			a.SetReady(func() []service.Problem { return nil })
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan error)
			go func() {
				result <- service.Serving{
					Public: s, Listener: listener{}, Admin: a, Log: quiet,
					Settings: service.Settings{DrainDelay: delay, DrainLimit: 30 * time.Second},
				}.Run(ctx)
			}()
			synctest.Wait()
			if code, _ := get(a, "/readyz"); code != 200 {
				t.Errorf("%s: /readyz before: %d", name, code)
			}
			cancel()
			synctest.Wait()
			if code, _ := get(a, "/readyz"); code != 503 {
				t.Errorf("%s: /readyz while draining: %d", name, code)
			}
			if err := <-result; !errors.Is(err, wantErr) {
				t.Errorf("%s: Run() = %v, want %v", name, err, wantErr)
			}
			must.Equal(t, strings.Join(s.events, ", "), want, "%s", name)
		})
	}
	f("behind a load balancer", 5*time.Second, time.Second, nil, "drain 5s, drain 6s, shutdown 6s")
	f("alone", 0, time.Second, nil, "drain 0s, shutdown 0s")
	f("stuck", 0, time.Hour, context.DeadlineExceeded, "drain 0s, shutdown 0s")
}

func TestServeFails(t *testing.T) {
	broken := errors.New("broken")
	err := service.Serving{
		Public: &server{
			fail: broken,
		}, Listener: listener{}, Admin: service.NewAdmin(quiet, service.Settings{}, ""), Log: quiet,
		Settings: service.Settings{DrainLimit: time.Second},
	}.Run(t.Context())
	if !errors.Is(err, broken) {
		t.Errorf("Run() = %v", err)
	}
}

func TestRun(t *testing.T) {
	service.ForceOnlyAfter(time.Hour) // the signals below may reach the process at any time
	must.Equal(t, service.Run(quiet, func(context.Context) error { return errors.New("no") }), 1,
		"exit code after an error")
	code := service.Run(quiet, func(ctx context.Context) error {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-ctx.Done()
		return syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
	})
	// Early signals do not end the process, whether they reach it before or after the end of Run.
	for range 100 {
		must.Do(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	}
	must.Equal(t, code, 0, "exit code after SIGTERM")
}

func TestListen(t *testing.T) {
	ln := must.Get[net.Listener](t)(service.Listen("127.0.0.1:0", "--listen"))
	defer ln.Close()
	if _, err := service.Listen(ln.Addr().String(), "--listen"); err == nil ||
		!strings.Contains(err.Error(), ln.Addr().String()+" is in use") || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("a busy port: %v", err)
	}
	if _, err := service.Listen("nonsense", "--listen"); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("no address: %v", err)
	}
}

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := service.Listen("unix:"+path, "--listen")
	must.Do(t, err)
	if _, err := service.Listen("unix:"+path, "--listen"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a busy socket: %v", err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false) // as after kill -9
	_ = ln.Close()
	ln, err = service.Listen("unix:"+path, "--listen")
	must.Do(t, err) // there is a socket left behind
	_ = ln.Close()
	must.Do(t, os.WriteFile(path, []byte("not a socket"), 0o600))
	if _, err := service.Listen("unix:"+path, "--listen"); err == nil {
		t.Error("a file that is no socket was replaced")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "not a socket" {
		t.Errorf("a file that is no socket: %q, %v", text, err)
	}
	if _, err := service.Listen("unix:/"+strings.Repeat("x", 120), "--listen"); err == nil ||
		!strings.Contains(err.Error(), "shorter") {
		t.Errorf("too long a path: %v", err)
	}
}

func TestSocketsOfSystemd(t *testing.T) {
	t.Setenv("LISTEN_FDS", "2")
	t.Setenv("LISTEN_PID", "1") // they are another process's
	_ = must.Get[net.Listener](t)(service.ListenPublic("127.0.0.1:0", "--listen")).Close()
	t.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	if _, err := service.ListenPublic("127.0.0.1:0", "--listen"); err == nil ||
		!strings.Contains(err.Error(), "systemd passes 2 sockets") {
		t.Errorf("two sockets: %v", err)
	}
}

func TestLogIsJSON(t *testing.T) {
	var out bytes.Buffer
	defer func(zone *time.Location) { time.Local = zone }(time.Local)
	time.Local = time.FixedZone("east", 3600)
	log := service.NewLog(&out, false, slog.LevelWarn, "prog")
	log.Info("hidden")
	log.Warn("hello\nworld", "n", 1)
	var line struct {
		Time, Msg, Program string
		N                  int
	}
	err := json.Unmarshal(out.Bytes(), &line)
	at, timeErr := time.Parse("2006-01-02T15:04:05.000Z", line.Time)
	if err != nil || timeErr != nil || time.Since(at).Abs() > time.Minute ||
		line.Msg != "hello\nworld" || line.Program != "prog" || line.N != 1 {
		t.Errorf("%s: %v, %v", &out, err, timeErr)
	}
}
