package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// startWithin includes a build of keyadmin, which takes minutes on a busy machine that has not
// compiled it before.
const startWithin = 10 * time.Minute

// local is a copy of the product that runs on ports of its own.
type local struct {
	*testkit.Process
	dir, binary string
	env         []string
	url, admin  string
}

func newLocal(t *testing.T) *local {
	t.Helper()
	l := &local{binary: testkit.Build(t, "petgate/deploy/local"), dir: t.TempDir()}
	testkit.CopySource(t, filepath.Join("..", ".."), l.dir)
	public, admin := "127.0.0.1:"+strconv.Itoa(testkit.FreePort(t)), "127.0.0.1:"+strconv.Itoa(testkit.FreePort(t))
	l.url, l.admin = "http://"+public, "http://"+admin
	l.env = []string{
		"GATEWAY_LISTEN=" + public, "GATEWAY_ADMIN_LISTEN=" + admin, "DATABASE_URL=postgres://nobody@nowhere/nothing",
	}
	// The copy's keyadmin is built from the existing caches.
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY"} {
		value := must.Get[[]byte](t)(exec.Command("go", "env", name).Output())
		l.env = append(l.env, name+"="+strings.TrimSpace(string(value)))
	}
	t.Chdir(l.dir)
	return l
}

func (l *local) start(t *testing.T) {
	t.Helper()
	l.Process = testkit.Start(t, l.binary, l.env)
	l.awaitWelcome(t, startWithin)
}

func (l *local) awaitWelcome(t *testing.T, within time.Duration) {
	t.Helper()
	testkit.Eventually(t, within, "the welcome", func() bool {
		if code, ended := l.Wait(0); ended {
			t.Fatalf("it ended with exit code %d:\n%s", code, l.Stderr)
		}
		return strings.Contains(l.Stdout.String(), "set-plan demo pro")
	})
}

// token reads the token that the last start wrote.
func (l *local) token(t *testing.T) string {
	t.Helper()
	path := filepath.Join(l.dir, "var", "demo.token")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%s: mode %v, %v; want 0600", path, info.Mode(), err)
	}
	return strings.TrimSpace(string(must.Get[[]byte](t)(os.ReadFile(path))))
}

// want sends a request that must get this status.
func (l *local) want(t *testing.T, status int, token, method, path, body string) (header http.Header, answer string) {
	t.Helper()
	response, answer := testkit.Send(t, http.DefaultClient, method, l.url+path, token, body, "Content-Type",
		"application/json")
	if response.StatusCode != status {
		t.Fatalf("%s %s: %d, want %d: %s", method, path, response.StatusCode, status, answer)
	}
	return response.Header, answer
}

func (l *local) keyadmin(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("bin/keyadmin", args...)
	cmd.Dir = l.dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("keyadmin %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

func TestFirstLook(t *testing.T) {
	testkit.HearHangups(t)
	l := newLocal(t)
	l.start(t)
	token := l.token(t)
	for _, want := range []string{
		token, l.url + "/v1/pets", "keyadmin tenant set-plan demo pro", "60 requests per minute", l.url + "/docs\n",
	} {
		if !strings.Contains(l.Stdout.String(), want) {
			t.Errorf("the welcome lacks %q:\n%s", want, l.Stdout)
		}
	}
	must.Equal(t, strings.Count(l.Stdout.String(), "    curl "), 3, "the curl lines of the welcome")

	if _, pets := l.want(t, 200, token, "GET", "/v1/pets", ""); !strings.HasPrefix(pets, "[{") {
		t.Errorf("the first pets: %s", pets)
	}
	header, _ := l.want(t, 201, token, "POST", "/v1/pets", `{"name":"Rex","categoryId":1}`)
	added := header.Get("Location")
	l.want(t, 200, token, "GET", added, "")
	const used = 3

	l.Signal(syscall.SIGINT)
	if code := l.ExitCode(t); code != 0 {
		t.Errorf("exit code after Ctrl-C: %d\n%s", code, l.Stderr)
	}

	// A second run keeps the pets, the quota and the key, which works as soon as the gateway is
	// ready.
	l.startReady(t)
	if kept := l.token(t); kept != token {
		t.Error("the second run replaced the demo key")
	}
	var report struct {
		Policies []struct {
			Name string
			Used int
		}
	}
	_, body := l.want(t, 200, token, "GET", "/v1/quota", "")
	if err := json.Unmarshal([]byte(body), &report); err != nil || len(report.Policies) != 2 {
		t.Fatalf("the quota: %s %v", body, err)
	}
	if day := report.Policies[1]; day.Name != "day" || day.Used < used { // a start can take longer than the minute
		t.Errorf("the quota did not survive: %d requests, and %s", used, body)
	}
	_, body = l.want(t, 200, token, "GET", "/v1/pets?limit=100", "")
	must.Equal(t, strings.Count(body, `"id":`), 31, "pets of the sample, and the one that was added")
	l.keyadmin(t, "tenant", "set-plan", "demo", "pro")
	own := strings.TrimSpace(l.keyadmin(t, "key", "create", "demo", "--name", "own"))
	header, body = l.want(t, 200, token, "GET", added, "")
	if !strings.Contains(body, "Rex") {
		t.Errorf("the pet that was added: %s", body)
	}

	// Others beside it, on its ports or on others, say what is running and touch nothing.
	var before []byte
	testkit.Eventually(t, startWithin, "the last request is in the access log", func() bool {
		var err error
		before, err = os.ReadFile(filepath.Join(l.dir, "var", "access.log"))
		return err == nil && bytes.Contains(before, []byte(header.Get("X-Request-Id")))
	})
	free := []string{"GATEWAY_LISTEN=127.0.0.1:0", "GATEWAY_ADMIN_LISTEN=127.0.0.1:0"}
	for _, env := range [][]string{l.env, append(slices.Clone(l.env), free...)} {
		other := testkit.Start(t, l.binary, env)
		code, says := other.ExitCode(t), other.Stderr.String()
		if code != 1 || strings.Count(says, "\n") != 1 || !strings.Contains(says, "stop it with Ctrl-C") {
			t.Errorf("beside a running one: exit code %d\n%s", code, says)
		}
	}
	after, err := os.ReadFile(filepath.Join(l.dir, "var", "access.log"))
	if err != nil || !bytes.Equal(after, before) || l.token(t) != token {
		t.Errorf("a run that could not start changed the files of the running one: %v", err)
	}

	// A terminal that is closed ends it in order. Its socket is free after kill -9, too.
	l.Signal(syscall.SIGHUP)
	if code := l.ExitCode(t); code != 0 {
		t.Errorf("exit code after SIGHUP: %d\n%s", code, l.Stderr)
	}
	l.startReady(t)
	l.Kill()

	// A key that was revoked is replaced.
	l.startReady(t)
	var keys []struct{ ID, Name string }
	must.Do(t, json.Unmarshal([]byte(l.keyadmin(t, "key", "list", "demo", "--output", "json")), &keys))
	for _, k := range keys {
		if k.Name == "demo" {
			l.keyadmin(t, "key", "revoke", k.ID, "--yes")
		}
	}
	l.Signal(syscall.SIGINT)
	l.ExitCode(t)
	files := testkit.NewAuthority(t).SaveServer(2, time.Now().Add(time.Hour))
	l.env = append(l.env, "GATEWAY_DOCS=false", "GATEWAY_ADMIN_TLS_CERT="+files.Cert,
		"GATEWAY_ADMIN_TLS_KEY="+files.Key)
	l.start(t)
	if said := l.Stdout.String(); !strings.Contains(said, l.admin+"/console/login#") ||
		!strings.Contains(said, "plan pro (300 requests per minute, 10000 per day)") {
		t.Errorf("with TLS for the admin port and another plan, the welcome does not name %s or the limits:\n%s",
			l.admin, said)
	}
	if strings.Contains(l.Stdout.String(), "/docs") {
		t.Errorf("the welcome names pages that are not served:\n%s", l.Stdout)
	}
	for _, token := range []string{own, l.token(t)} { // it is not the revoked one
		l.want(t, 200, token, "GET", "/v1/pets", "")
	}
}

// startReady starts it and waits until the gateway is ready, which is before the welcome.
func (l *local) startReady(t *testing.T) {
	t.Helper()
	l.Process = testkit.Start(t, l.binary, l.env)
	testkit.Eventually(t, startWithin, "/readyz", func() bool {
		_, isReady, _ := service.Readiness(strings.TrimPrefix(l.admin, "http://"), false)
		return isReady
	})
}

// What the start prints works for a service and a document of its own. The commands of
// docs/your-api.md are run by deploy/docs.
func TestOwnAPI(t *testing.T) {
	testkit.HearHangups(t)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w,
			r.Method+" "+r.URL.Path+" for "+r.Header.Get("X-Tenant-Id")+r.Header.Get("Authorization"))
	}))
	t.Cleanup(service.Close)
	l := newLocal(t)
	document := filepath.Join(t.TempDir(), "openapi.yaml")
	must.Do(
		t,
		os.WriteFile(
			document,
			[]byte(`openapi: 3.1.0
info: {title: Orders, version: '1'}
servers: [{url: https://example.com/shop}]
paths:
  /orders: {get: {operationId: listOrders}, post: {operationId: addOrder}}
  /orders/{id}: {get: {operationId: getOrder}}
`),
			0o600,
		),
	)
	l.Process = testkit.Start(t, l.binary, l.env, "--api", document, "--upstreams", service.URL, "--key-prefix", "acme")
	l.awaitWelcome(t, startWithin)
	lines := regexp.MustCompile(`(?m)^    (curl .*)$`).FindAllStringSubmatch(l.Stdout.String(), -1)
	if len(lines) != 3 {
		t.Fatalf("the welcome has %d requests:\n%s", len(lines), l.Stdout)
	}
	for i, want := range []string{"GET /shop/orders for ten_", "GET /shop/orders/1 for ten_", `"plan":"free"`} {
		got, err := exec.CommandContext(t.Context(), "sh", "-c", lines[i][1]).CombinedOutput() // in l.dir
		if text := string(got); err != nil || !strings.Contains(text, "HTTP/1.1 200 OK") ||
			!strings.Contains(text, want) ||
			strings.Contains(text, "acme_") {
			t.Errorf("%s: %v\n%s\nwant %s", lines[i][1], err, text, want)
		}
	}
	l.keyadmin(t, "tenant", "create", "acme")
	for _, token := range []string{l.token(t), strings.TrimSpace(l.keyadmin(t, "key", "create", "acme"))} {
		if l.want(t, 200, token, "GET", "/shop/orders", ""); !strings.HasPrefix(token, "acme_live_") {
			t.Errorf("the token is %.10s", token)
		}
	}
	if got := l.keyadmin(t, "key", "list", "acme"); !strings.Contains(got, "read write") {
		t.Errorf("the new key has other scopes than the document's:\n%s", got)
	}
	l.want(t, 405, l.token(t), "DELETE", "/shop/orders", "") // the document does not have it
	if _, page := l.want(t, 200, "", "GET", "/docs", ""); !strings.Contains(page, "Orders") {
		t.Error("the documentation is not that of the document")
	}
	l.Signal(syscall.SIGINT)
	if code := l.ExitCode(t); code != 0 {
		t.Errorf("exit code after Ctrl-C: %d\n%s", code, l.Stderr)
	}
}

// The help has the settings that this command uses, and none of those that it sets itself.
func TestHelp(t *testing.T) {
	var help, problems bytes.Buffer
	if code, done := service.Load(&settings{}, "local", about, []string{"--help"}, &help, &problems); code != 0 ||
		!done {
		t.Fatalf("exit code %d: %s", code, &problems)
	}
	for text, want := range map[string]bool{
		"--listen=": true, "--admin-listen=": true, "--ban-after=": true, "GATEWAY_UPSTREAM_SECRET": true,
		"--limits-on-outage": false, "--database-connections": false, "--upstreams": true, "--api=": true,
		"--drain-delay": false, "GATEWAY_CONSOLE)": false, "DATABASE_URL": false, "REDIS_URL": false,
		"--redis-prefix": false,
	} {
		if strings.Contains(help.String(), text) != want {
			t.Errorf("%q in the help: %t, want %t\n%s", text, !want, want, &help)
		}
	}
	_, done := service.Load(&settings{}, "local", about, []string{"--upstreams", "http://127.0.0.1:1"}, &help,
		&problems)
	must.Equal(t, done && strings.Contains(problems.String(), "it needs --api"), true,
		"upstreams without a document: %s", &problems)
}
