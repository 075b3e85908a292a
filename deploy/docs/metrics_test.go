package docs

import (
	"fmt"
	"log/slog"
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
	"The admin ports serve these under `/metrics`, beside those of the Go runtime and of the process. No label names a tenant, a key, a\n" +
	"path or a client. A gateway's outcomes are the codes of [refusals](refusals.md), and `ok`; petsvc's those of its [errors](api.md).\n\n" +
	"| name, with its labels | what it is |\n|---|---|\n"

// exposed returns a registry with the metrics of all programs.
func exposed(t *testing.T) *describing {
	t.Helper()
	db := must.Get[*database.DB](t)(database.OpenOrCreate(testkit.SQLite(t)))
	defer db.Close()
	found, log := &describing{Registry: prometheus.NewRegistry(), labels: make(map[string][]string)}, slog.New(slog.DiscardHandler)
	if _, err := directory.Open(t.Context(), keystore.New(db, nil, nil, "test"), directory.Config{GatewayID: "test", Metrics: found}); err != nil {
		t.Fatal(err)
	}
	defer must.Get[quotas.Quotas](t)(quotas.Open(t.Context(), quotas.Config{Metrics: found, Log: log})).Close(t.Context())
	operations := api.Pets().Operations
	cfg := edge.Config{
		Environment: apikey.Live, Upstreams: []string{"http://127.0.0.1:1"}, UpstreamTimeout: time.Second, ReadTimeout: time.Second,
		BodyBytesMax: 1, BodiesBytesMax: 1, TenantConnsMax: 1, ConcurrencyMax: 1, ConnectionsMax: 1, BanRule: ban.Product,
	}
	must.Get[*edge.Edge](t)(edge.New(cfg, edge.Deps{Operations: operations, Log: log, Metrics: found}))
	server := pets.Open(t.Context(), db, pets.Config{Log: log, Metrics: found})
	must.Do(t, server.Shutdown(t.Context()))
	tracer, err := trace.Open(trace.Config{Settings: trace.Settings{Endpoint: "http://127.0.0.1:1"}, Metrics: found})
	must.Do(t, err)
	tracer.Close(trace.CloseMax)
	service.RegisterBuildInfo(found)
	service.NewCertificates(found, slog.New(slog.DiscardHandler))
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
