package edge

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

var update = flag.Bool("update", false, "write docs/refusals.md and docs/metrics.md from the code")

const generated = "<!-- Written by `go test ./gateway/edge -run TestDocs -update`. -->\n"

// The documentation is what the code says.
func TestDocs(t *testing.T) {
	f := func(path, text string) {
		t.Helper()
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s is not what the code says (%v): run go test ./gateway/edge -run TestDocs -update", path, err)
		}
	}
	f("../../docs/refusals.md", refusalsDoc())
	f("../../docs/metrics.md", metricsDoc())
}

func refusalsDoc() string {
	var b strings.Builder
	b.WriteString("# Refusals\n\n" + generated + `
Whatever the gateway refuses is answered with an Error body: ` + "`code`, `message`, `status`" + `, and ` + "`details`" + ` on a 429. The
message may say more than the one here, such as why a key is not valid. The code is also the label of metrics and the outcome
in the access log. Refusals by accept end the connection. What is refused before a request was taken from the quota is not
charged.

| stage | code | status | charged | message |
|---|---|---|---|---|
`)
	for r := none + 1; r < reasons; r++ {
		row := r.row()
		charged := "no"
		if row.stage == "route" || row.stage == "forward" {
			charged = "yes"
		}
		if r == internal {
			charged = "as far as it came"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %d | %s | %s |\n", row.stage, row.code, row.status, charged, row.message)
	}
	return b.String()
}

func metricsDoc() string {
	registry := &describing{}
	newMetrics(registry, &Edge{})
	slices.Sort(registry.lines)
	return "# Metrics\n\n" + generated + `
The admin port serves these under ` + "`/metrics`" + ` in the format of Prometheus. No label names a tenant, a key, a path or an address.
Outcomes are the codes of [refusals](refusals.md), and ` + "`ok`" + `.

| name | labels | what it is |
|---|---|---|
` + strings.Join(registry.lines, "")
}

// describing is a registry that keeps descriptions only.
type describing struct{ lines []string }

func (d *describing) Register(c prometheus.Collector) error {
	found := make(chan *prometheus.Desc, 8)
	c.Describe(found)
	close(found)
	for desc := range found {
		var name, help, labels string
		text := []byte(desc.String())
		_, text, _ = bytes.Cut(text, []byte(`fqName: "`))
		name, rest, _ := strings.Cut(string(text), `", help: "`)
		help, rest, _ = strings.Cut(rest, `", `)
		_, labels, _ = strings.Cut(rest, "variableLabels: {")
		labels, _, _ = strings.Cut(labels, "}")
		d.lines = append(d.lines, fmt.Sprintf("| `%s` | %s | %s |\n", name, labels, help))
	}
	return nil
}

func (d *describing) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = d.Register(c)
	}
}

func (d *describing) Unregister(prometheus.Collector) bool { return false }
