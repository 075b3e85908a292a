package main_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func TestRefusesToStart(t *testing.T) {
	for _, c := range []struct {
		env, flags []string
		code       int
		names      []string
	}{
		{
			[]string{
				"DATABASE_URL=mysql://root:hunter2@localhost/pets", "PETSVC_LISTEN=nowhere", "PETSVC_ADMIN_LISTEN=unix:",
				"PETSVC_CONNECTIONS=0",
				"PETSVC_DRAIN_DELAY=soon", "PETSVC_DRAIN_LIMIT=0s", "PETSVC_BODY_BYTES_MAX=0", "OTEL_EXPORTER_OTLP_ENDPOINT=collector",
			},
			[]string{"--queue=-1"},
			2,
			[]string{
				"DATABASE_URL", "--listen", "--admin-listen", "--connections", "PETSVC_DRAIN_DELAY", "--queue",
				"--drain-limit", "--body-bytes-max", "--otlp-endpoint",
			},
		},
		{nil, []string{"--database-url=sqlite:x"}, 2, []string{"--database-url"}}, // secrets are no flags
		{nil, []string{"--secret=open"}, 2, []string{"--secret"}},
		{
			[]string{
				"DATABASE_URL=" + testkit.SQLite(t), "PETSVC_LISTEN=127.0.0.1:0", "PETSVC_ADMIN_LISTEN=127.0.0.1:0",
			},
			nil, 1,
			[]string{"keyadmin migrate"},
		},
	} {
		p := testkit.Start(t, testkit.Build(t, "petgate/petsvc"), c.env, c.flags...)
		if code := p.ExitCode(t); code != c.code || strings.Contains(p.Stderr.String(), "hunter2") {
			t.Errorf("%v %v: exit code %d: %s", c.env, c.flags, code, p.Stderr)
		}
		for _, want := range c.names {
			if !strings.Contains(p.Stderr.String(), want) {
				t.Errorf("%v %v: %s is not named: %s", c.env, c.flags, want, p.Stderr)
			}
		}
	}
}

// petsvc listens on a Unix socket and reads its secrets from files. It is ended by a second signal,
// started again, sent SIGHUP, and stopped.
func TestServesOnSocket(t *testing.T) {
	dir := t.TempDir()
	url := testkit.SQLite(t)
	must.Get[*database.DB](t)(database.OpenOrCreate(url)).Close()
	socket := filepath.Join(dir, "pets.sock")
	admin := "127.0.0.1:" + strconv.Itoa(testkit.FreePort(t))
	env := []string{
		"PETSVC_LISTEN=unix:" + socket, "PETSVC_ADMIN_LISTEN=" + admin, "PETSVC_CONNECTIONS=3",
		"DATABASE_URL_FILE=" + write(t, dir, "url", url+"\n"), "PETSVC_SECRET_FILE=" + write(t, dir, "secret", "open sesame\n"),
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	do := func(method, body string) (int, string) {
		t.Helper()
		request := must.Get[*http.Request](t)(http.NewRequest(method, "http://pets/v1/pets", strings.NewReader(body)))
		request.Header.Set("X-Gateway-Secret", "open sesame")
		request.Header.Set("X-Request-Id", "r-1")
		response := must.Get[*http.Response](t)(client.Do(request))
		defer response.Body.Close()
		return response.StatusCode, string(must.Get[[]byte](t)(io.ReadAll(response.Body)))
	}
	launch := func(delay string) *testkit.Process {
		t.Helper()
		p := testkit.Start(t, testkit.Build(t, "petgate/petsvc"), env, "--drain-delay="+delay)
		testkit.Eventually(t, 20*time.Second, "petsvc is ready", func() bool {
			response, err := http.Get("http://" + admin + "/readyz")
			if err != nil {
				return false
			}
			response.Body.Close()
			return response.StatusCode == http.StatusOK
		})
		return p
	}

	p := launch("1h")
	must.Equal(t, must.Get[os.FileInfo](t)(os.Stat(socket)).Mode().Perm(), 0o660, "the socket's mode")
	status, body := do("POST", `{"name":"Rex","categoryId":1}`)
	must.Equal(t, status, 201, "POST: %s", body)
	testkit.Eventually(t, time.Minute, "a second signal ends it at once", func() bool {
		p.Signal(syscall.SIGTERM)
		_, ended := p.Wait(100 * time.Millisecond)
		return ended
	})

	p = launch("0s") // the process that the second signal ended has left its socket
	p.Signal(syscall.SIGHUP)
	if status, body := do("GET", ""); status != 200 || strings.Count(body, "Rex") != 1 {
		t.Errorf("GET: %d %s", status, body)
	}
	_, metrics := testkit.Send(t, http.DefaultClient, "GET", "http://"+admin+"/metrics", "", "")
	must.Equal(t, strings.Contains(metrics, "\npetgate_petsvc_usable_connections 3\n"), true,
		"3 connections for requests in %s", metrics)
	must.Equal(t, p.Stop(), 0, "the exit code")
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	if !strings.Contains(p.Stdout.String(), `"requestId":"r-1"`) {
		t.Errorf("the access log is %s", p.Stdout.String())
	}
	if all := p.Stdout.String() + p.Stderr.String(); strings.Contains(all, "sesame") {
		t.Errorf("the secret is told: %s", all)
	}
}

func write(t *testing.T, dir, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
