package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// What the start prints works for a service and a document of its own. The commands of docs/your-api.md are run by deploy/docs.
func TestOwnAPI(t *testing.T) {
	testkit.HearHangups(t)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" for "+r.Header.Get("X-Tenant-Id")+r.Header.Get("Authorization"))
	}))
	t.Cleanup(service.Close)
	l := newLocal(t)
	document := filepath.Join(t.TempDir(), "openapi.yaml")
	must.Do(t, os.WriteFile(document, []byte("openapi: 3.1.0\ninfo: {title: Orders, version: '1'}\nservers: [{url: https://example.com/shop}]\npaths:\n"+
		"  /orders: {get: {operationId: listOrders}, post: {operationId: addOrder}}\n  /orders/{id}: {get: {operationId: getOrder}}\n"), 0o600))
	l.Process = testkit.Start(t, l.binary, l.env, "--api", document, "--upstreams", service.URL, "--key-prefix", "acme")
	l.awaitWelcome(t, startWithin)
	lines := regexp.MustCompile(`(?m)^    (curl .*)$`).FindAllStringSubmatch(l.Stdout.String(), -1)
	if len(lines) != 3 {
		t.Fatalf("the welcome has %d requests:\n%s", len(lines), l.Stdout)
	}
	for i, want := range []string{"GET /shop/orders for ten_", "GET /shop/orders/1 for ten_", `"plan":"free"`} {
		got, err := exec.CommandContext(t.Context(), "sh", "-c", lines[i][1]).CombinedOutput() // in l.dir
		if text := string(got); err != nil || !strings.Contains(text, "HTTP/1.1 200 OK") || !strings.Contains(text, want) || strings.Contains(text, "acme_") {
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
