package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/collectors"

	"petgate/shared/testkit/must"
)

// What the tests look at in an expression. Not by Prometheus's own parser: its module needs hundreds of others. That the
// expressions are valid is tested by promtool, in deploy/prometheus.
var (
	selectors  = regexp.MustCompile(`\b(petgate_\w+|job:[\w:]+|process_\w+|up|ALERTS)\b(?:{([^}]*)})?`)
	matchers   = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
	rates      = regexp.MustCompile(`\b(?:rate|increase)\((\w+)`)
	counter    = regexp.MustCompile(`_(total|bucket|sum|count)$`)
	groupings  = regexp.MustCompile(`\bby \(([^)]*)\)`)
	aggregates = regexp.MustCompile(`\b(?:sum|min|max|avg|count)\(`)
)

// series has the labels of every time series, and the values of each label; nil if the programs do not fix them.
type series map[string]map[string][]string

// existing returns the series that Prometheus has from the programs, those that it makes itself, and those of the rules.
func existing(t *testing.T, all []rule) series {
	t.Helper()
	found := exposed(t)
	found.Registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s := make(series)
	for name, labels := range found.labels {
		s.add(name, labels...)
		for _, part := range []string{"_sum", "_count", "_bucket"} { // of a histogram, which may have no series yet
			s.add(name+part, append(labels, "le")...)
		}
	}
	families, err := found.Gather()
	must.Do(t, err)
	for _, family := range families {
		if name := family.GetName(); s[name] == nil {
			s.add(name)
		}
		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				if label := pair.GetName(); label != "upstream" {
					values := s[family.GetName()]
					values[label] = append(values[label], pair.GetValue())
				}
			}
		}
	}
	s.add("up")
	s.add("ALERTS", "alertname", "alertstate", "severity")
	for _, r := range all {
		for _, what := range s.problems(r.Expr) {
			t.Errorf("rules.yml: %s%s: %s", r.Record, r.Alert, what)
		}
		if r.Record != "" {
			s.add(r.Record, s.labelsOf(r.Expr)...)
		}
	}
	return s
}

// add adds a series with these labels, and with those that Prometheus adds.
func (s series) add(name string, labels ...string) {
	s[name] = map[string][]string{"job": nil, "instance": nil}
	for _, label := range labels {
		s[name][label] = nil
	}
}

// problems returns what is wrong with the names in an expression.
func (s series) problems(text string) (wrong []string) {
	found := selectors.FindAllStringSubmatch(text, -1)
	if len(found) == 0 || strings.Count(text, "(") != strings.Count(text, ")") {
		wrong = append(wrong, "no series, or an open parenthesis: "+text)
	}
	for _, match := range found {
		name := match[1]
		labels, ok := s[name]
		if !ok {
			wrong = append(wrong, "there is no series "+name)
			continue
		}
		for _, m := range matchers.FindAllStringSubmatch(match[2], -1) {
			values, ok := labels[m[1]]
			if !ok {
				wrong = append(wrong, fmt.Sprintf("%s has no label %s", name, m[1]))
			}
			for value := range strings.SplitSeq(m[2], "|") {
				if values != nil && !slices.ContainsFunc(values, regexp.MustCompile("^(?:"+value+")$").MatchString) {
					wrong = append(wrong, fmt.Sprintf("%s is never %q in %s", m[1], value, name))
				}
			}
		}
	}
	for _, match := range rates.FindAllStringSubmatch(text, -1) {
		if !counter.MatchString(match[1]) {
			wrong = append(wrong, "a rate of "+match[1]+", which is not a counter")
		}
	}
	all := s.ofSeries(text)
	for _, label := range ofGroupings(text) {
		if !slices.Contains(all, label) {
			wrong = append(wrong, fmt.Sprintf("there is no label %s in %s", label, text))
		}
	}
	return wrong
}

// labelsOf returns the labels of an expression's result.
func (s series) labelsOf(text string) []string {
	if labels := ofGroupings(text); len(labels) > 0 || aggregates.MatchString(text) {
		return labels
	}
	return s.ofSeries(text)
}

func (s series) ofSeries(text string) (labels []string) {
	for _, match := range selectors.FindAllStringSubmatch(text, -1) {
		for label := range s[match[1]] {
			labels = append(labels, label)
		}
	}
	return labels
}

func ofGroupings(text string) (labels []string) {
	for _, match := range groupings.FindAllStringSubmatch(text, -1) {
		labels = append(labels, strings.Split(match[1], ", ")...)
	}
	return labels
}
