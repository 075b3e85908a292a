//go:build e2e

package e2e_test

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// TestComposeUpgrade starts the compose file's services as README.md says, and upgrades them as
// docs/upgrade.md says, on a real Docker engine, with requests through the one published port all
// the time. The engine has a network namespace of its own, so the test runs once more inside.
func TestComposeUpgrade(t *testing.T) {
	const inside = "PETGATE_TEST_ENGINE"
	if os.Getenv(inside) == "" {
		self := exec.Command("testdata/engine", t.TempDir(), os.Args[0], "-test.run=^TestComposeUpgrade$", "-test.v",
			"-test.timeout=15m")
		self.Env = append(os.Environ(), inside+"=yes")
		out, err := self.CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 3 {
			t.Skipf("no Docker engine can start here: %s", out)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
			if _, figure, found := strings.Cut(lines.Text(), "figure: "); found {
				t.Logf("figure: %s", figure)
			}
		}
		return
	}

	run := func(version, name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Dir = "../.."
		c.Env = append(os.Environ(), "COMMIT="+version)
		var errs bytes.Buffer
		c.Stderr = &errs
		out, err := c.Output()
		if err != nil {
			tail := exec.Command("docker", "compose", "--project-directory", "../..", "logs", "--tail=20")
			logs, _ := tail.CombinedOutput()
			t.Fatalf("%s %s: %v\n%s%s\n%s", name, args, err, out, &errs, logs)
		}
		return string(out)
	}
	containers := func() string {
		return run("", "docker", "compose", "--profile", "console", "ps", "--format", "{{.Service}} {{.ID}}",
			"--orphans=false")
	}
	page := must.Get[[]byte](t)(os.ReadFile("../../README.md"))
	block := regexp.MustCompile("run by TestComposeUpgrade -->\n```sh\n([^`]+)```").FindSubmatch(page)
	token := regexp.MustCompile(`ptg_live_\w+`).FindString(run("one", "sh", "-euc", string(block[1])))
	if token == "" {
		t.Fatal("keyadmin printed no key")
	}
	run("", "docker",
		append(strings.Fields("compose run --rm keyadmin tenant set-quota demo"), fleet.Unlimited[2:]...)...)
	run("one", "docker", "compose", "--profile", "console", "up", "--wait")
	before := containers()

	load := startTraffic(token, fleet.Client{Addr: "127.0.0.1:8080"})
	load.more(t, 250)
	began := time.Now()
	run("two", "deploy/docker/upgrade")
	took := time.Since(began)
	load.least(t, 10_000)
	load.end()
	load.faultless(t)

	for line := range strings.Lines(containers()) {
		service, _, _ := strings.Cut(line, " ")
		if kept := service == "postgres" || service == "redis" || service == "haproxy"; strings.Contains(
			before, line,
		) != kept {
			t.Errorf("%s is the same container: %v, want %v", service, !kept, kept)
		}
	}
	for _, service := range []string{"petsvc-1", "petsvc-2", "gateway-1", "gateway-2", "console"} {
		program, _, _ := strings.Cut(strings.Replace(service, "console", "gateway", 1), "-")
		if version := run("", "docker", "compose", "exec", "-T", service, program, "--version"); !strings.Contains(
			version, "two",
		) {
			t.Errorf("%s has the version %s", service, version)
		}
	}
	t.Logf(
		"figure: upgrade of the compose file's two pet services, two gateways and console on a Docker engine, under load through the one "+
			"port: %d of %d requests failed in %v, slowest %v",
		len(load.wrong),
		load.total(),
		took.Round(time.Second),
		load.slowest.Round(time.Millisecond),
	)
}
