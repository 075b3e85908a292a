package docs

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"petgate/shared/testkit/must"
)

// dashboard has the parts of deploy/grafana/petgate.json that the test looks at.
type dashboard struct {
	Templating struct {
		List []struct {
			Name  string
			Query any
		}
	}
	Panels []struct {
		Type, Title, Description string
		Datasource               struct{ UID string }
		Targets                  []struct{ Expr, LegendFormat string }
	}
}

func TestDashboard(t *testing.T) {
	var d dashboard
	must.Do(t, json.Unmarshal([]byte(read(t, "../grafana/petgate.json")), &d))
	known := existing(t, loadRules(t))
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*")
	legend, values := regexp.MustCompile(`{{(\w+)}}`), regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for _, v := range d.Templating.List[1:] { // the first is the data source
		match := values.FindStringSubmatch(v.Query.(map[string]any)["query"].(string))
		if match == nil || len(known.problems(variables.Replace(match[1]))) > 0 || !slices.Contains(known.labelsOf(match[1]), match[2]) {
			t.Errorf("the variable %s has no series or no label: %v", v.Name, v.Query)
		}
	}
	if len(d.Panels) < 20 {
		t.Errorf("%d panels", len(d.Panels))
	}
	for _, p := range d.Panels {
		if p.Type != "row" && (p.Title == "" || p.Description == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0) {
			t.Errorf("%s has no title, no description, no queries or the data source %s", p.Title, p.Datasource.UID)
		}
		for _, target := range p.Targets {
			for _, what := range known.problems(variables.Replace(target.Expr)) {
				t.Errorf("%s: %s", p.Title, what)
			}
			for _, match := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.Contains(known.labelsOf(target.Expr), match[1]) {
					t.Errorf("%s: the legend names %s, which the result does not have", p.Title, match[1])
				}
			}
		}
	}
}
