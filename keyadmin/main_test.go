package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// The built program, as scripts use it: streams, exit codes, and no questions to a person.
func TestBinary(t *testing.T) {
	t.Parallel()
	path := testkit.Build(t, "petgate/keyadmin")
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		env := []string{"DATABASE_URL=" + url, "USER=script"}
		want := func(code int, stdin string, args ...string) string {
			t.Helper()
			var stdout, stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), path, args...)
			cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, strings.NewReader(stdin), &stdout, &stderr
			if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
				t.Fatalf("keyadmin %s: %v, want %d\n%s%s", quoted(args), err, code, stdout.String(), stderr.String())
			}
			return stdout.String()
		}
		want(1, "", "tenant", "list")
		want(0, "", "migrate")
		want(2, "", "tenant", "list", "-o", "xml")
		want(0, "", "tenant", "create", "acme")
		token := want(0, "", "key", "create", "acme", "--name", "ci")
		if !strings.HasPrefix(token, "ptg_live_") || strings.Count(token, "\n") != 1 {
			t.Fatalf("key create prints %q", token)
		}
		var key struct{ ID string }
		must.Do(t, json.Unmarshal([]byte(want(0, token, "key", "whoami", "--output", "json")), &key))

		// A gateway never answers: an interrupt ends the wait, and keyadmin says so.
		s := newShell(t, url)
		s.gateway(s.store(), "gw-1", "10.0.0.5:9090")
		p := testkit.Start(t, path, env, "key", "revoke", key.ID, "--yes", "--wait", "10m")
		testkit.Eventually(t, time.Minute, "the key is revoked", func() bool {
			return strings.Contains(p.Stderr.String(), "Revoked key "+key.ID)
		})
		p.Signal(os.Interrupt)
		if code := p.ExitCode(t); code != int(exitUnconfirmed) {
			t.Errorf("exit %d after an interrupt, want %d", code, exitUnconfirmed)
		}
		if got := p.Stderr.String(); !strings.Contains(got, "gw-1 (10.0.0.5), still starting, may still accept this key") {
			t.Errorf("after an interrupt it says:\n%s", got)
		}
		want(3, "", "key", "revoke", key.ID, "-y", "--wait", "0")
		want(0, "", "gateway", "forget", "gw-1", "--yes")
		want(0, "", "key", "revoke", key.ID, "--yes")
	})
}
