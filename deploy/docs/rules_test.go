package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	yaml "github.com/oasdiff/yaml3"
)

// rules is the file of recording rules and alerts.
type rules struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
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
	var file rules
	if err := yaml.Unmarshal([]byte(read(t, "../prometheus/rules.yml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) < 30 {
		t.Fatalf("rules.yml has %d rules", len(all))
	}
	return all
}

// withRecorded adds the series that the recording rules make.
func (s series) withRecorded(t *testing.T, all []rule) series {
	t.Helper()
	for _, r := range all {
		result, wrong := s.check(r.Expr)
		for _, what := range wrong {
			t.Errorf("rules.yml: %s%s: %s", r.Record, r.Alert, what)
		}
		if r.Record != "" {
			s.labels[r.Record] = result
		}
		for _, text := range r.Annotations {
			for _, match := range annotated.FindAllStringSubmatch(text, -1) {
				if !slices.Contains(result, match[1]) {
					t.Errorf("rules.yml: %s names the label %s, which its series do not have", r.Alert, match[1])
				}
			}
		}
	}
	return s
}

var annotated = regexp.MustCompile(`\$labels\.(\w+)`)

func TestRules(t *testing.T) {
	all := loadRules(t)
	existing(t).withRecorded(t, all)
	page, sections := read(t, "../../docs/alerts.md"), 0
	for _, r := range all {
		if r.Alert == "" {
			continue
		}
		sections++
		if severity := r.Labels["severity"]; severity != "page" && severity != "ticket" {
			t.Errorf("%s has the severity %q", r.Alert, severity)
		}
		anchor := strings.ToLower(r.Alert)
		if r.Annotations["summary"] == "" || !strings.HasSuffix(r.Annotations["runbook"], "See docs/alerts.md#"+anchor) || !hasHeading(page, anchor) {
			t.Errorf("%s has no summary, or no runbook in docs/alerts.md: %v", r.Alert, r.Annotations)
		}
	}
	if n := strings.Count(page, "\n## "); n != sections {
		t.Errorf("docs/alerts.md has %d sections for %d alerts", n, sections)
	}
}

// TestRulesAreTested finds alerts that no test of rules_test.yml expects. That those tests pass is tested beside the rules.
func TestRulesAreTested(t *testing.T) {
	all := loadRules(t)
	known := existing(t).withRecorded(t, all)
	var file ruleTests
	if err := yaml.Unmarshal([]byte(read(t, "../prometheus/rules_test.yml")), &file); err != nil {
		t.Fatal(err)
	}
	expected := make(map[string]bool)
	alertname := regexp.MustCompile(`alertname="(\w+)"`)
	for _, test := range file.Tests {
		for _, in := range test.Series {
			q, err := readQuery(in.Series)
			if err != nil || len(q.selectors) != 1 {
				t.Errorf("%s: %s: %v", test.Name, in.Series, err)
				continue
			}
			for _, what := range known.checkSelector(q.selectors[0]) {
				t.Errorf("rules_test.yml: %s: %s", test.Name, what)
			}
		}
		for _, e := range test.Expect {
			for _, sample := range e.Samples {
				if match := alertname.FindStringSubmatch(sample.Labels); match != nil {
					expected[match[1]] = true
				}
			}
		}
	}
	healthy := file.Tests[0]
	for _, r := range all {
		if r.Alert != "" && !expected[r.Alert] {
			t.Errorf("no test expects %s", r.Alert)
		}
		q, err := readQuery(r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, sel := range q.selectors {
			isGiven := func(in struct{ Series string }) bool { return strings.HasPrefix(in.Series, sel.name+"{") }
			if !strings.Contains(sel.name, ":") && !slices.ContainsFunc(healthy.Series, isGiven) {
				t.Errorf("the healthy installation of rules_test.yml has no series %s", sel.name)
			}
		}
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
			row := fmt.Sprintf("| `%s` | %s and %s | %s | %.4g %% | %s |", r.Alert, m[2], m[6], m[3], 100*factor*budget, r.Labels["severity"])
			if !strings.Contains(page, row) {
				t.Errorf("docs/slo.md does not have the row\n%s", row)
			}
			if objective := fmt.Sprintf("**%.6g %%**", 100-100*budget); !strings.Contains(page, objective) {
				t.Errorf("docs/slo.md does not have the objective %s", objective)
			}
		}
	}
	if checked != 8 {
		t.Errorf("%d pairs of windows, want 8", checked)
	}
}
