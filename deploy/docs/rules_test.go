package docs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"petgate/shared/testkit/must"
)

type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

// ruleTests is the file of promtool's tests.
type ruleTests struct {
	Tests []struct {
		Name   string
		Series []struct{ Series string } `yaml:"input_series"`
		Expect []struct {
			Samples []struct{ Labels string } `yaml:"exp_samples"`
		} `yaml:"promql_expr_test"`
	}
}

func loadRules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	must.Do(t, yaml.Unmarshal([]byte(read(t, "../prometheus/rules.yml")), &file))
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	atLeast(t, len(all), 30, "rules")
	return all
}

// TestRules checks the names in each rule, and that each alert says what to do, is on the page, and
// has a test that expects it. That the tests pass is tested beside the rules.
func TestRules(t *testing.T) {
	all := loadRules(t)
	known := existing(t, all)
	var file ruleTests
	must.Do(t, yaml.Unmarshal([]byte(read(t, "../prometheus/rules_test.yml")), &file))
	var given, expected string // the series of the healthy installation, and all samples
	for i, test := range file.Tests {
		for _, in := range test.Series {
			known.check(t, "rules_test.yml: "+test.Name, in.Series)
			if i == 0 {
				given += in.Series + "\n"
			}
		}
		for _, e := range test.Expect {
			for _, sample := range e.Samples {
				expected += sample.Labels
			}
		}
	}
	page, alerts := read(t, "../../docs/alerts.md"), 0
	for _, r := range all {
		known.check(t, r.Record+r.Alert, r.Expr)
		for _, match := range selectors.FindAllStringSubmatch(r.Expr, -1) {
			if name := match[1]; !strings.Contains(name, ":") && !strings.Contains("\n"+given, "\n"+name+"{") {
				t.Errorf("the healthy installation of rules_test.yml has no series %s", name)
			}
		}
		if r.Alert == "" {
			continue
		}
		alerts++
		if r.Annotations["summary"] == "" || r.Annotations["runbook"] == "" {
			t.Errorf("%s has no summary or no runbook: %v", r.Alert, r.Annotations)
		}
		row := regexp.MustCompile("(?m)^\\| `" + r.Labels["severity"] + "`: .*`" + r.Alert + "`")
		if !row.MatchString(page) {
			t.Errorf("docs/alerts.md does not have %s with severity %q", r.Alert, r.Labels["severity"])
		}
		if !strings.Contains(expected, `alertname="`+r.Alert+`"`) {
			t.Errorf("no test expects %s", r.Alert)
		}
	}
	_, list, _ := strings.Cut(page, "\n## Alerts\n")
	must.Equal(t, strings.Count(list, "`Petgate"), alerts, "alerts in docs/alerts.md")
}

// TestObjectives compares the tables of docs/alerts.md with the rules.
func TestObjectives(t *testing.T) {
	page := read(t, "../../docs/alerts.md")
	const one = `job:(\w+):ratio_rate(\w+) > ([\d.]+) \* ([\d.]+)`
	burns, checked := regexp.MustCompile(one+" and "+one), 0
	columns := map[string]string{"petgate_failed": `%.4g %% \| \S+ %%`, "petgate_alone": `\S+ %% \| %.4g %%`}
	for _, r := range loadRules(t) {
		for _, m := range burns.FindAllStringSubmatch(r.Expr, -1) {
			checked++
			factor := must.Get[float64](t)(strconv.ParseFloat(m[3], 64))
			budget := must.Get[float64](t)(strconv.ParseFloat(m[4], 64))
			if m[1] != m[5] || m[3] != m[7] || m[4] != m[8] {
				t.Errorf("%s compares different things: %s", r.Alert, m[0])
			}
			limits := fmt.Sprintf(columns[m[1]], 100*factor*budget)
			for _, text := range []string{
				fmt.Sprintf(`\| %s and %s \| %s \| %s \| %s \|`, m[2], m[6], m[3], limits, r.Labels["severity"]),
				fmt.Sprintf(`\*\*%.6g %%\*\*`, 100-100*budget),
			} {
				if !regexp.MustCompile(text).MatchString(page) {
					t.Errorf("docs/alerts.md does not have %s", text)
				}
			}
		}
	}
	must.Equal(t, checked, 8, "pairs of windows")
}
