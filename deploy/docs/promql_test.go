package docs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/collectors"
)

// query is what the tests have to know of an expression in PromQL. Not by Prometheus's own parser: its module needs hundreds of others.
// That each expression is valid is tested by promtool, in deploy/prometheus.
type query struct {
	selectors []selector
	groupings [][]string // of each aggregation; empty without "by"
	calls     []string   // functions and aggregations
}

type selector struct {
	name     string
	within   string // the function around it, such as rate; else empty
	matchers []matcher
}

type matcher struct{ label, value string }

var (
	promToken = regexp.MustCompile(`"[^"]*"|[a-zA-Z_:][\w:]*|[\d.]+[a-z]*|[=!]~|[=!<>]=|[^\s\w]`)
	promName  = regexp.MustCompile(`^[a-zA-Z_:]`)
	operators = []string{"and", "or", "unless", "bool", "offset"}
	aggregate = []string{"sum", "min", "max", "avg", "count", "topk"}
)

// readQuery reads an expression. Labels may be listed by "by" only, and before the aggregated expression.
func readQuery(text string) (q query, err error) {
	tokens := append(promToken.FindAllString(text, -1), "", "")
	var around []string // the calls whose parentheses are open
	call := ""
	list := func(i int, end string) (between []string, after int) {
		for ; tokens[i] != end && tokens[i] != ""; i++ {
			between = append(between, tokens[i])
		}
		return between, i
	}
	for i := 0; i < len(tokens)-2; i++ {
		token, next := tokens[i], tokens[i+1]
		switch {
		case token == "(":
			around, call = append(around, call), ""
		case token == ")":
			if len(around) == 0 {
				return q, fmt.Errorf("a parenthesis too many in %s", text)
			}
			around = around[:len(around)-1]
		case token == "[":
			_, i = list(i, "]")
		case slices.Contains(aggregate, token) && next == "by":
			var labels []string
			labels, i = list(i+3, ")")
			q.groupings = append(q.groupings, slices.DeleteFunc(labels, func(s string) bool { return s == "," }))
			q.calls, call = append(q.calls, token), token
		case promName.MatchString(token) && next == "(":
			if slices.Contains(aggregate, token) {
				q.groupings = append(q.groupings, nil)
			}
			q.calls, call = append(q.calls, token), token
		case promName.MatchString(token) && !slices.Contains(operators, token):
			s := selector{name: token}
			if len(around) > 0 {
				s.within = around[len(around)-1]
			}
			if next == "{" {
				var inside []string
				inside, i = list(i+2, "}")
				for at := 0; at+2 < len(inside); at += 4 { // label, operator, value, comma
					s.matchers = append(s.matchers, matcher{inside[at], strings.Trim(inside[at+2], `"`)})
				}
			}
			q.selectors = append(q.selectors, s)
		}
	}
	if len(around) > 0 || len(q.selectors) == 0 {
		return q, fmt.Errorf("a parenthesis that is not closed, or no series, in %s", text)
	}
	return q, nil
}

func TestReadQuery(t *testing.T) {
	got, err := readQuery(`histogram_quantile(0.99, sum by (le, job) (rate(a_bucket{x="1",y=~"b|c (d)"}[5m]))) > 3 * (m:n:o offset 5m) or vector(0) + time() - max(p)`)
	want := query{
		selectors: []selector{{"a_bucket", "rate", []matcher{{"x", "1"}, {"y", "b|c (d)"}}}, {"m:n:o", "", nil}, {"p", "max", nil}},
		groupings: [][]string{{"le", "job"}, nil},
		calls:     []string{"histogram_quantile", "sum", "rate", "vector", "time", "max"},
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) || err != nil {
		t.Errorf("%v\n%+v, want\n%+v", err, got, want)
	}
	for _, text := range []string{"rate(a[5m]", "a)", "3 * (2)"} {
		if _, err := readQuery(text); err == nil {
			t.Errorf("%s is read without an error", text)
		}
	}
}

// series says which time series exist.
type series struct {
	labels map[string][]string        // by name of the series
	values map[string]map[string]bool // by name and label, joined by a space
}

var (
	scraped = []string{"job", "instance"} // the labels that Prometheus adds
	open    = []string{"upstream", "le"}  // labels whose values the programs do not fix
	counter = regexp.MustCompile(`_(total|bucket|sum|count)$`)
)

// found is what existing has found.
var found struct {
	sync.Once
	series
}

// existing returns the series that Prometheus has from the programs, and those that it makes itself. It assembles the programs once.
func existing(t *testing.T) series {
	t.Helper()
	found.Do(func() { found.series = findSeries(t) })
	return found.series
}

func findSeries(t *testing.T) series {
	t.Helper()
	found := exposed(t)
	found.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	all := series{labels: make(map[string][]string), values: make(map[string]map[string]bool)}
	addParts := func(name string) {
		for _, part := range []string{"_sum", "_count", "_bucket"} {
			all.labels[name+part] = append([]string{"le"}, all.labels[name]...)
		}
	}
	for name, labels := range found.labels {
		all.labels[name] = append(slices.Clone(scraped), labels...)
		if strings.HasSuffix(name, "_request_seconds") { // a histogram, which may have no series yet
			addParts(name)
		}
	}
	families, err := found.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		name := family.GetName()
		if _, ok := all.labels[name]; !ok {
			all.labels[name] = scraped // the collector of the Go runtime describes only some of its metrics
		}
		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				at := name + " " + pair.GetName()
				if all.values[at] == nil {
					all.values[at] = make(map[string]bool)
				}
				all.values[at][pair.GetValue()] = true
			}
			if metric.GetHistogram() != nil {
				addParts(name)
			}
		}
	}
	all.labels["up"] = scraped
	all.labels["ALERTS"] = append([]string{"alertname", "alertstate", "severity"}, scraped...)
	return all
}

// check returns what is wrong with the names in an expression, and the labels of its result.
func (s series) check(text string) (result, wrong []string) {
	q, err := readQuery(text)
	if err != nil {
		return nil, []string{err.Error()}
	}
	var available []string // in any of the series
	for i, sel := range q.selectors {
		wrong = append(wrong, s.checkSelector(sel)...)
		if (sel.within == "rate" || sel.within == "increase") && !counter.MatchString(sel.name) {
			wrong = append(wrong, fmt.Sprintf("%s of %s, which is not a counter", sel.within, sel.name))
		}
		available = append(available, s.labels[sel.name]...)
		result = both(result, s.labels[sel.name], i == 0)
	}
	for i, grouping := range q.groupings {
		for _, label := range grouping {
			if !slices.Contains(available, label) {
				wrong = append(wrong, fmt.Sprintf("there is no label %s in %s", label, text))
			}
		}
		result = both(result, grouping, i == 0)
	}
	if slices.Contains(q.calls, "histogram_quantile") {
		result = slices.DeleteFunc(slices.Clone(result), func(label string) bool { return label == "le" })
	}
	return result, wrong
}

// both returns the labels that are in a and in b, or b if it is the first list.
func both(a, b []string, first bool) []string {
	if first {
		return b
	}
	return slices.DeleteFunc(slices.Clone(a), func(label string) bool { return !slices.Contains(b, label) })
}

func (s series) checkSelector(sel selector) (wrong []string) {
	known, ok := s.labels[sel.name]
	if !ok {
		return []string{"there is no series " + sel.name}
	}
	for _, m := range sel.matchers {
		if !slices.Contains(known, m.label) {
			wrong = append(wrong, fmt.Sprintf("%s has no label %s", sel.name, m.label))
		}
		values := s.values[sel.name+" "+m.label]
		if values == nil || slices.Contains(open, m.label) {
			continue
		}
		for value := range strings.SplitSeq(m.value, "|") {
			matches := regexp.MustCompile("^(?:" + value + ")$").MatchString
			if !slices.ContainsFunc(slices.Collect(maps.Keys(values)), matches) {
				wrong = append(wrong, fmt.Sprintf("%s is never %q in %s", m.label, value, sel.name))
			}
		}
	}
	return wrong
}
