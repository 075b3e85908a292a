package docs

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboard has the parts of deploy/grafana/petgate.json that the test looks at.
type dashboard struct {
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		Datasource               struct{ Type, UID string }
		GridPos                  struct{ H, W, X, Y int }
		Targets                  []struct{ Expr, LegendFormat string }
	}
}

// panelTypes are Grafana's own types of panels that the dashboard uses. Older ones, such as graph and singlestat, need plugins that
// current versions do not have.
var panelTypes = []string{"row", "stat", "timeseries"}

func TestDashboard(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "../grafana/petgate.json")), &d); err != nil {
		t.Fatal(err)
	}
	known := existing(t).withRecorded(t, loadRules(t))
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*")
	legend, values := regexp.MustCompile(`{{(\w+)}}`), regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	if d.SchemaVersion < 42 || len(d.Panels) < 20 || d.Templating.List[0].Type != "datasource" || d.Templating.List[0].Name != "datasource" {
		t.Errorf("schema %d, %d panels, first variable %+v", d.SchemaVersion, len(d.Panels), d.Templating.List[0])
	}
	for _, v := range d.Templating.List[1:] {
		match := values.FindStringSubmatch(v.Query.(map[string]any)["query"].(string))
		if match == nil {
			t.Errorf("the variable %s is not read: %v", v.Name, v.Query)
			continue
		}
		if labels, wrong := known.check(variables.Replace(match[1])); len(wrong) > 0 || !slices.Contains(labels, match[2]) {
			t.Errorf("the variable %s: %v, and labels %v", v.Name, wrong, labels)
		}
	}
	taken := make(map[[2]int]string)
	for i, p := range d.Panels {
		if p.ID != i+1 || p.Title == "" || !slices.Contains(panelTypes, p.Type) {
			t.Errorf("panel %d has the ID %d, the title %q and the type %q", i+1, p.ID, p.Title, p.Type)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s covers %s, or is too wide", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s has no description, no queries or the data source %s", p.Title, p.Datasource.UID)
		}
		for _, target := range p.Targets {
			labels, wrong := known.check(variables.Replace(target.Expr))
			for _, what := range wrong {
				t.Errorf("%s: %s", p.Title, what)
			}
			for _, match := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.Contains(labels, match[1]) {
					t.Errorf("%s: the legend names %s, and the result has %v", p.Title, match[1], labels)
				}
			}
		}
	}
}
