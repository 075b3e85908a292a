// Package docs checks and writes the documents that describe several programs.
package docs

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"petgate/gateway/directory"
	"petgate/gateway/edge"
	"petgate/gateway/quotas"
	"petgate/petsvc/pets"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
	"petgate/shared/trace"
)

const metricsHead = "# Metrics\n\n" + generated +
	"The admin ports serve these under `/metrics`, with the metrics of the Go runtime and of the process. No label\n" +
	"names a tenant, a key, a path or a client. The outcomes of a gateway are `ok` and the codes of\n" +
	"[refusals](refusals.md). Those of petsvc are `ok`, `created`, `replayed` and the codes of its\n" +
	"[errors](api.md#errors).\n\n" +
	"| name, with its labels | what it is |\n|---|---|\n"

// exposed returns a registry with the metrics of all programs.
func exposed(t *testing.T) *describing {
	t.Helper()
	db := must.Get[*database.DB](t)(database.OpenOrCreate(testkit.SQLite(t)))
	defer db.Close()
	log := slog.New(slog.DiscardHandler)
	found := &describing{Registry: prometheus.NewRegistry(), labels: make(map[string][]string)}
	store := keystore.New(db, nil, nil, "test")
	_, err := directory.Open(t.Context(), store, directory.Config{GatewayID: "test", Metrics: found})
	must.Do(t, err)
	limits := must.Get[quotas.Quotas](t)(quotas.Open(t.Context(), quotas.Config{Metrics: found, Log: log}))
	defer limits.Close(t.Context())
	cfg := edge.Config{
		Environment:            apikey.Live,
		Upstreams:              []string{"http://127.0.0.1:1"},
		UpstreamTimeout:        time.Second,
		ReadTimeout:            time.Second,
		BodyBytesMax:           1,
		BodiesBytesMax:         1,
		UpstreamConnsPerTenant: 1,
		ConcurrencyMax:         1,
		ConnectionsMax:         1,
		BanRule:                ban.Product,
	}
	deps := edge.Deps{Operations: api.Pets().Operations, Log: log, Metrics: found}
	must.Get[*edge.Edge](t)(edge.New(cfg, deps))
	server := pets.Open(t.Context(), db, pets.Config{Log: log, Metrics: found})
	must.Do(t, server.Shutdown(t.Context()))
	tracer, err := trace.Open(trace.Config{Settings: trace.Settings{Endpoint: "http://127.0.0.1:1"}, Metrics: found})
	must.Do(t, err)
	tracer.Close(trace.CloseMax)
	service.RegisterBuildInfo(found)
	service.NewCertificates(found, log)
	return found
}

func TestMetrics(t *testing.T) {
	found := exposed(t)
	problems, err := testutil.GatherAndLint(found)
	must.Do(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	slices.Sort(found.lines)
	want(t, "../../docs/metrics.md", metricsHead+strings.Join(found.lines, ""))
}

// describing is a registry that also keeps a line of the page for each metric.
type describing struct {
	*prometheus.Registry
	lines  []string
	labels map[string][]string // by metric
}

func (d *describing) Register(c prometheus.Collector) error {
	found := make(chan *prometheus.Desc, 8)
	c.Describe(found)
	close(found)
	for desc := range found {
		_, rest, _ := strings.Cut(desc.String(), `fqName: "`)
		name, rest, _ := strings.Cut(rest, `", help: "`)
		help, rest, _ := strings.Cut(rest, `", `)
		_, labels, _ := strings.Cut(rest, "variableLabels: {")
		labels, _, _ = strings.Cut(labels, "}")
		d.labels[name] = strings.FieldsFunc(labels, func(r rune) bool { return r == ',' })
		if labels != "" {
			labels = "{" + labels + "}"
		}
		d.lines = append(d.lines, fmt.Sprintf("| `%s%s` | %s |\n", name, labels, help))
	}
	return d.Registry.Register(c)
}

func (d *describing) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := d.Register(c); err != nil {
			panic(err)
		}
	}
}

// What the tests look at in an expression. That it is valid is tested by promtool, and that
// Prometheus evaluates it, in deploy/prometheus.
var (
	selectors = regexp.MustCompile(`\b(petgate_\w+|job:[\w:]+)\b(?:{([^}]*)})?`)
	matchers  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
	part      = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// series has the labels of every time series of the programs and of the rules. The values of a
// label are known if the programs fix them.
type series map[string]map[string][]string

// existing returns the series that Prometheus has from the programs, and those of the rules.
func existing(t *testing.T, all []rule) series {
	t.Helper()
	found, s := exposed(t), make(series)
	add := func(name string, labels ...string) {
		s[name] = map[string][]string{"job": nil, "instance": nil, "le": nil}
		for _, label := range labels {
			s[name][label] = nil
		}
	}
	for name, labels := range found.labels {
		add(name, labels...)
	}
	families, err := found.Gather()
	must.Do(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				if labels, name := s[family.GetName()], pair.GetName(); name != "upstream" && labels != nil {
					labels[name] = append(labels[name], pair.GetValue())
				}
			}
		}
	}
	for _, r := range all {
		if r.Record != "" {
			add(r.Record)
		}
	}
	return s
}

// check reports each name in a text that is not there: of a series, of a label, or of a label's
// value.
func (s series) check(t *testing.T, where, text string) {
	t.Helper()
	for _, match := range selectors.FindAllStringSubmatch(text, -1) {
		labels := s[match[1]]
		if labels == nil {
			labels = s[part.ReplaceAllString(match[1], "")]
		}
		if labels == nil {
			t.Errorf("%s: there is no series %s", where, match[1])
		}
		for _, m := range matchers.FindAllStringSubmatch(match[2], -1) {
			values, isThere := labels[m[1]]
			if !isThere {
				t.Errorf("%s: %s has no label %s", where, match[1], m[1])
			}
			for value := range strings.SplitSeq(m[2], "|") {
				if values != nil && !slices.ContainsFunc(values, regexp.MustCompile("^(?:"+value+")$").MatchString) {
					t.Errorf("%s: %s is never %q in %s", where, m[1], value, match[1])
				}
			}
		}
	}
}

func TestDashboard(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Type, Title, Description string
			Datasource               struct{ UID string }
			Targets                  []struct{ Expr string }
		}
	}
	must.Do(t, json.Unmarshal([]byte(read(t, "../grafana/petgate.json")), &dashboard))
	known, variables := existing(t, loadRules(t)), strings.NewReplacer("$job", ".*", "$instance", ".*")
	atLeast(t, len(dashboard.Panels), 20, "panels")
	for _, p := range dashboard.Panels {
		isComplete := p.Title != "" && p.Description != "" && len(p.Targets) > 0
		if p.Type != "row" && (!isComplete || p.Datasource.UID != "${datasource}") {
			t.Errorf("%s has no title, no description, no queries or the data source %s", p.Title, p.Datasource.UID)
		}
		for _, target := range p.Targets {
			known.check(t, p.Title, variables.Replace(target.Expr))
		}
	}
}

var update = flag.Bool("update", false, "write docs/config.md and docs/metrics.md from the programs")

const generated = "<!-- Written by `go test ./deploy/docs -update`. -->\n\n"

// configPage has the help of the gateway, the flags that petsvc shares with it, petsvc's other help
// and that of keyadmin.
var configPage = "# Settings\n\n" + generated + strings.ReplaceAll(`
A flag takes precedence over its environment variable, and the variable over the default. An invalid value ends a
program with exit code 2. Secrets have no flag, because "ps" shows flags to all users of a host.

## gateway

"""
%s
"""

## petsvc

These flags are the same as those of the gateway, with "PETSVC_" in place of "GATEWAY_": %s.

"""
%s
"""

## keyadmin

"keyadmin COMMAND --help" has the flags. With TLS on [admin ports](operations.md#the-admin-port), set
"KEYADMIN_ADMIN_CA", "KEYADMIN_ADMIN_CERT" and "KEYADMIN_ADMIN_KEY".

"""
Secrets%s
"""
`[1:], `"`, "`")

func TestConfig(t *testing.T) {
	help := make(map[string]string)
	for _, program := range []string{"gateway", "petsvc", "keyadmin"} {
		path := testkit.Build(t, "petgate/"+program)
		p := testkit.Start(t, path, nil, "--help")
		must.Equal(t, p.ExitCode(t), 0, "%s --help: exit code", program)
		// keyadmin names itself as it was called.
		help[program] = strings.ReplaceAll(strings.TrimSpace(p.Stdout.String()), path, program)
	}
	petsvc, same := withoutFlags(help["petsvc"], func(f string) bool {
		return strings.Contains(unfolded(help["gateway"]), unfolded(strings.ReplaceAll(f, "PETSVC_", "GATEWAY_")))
	})
	_, keyadmin, _ := strings.Cut(help["keyadmin"], "\n\nSecrets") // its help has the rest
	page := fmt.Sprintf(configPage, help["gateway"], strings.Join(same, ", "), petsvc, keyadmin)
	want(t, "../../docs/config.md", page)
}

var (
	flagHelp = regexp.MustCompile(`(?m)^ +(?:-\w, +)?--(\S+).*\n(?:  +[^ -].*\n)*`)
	flagName = regexp.MustCompile(`[\w-]+`)
)

// withoutFlags removes the flags for which drop is true from a help text, and returns their names.
func withoutFlags(help string, drop func(flag string) bool) (rest string, names []string) {
	rest = flagHelp.ReplaceAllStringFunc(help, func(f string) string {
		if !drop(f) {
			return f
		}
		name := strings.TrimPrefix(flagHelp.FindStringSubmatch(f)[1], "[no-]")
		names = append(names, "`--"+flagName.FindString(name)+"`")
		return ""
	})
	return rest, names
}

// unfolded returns a text without its line breaks.
func unfolded(text string) string { return strings.Join(strings.Fields(text), " ") }

// want compares a document with its expected content, or writes it.
func want(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	}
	if read(t, path) != text {
		t.Errorf("%s is not what the programs say: run go test ./deploy/docs -update", path)
	}
}
