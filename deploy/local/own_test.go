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
)

// TestOwnAPI follows docs/your-api.md with a service and a document of its own: what the start prints and what the page says works.
func TestOwnAPI(t *testing.T) {
	testkit.HearHangups(t)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" for "+r.Header.Get("X-Tenant-Id")+r.Header.Get("Authorization"))
	}))
	t.Cleanup(service.Close)
	l := newLocal(t)
	document := filepath.Join(t.TempDir(), "openapi.yaml")
	if err := os.WriteFile(document, []byte("openapi: 3.1.0\ninfo: {title: Orders, version: '1'}\nservers: [{url: https://example.com/shop}]\npaths:\n"+
		"  /orders: {get: {operationId: listOrders}, post: {operationId: addOrder}}\n  /orders/{id}: {get: {operationId: getOrder}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.Process = testkit.Start(t, l.binary, l.env, "--api", document, "--upstreams", service.URL, "--key-prefix", "acme")
	l.awaitWelcome(t, startWithin)
	shell := func(line string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir = l.dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	lines := regexp.MustCompile(`(?m)^    (curl .*)$`).FindAllStringSubmatch(l.Stdout.String(), -1)
	if len(lines) != 3 {
		t.Fatalf("the welcome has %d requests:\n%s", len(lines), l.Stdout)
	}
	for i, want := range []string{"GET /shop/orders for ten_", "GET /shop/orders/1 for ten_", `"plan":"free"`} {
		line := lines[i][1]
		if got := shell(line); !strings.Contains(got, "HTTP/1.1 200 OK") || !strings.Contains(got, want) || strings.Contains(got, "acme_") {
			t.Errorf("%s:\n%s\nwant %s", line, got, want)
		}
	}
	page, err := os.ReadFile(filepath.Join(l.dir, "docs", "your-api.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^bin/keyadmin .*$`).FindAllString(string(page), -1)
	if len(commands) < 4 {
		t.Fatalf("the page has the commands %q", commands)
	}
	for _, command := range commands {
		shell(command)
	}
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
