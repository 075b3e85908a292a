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
	f := func(a *service.Admin, path string, want int, texts ...string) {
		t.Helper()
		code, body := get(a, path)
		must.Equal(t, code, want, "%s: %s", path, body)
		for _, text := range texts {
			if !strings.Contains(body, text) {
				t.Errorf("%s: %s, want %s", path, body, text)
			}
		}
	}
	f(a, "/healthz", 200)
	f(a, "/readyz", 503)
	f(a, "/metrics", 200)
	f(a, "/", 404)
	f(a, "/favicon.ico", 204)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine"} {
		f(a, path, 200)
		f(service.NewAdmin(quiet, service.Settings{}, ""), path, 404)
	}
	problems := []service.Problem{{Name: "quotas", Detail: "eviction is on", Serving: true}}
	a.SetReady(func() []service.Problem { return problems })
	f(a, "/readyz", 200, `"ready":true`, `"cure":"`+service.CureOf("quotas")+`"`)
	problems = append(problems, service.Problem{Name: "schema", Detail: "run keyadmin migrate"})
	f(a, "/readyz", 503, `"ready":false`, "keyadmin migrate")
}

// A web page can make a browser call this port under any name that resolves to it. Only known names
// are answered.
func TestAdminAnswersToKnownHostsOnly(t *testing.T) {
	name := must.Get[string](t)(os.Hostname())
	a := service.NewAdmin(quiet, service.Settings{AdminHosts: []string{"Gw-1.internal", "10.9.9.9"}}, "gateway-1:9090")
	local := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 9090}
	f := func(host string, want int) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/healthz", nil)
		r.Host = host
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local)))
		must.Equal(t, w.Code, want, "Host %q", host)
		if want == 421 && !strings.Contains(w.Body.String(), "--admin-hosts") {
			t.Errorf("Host %q: the answer names no cure: %s", host, w.Body.String())
		}
	}
	for _, host := range []string{
		"localhost", "localhost:9090", "LOCALHOST.:9090", "127.0.0.1", "127.0.0.1:80", "127.8.8.8", "[::1]", "[::1]:9090",
		"gateway-1:9090", "gateway-1", "gw-1.internal:9090", "10.9.9.9:9090", "10.0.0.7:9090", "10.0.0.7", name + ":9090", "",
	} {
		f(host, 200)
	}
	for _, host := range []string{
		"evil.example", "evil.example:9090", "localhost.evil.example", "127.0.0.1.evil.example",
		"10.0.0.8:9090", "gateway-2:9090", "[::2]", "localhost:9090:1",
	} {
		f(host, 421)
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
		must.Do(t, a.Start(must.Get[net.Listener](t)(service.Listen(address, ""))))
		a.Close()
		must.Equal(t, strings.Contains(out.String(), "public address"), want, "%s with %+v: warned", address, settings)
		logged := strings.Contains(out.String(), "certificate of the admin port expires")
		must.Equal(t, logged, settings.Cert != "", "the certificate's end is logged")
		_, body := get(a, "/readyz")
		shown := strings.Contains(body, `"name":"certificate"`)
		must.Equal(t, shown, settings.Cert != "", "the certificate's end is in %s", body)
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
		must.Equal(t, w.Code, want, "%s with %s %s: %s", method, header, value, w.Body)
		if want == 403 && !strings.Contains(w.Body.String(), "a page of another origin sent this request") {
			t.Errorf("%s with %s %s: %s", method, header, value, w.Body)
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
			readyz := func(when string, want int) {
				t.Helper()
				synctest.Wait()
				code, _ := get(a, "/readyz")
				must.Equal(t, code, want, "%s: /readyz %s", name, when)
			}
			readyz("before", 200)
			cancel()
			readyz("while draining", 503)
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
	serving := service.Serving{Public: &server{fail: broken}, Listener: listener{}, Log: quiet}
	serving.Admin = service.NewAdmin(quiet, service.Settings{}, "")
	serving.Settings.DrainLimit = time.Second
	if err := serving.Run(t.Context()); !errors.Is(err, broken) {
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
	refused := func(address string, texts ...string) {
		t.Helper()
		_, err := service.Listen(address, "--listen")
		for _, text := range texts {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %q", address, err, text)
			}
		}
	}
	refused(ln.Addr().String(), ln.Addr().String()+" is in use", "--listen")
	refused("nonsense", "--listen")
	refused("unix:/"+strings.Repeat("x", 120), "shorter")

	path := filepath.Join(t.TempDir(), "s")
	ln = must.Get[net.Listener](t)(service.Listen("unix:"+path, "--listen"))
	refused("unix:"+path, "in use")
	ln.(*net.UnixListener).SetUnlinkOnClose(false) // as after kill -9
	_ = ln.Close()
	_ = must.Get[net.Listener](t)(service.Listen("unix:"+path, "--listen")).Close() // a socket was left behind
	must.Do(t, os.WriteFile(path, []byte("not a socket"), 0o600))
	refused("unix:"+path, "")
	left := must.Get[[]byte](t)(os.ReadFile(path))
	must.Equal(t, string(left), "not a socket", "a file that is not a socket")
}

func TestSocketsOfSystemd(t *testing.T) {
	t.Setenv("LISTEN_FDS", "2")
	t.Setenv("LISTEN_PID", "1") // they are another process's
	_ = must.Get[net.Listener](t)(service.ListenPublic("127.0.0.1:0", "--listen")).Close()
	t.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	_, err := service.ListenPublic("127.0.0.1:0", "--listen")
	if err == nil || !strings.Contains(err.Error(), "systemd passes 2 sockets") {
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
	type fields struct {
		Time, Level, Msg, Program string
		N                         int
	}
	var line fields
	must.Do(t, json.Unmarshal(out.Bytes(), &line))
	must.Equal(t, line, fields{line.Time, "WARN", "hello\nworld", "prog", 1}, "the line")
	at := must.Get[time.Time](t)(time.Parse("2006-01-02T15:04:05.000Z", line.Time))
	if time.Since(at).Abs() > time.Hour/2 { // it is UTC
		t.Errorf("the time of the line is %s", line.Time)
	}
}
