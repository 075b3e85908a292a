package docs

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"petgate/shared/testkit/must"
)

// What the tests look at in an expression. That it is valid is tested by promtool, and that Prometheus evaluates it, in deploy/prometheus.
var (
	selectors = regexp.MustCompile(`\b(petgate_\w+|job:[\w:]+)\b(?:{([^}]*)})?`)
	matchers  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
	part      = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// series has the labels of every time series of the programs and of the rules. The values of a label are known if the programs fix them.
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

// check reports each name in a text that is not there: of a series, of a label, or of a label's value.
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
	if len(dashboard.Panels) < 20 {
		t.Errorf("%d panels", len(dashboard.Panels))
	}
	for _, p := range dashboard.Panels {
		if p.Type != "row" && (p.Title == "" || p.Description == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0) {
			t.Errorf("%s has no title, no description, no queries or the data source %s", p.Title, p.Datasource.UID)
		}
		for _, target := range p.Targets {
			known.check(t, p.Title, variables.Replace(target.Expr))
		}
	}
}
