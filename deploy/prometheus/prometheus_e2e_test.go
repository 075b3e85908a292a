//go:build e2e

// Package prometheus_test runs Prometheus and promtool on the files of this directory and of
// deploy/grafana.
package prometheus_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// promtool runs promtool with standard input, and returns what it says. It must say so with exit
// code 0.
func promtool(t *testing.T, stdin []byte, args ...string) string {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestFiles(t *testing.T) {
	promtool(t, nil, "check", "config", "prometheus.yml")
	promtool(t, nil, "check", "rules", "rules.yml")
	promtool(t, nil, "test", "rules", "rules_test.yml")
}

func read(t *testing.T, path string) string {
	t.Helper()
	return string(must.Get[[]byte](t)(os.ReadFile(path)))
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	response := must.Get[*http.Response](t)(http.Get(url))
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v %s", url, response.Status, err, body)
	}
	return body
}

// server is a running Prometheus.
type server struct {
	*testkit.Process
	url string
}

// start starts Prometheus with the configuration of this directory. Only targets and intervals are
// changed.
func start(t *testing.T, f *fleet.Fleet) server {
	t.Helper()
	dir, port := t.TempDir(), strconv.Itoa(testkit.FreePort(t))
	host := func(p *fleet.Program) string { return strings.TrimPrefix(p.Admin, "http://") }
	config := read(t, "prometheus.yml")
	for was, is := range map[string]string{
		"gateway-1:9090": host(f.Gateways[0]), "gateway-2:9090": host(f.Gateways[1]),
		`"petsvc-1:9091", "petsvc-2:9091"`: `"` + host(f.Pets) + `"`, ": 15s": ": 1s",
	} {
		if !strings.Contains(config, was) {
			t.Fatalf("prometheus.yml does not have %s", was)
		}
		config = strings.ReplaceAll(config, was, is)
	}
	oftener := strings.NewReplacer(
		"interval: 15s", "interval: 1s",
		"interval: 30s", "interval: 1s",
		"interval: 1m", "interval: 1s",
	)
	rules := oftener.Replace(read(t, "rules.yml"))
	for name, text := range map[string]string{"prometheus.yml": config, "rules.yml": rules} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	p := testkit.Start(t, "prometheus", nil, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:"+port, "--log.level=warn")
	return server{p, "http://127.0.0.1:" + port}
}

// query returns the values of an expression, or nothing while Prometheus does not answer.
func (s server) query(t *testing.T, expr string) (values []string, ok bool) {
	t.Helper()
	response, err := http.Get(s.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, false
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, false
	}
	if answer.Error != "" {
		t.Fatalf("%s: %s", expr, answer.Error)
	}
	for _, r := range answer.Data.Result {
		values = append(values, r.Value[1].(string))
	}
	return values, answer.Status == "success"
}

func (s server) await(t *testing.T, expr, want string) {
	t.Helper()
	testkit.Eventually(t, fleet.ReplyWithin, expr+" is "+want, func() bool {
		got, ok := s.query(t, expr)
		return ok && strings.Join(got, " ") == want
	})
}

// TestScrape lets Prometheus read two gateways and a pet service, and evaluate all rules and all
// expressions of the dashboard.
func TestScrape(t *testing.T) {
	redis := testkit.StartRedis(t)
	f := fleet.Start(t, fleet.Spec{Gateways: 2, Redis: redis.URL})
	key := f.NewTenant("acme", fleet.Unlimited...)
	for _, g := range f.Gateways {
		g.Want(t, key.Token, 200, "")
	}
	for _, p := range append([]*fleet.Program{f.Pets}, f.Gateways...) {
		if out := promtool(t, get(t, p.Admin+"/metrics"), "check", "metrics"); out != "" {
			t.Errorf("promtool check metrics says of %s:\n%s", p.Admin, out)
		}
	}
	s := start(t, f)
	s.await(t, "count(up == 1)", "3")
	s.await(t, "sum(petgate_gateway_requests_total{outcome=\"ok\"})", "2")
	s.await(t, "job:petgate_gateways_unconfirmed:count", "0")

	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	testkit.Eventually(t, fleet.ReplyWithin, "all rules are evaluated", func() bool {
		must.Do(t, json.Unmarshal(get(t, s.url+"/api/v1/rules"), &rules))
		healthy := len(rules.Data.Groups) > 0
		for _, group := range rules.Data.Groups {
			for _, r := range group.Rules {
				healthy = healthy && r.Health == "ok"
				if r.LastError != "" {
					t.Fatalf("%s: %s", r.Name, r.LastError)
				}
			}
		}
		return healthy
	})
	expressions := s.dashboard(t)
	if said := s.Stdout.String() + s.Stderr.String(); said != "" {
		t.Errorf("Prometheus warns:\n%s", said)
	}

	// Two real faults: without Redis, and without one of the gateways.
	redis.Kill(t)
	testkit.Eventually(t, fleet.ReplyWithin, "the page about decisions without Redis", func() bool {
		f.Gateways[0].MustAsk(t, key.Token)
		firing, ok := s.query(t, `ALERTS{alertname="PetgateAloneFast", severity="page", alertstate="firing"}`)
		return ok && len(firing) == 1
	})
	s.await(t, `count(ALERTS{alertname="PetgateRedisAway"}) > bool 0`, "1")
	f.Gateways[1].Kill()
	s.await(t, "job:petgate_gateways_unconfirmed:count", "1")
	s.await(t, `count by (alertname) (ALERTS{alertname=~"PetgateDown|PetgateGatewaysUnconfirmed"})`, "1 1")
	t.Logf(
		"figure: Prometheus evaluates %d groups of rules and %d expressions of the dashboard "+
			"on two gateways and a pet service, without a warning",
		len(rules.Data.Groups),
		expressions,
	)
}

// dashboard evaluates each expression of the dashboard, and returns how many there are.
func (s server) dashboard(t *testing.T) (n int) {
	t.Helper()
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	must.Do(t, json.Unmarshal([]byte(read(t, "../grafana/petgate.json")), &dashboard))
	variables := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			n++
			if _, ok := s.query(t, variables.Replace(target.Expr)); !ok {
				t.Errorf("Prometheus does not answer %s", target.Expr)
			}
		}
	}
	return n
}
