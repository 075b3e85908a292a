package docs

import (
	"fmt"
	"regexp"
	"slices"
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
	if len(all) < 30 {
		t.Fatalf("rules.yml has %d rules", len(all))
	}
	return all
}

// TestRules checks the names in each rule, and that each alert has a section on the page and a test that expects it. That the tests
// pass is tested beside the rules.
func TestRules(t *testing.T) {
	all := loadRules(t)
	known := existing(t, all)
	var file ruleTests
	must.Do(t, yaml.Unmarshal([]byte(read(t, "../prometheus/rules_test.yml")), &file))
	var given, expected string // the series of the healthy installation, and all samples
	for i, test := range file.Tests {
		for _, in := range test.Series {
			for _, what := range known.problems(in.Series) {
				t.Errorf("rules_test.yml: %s: %s", test.Name, what)
			}
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
	annotated := regexp.MustCompile(`\$labels\.(\w+)`)
	page, sections := read(t, "../../docs/alerts.md"), 0
	for _, r := range all {
		for _, match := range selectors.FindAllStringSubmatch(r.Expr, -1) {
			if name := match[1]; !strings.Contains(name, ":") && !strings.Contains("\n"+given, "\n"+name+"{") {
				t.Errorf("the healthy installation of rules_test.yml has no series %s", name)
			}
		}
		if r.Alert == "" {
			continue
		}
		sections++
		severity, anchor := r.Labels["severity"], strings.ToLower(r.Alert)
		if severity != "page" && severity != "ticket" || r.Annotations["summary"] == "" ||
			!strings.HasSuffix(r.Annotations["runbook"], "See docs/alerts.md#"+anchor) || !hasHeading(page, anchor) {
			t.Errorf("%s has no severity, no summary, or no runbook in docs/alerts.md: %s, %v", r.Alert, severity, r.Annotations)
		}
		if !strings.Contains(expected, `alertname="`+r.Alert+`"`) {
			t.Errorf("no test expects %s", r.Alert)
		}
		for _, text := range r.Annotations {
			for _, match := range annotated.FindAllStringSubmatch(text, -1) {
				if !slices.Contains(known.labelsOf(r.Expr), match[1]) {
					t.Errorf("rules.yml: %s names the label %s, which its series do not have", r.Alert, match[1])
				}
			}
		}
	}
	if n := strings.Count(page, "\n## "); n != sections {
		t.Errorf("docs/alerts.md has %d sections for %d alerts", n, sections)
	}
}

// TestObjectives compares the tables of docs/slo.md with the rules.
func TestObjectives(t *testing.T) {
	page := read(t, "../../docs/slo.md")
	burns := regexp.MustCompile(`job:(\w+):ratio_rate(\w+) > ([\d.]+) \* ([\d.]+) and job:(\w+):ratio_rate(\w+) > ([\d.]+) \* ([\d.]+)`)
	checked := 0
	for _, r := range loadRules(t) {
		for _, m := range burns.FindAllStringSubmatch(r.Expr, -1) {
			checked++
			factor, err1 := strconv.ParseFloat(m[3], 64)
			budget, err2 := strconv.ParseFloat(m[4], 64)
			if err1 != nil || err2 != nil || m[1] != m[5] || m[3] != m[7] || m[4] != m[8] {
				t.Errorf("%s compares different things: %s", r.Alert, m[0])
			}
			for _, text := range []string{
				fmt.Sprintf("| `%s` | %s and %s | %s | %.4g %% | %s |", r.Alert, m[2], m[6], m[3], 100*factor*budget, r.Labels["severity"]),
				fmt.Sprintf("**%.6g %%**", 100-100*budget),
			} {
				if !strings.Contains(page, text) {
					t.Errorf("docs/slo.md does not have %s", text)
				}
			}
		}
	}
	if checked != 8 {
		t.Errorf("%d pairs of windows, want 8", checked)
	}
}
