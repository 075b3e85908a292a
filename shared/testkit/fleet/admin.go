package fleet

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"petgate/shared/testkit/must"
)

// AdminPage returns the body that the program's admin port answers for a path such as "/metrics".
func (p *Program) AdminPage(t testing.TB, path string) string {
	t.Helper()
	body, err := p.TryAdminPage(path)
	must.Do(t, err)
	return body
}

// TryAdminPage is AdminPage for a program that may not answer.
func (p *Program) TryAdminPage(path string) (string, error) {
	response, err := http.Get(p.Admin + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// Metrics returns every metric by its name with its labels; none if the program does not answer.
func (p *Program) Metrics() map[string]float64 {
	metrics := make(map[string]float64)
	page, err := p.TryAdminPage("/metrics")
	if err != nil {
		return metrics
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			metrics[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	return metrics
}

// Metric returns the sum of a metric over the series whose labels contain the given text. A metric
// without labels has to exist; a series of a metric with labels exists only after its first event.
func (p *Program) Metric(t testing.TB, name, labels string) (sum float64) {
	t.Helper()
	metrics, found := p.Metrics(), false
	for series, value := range metrics {
		rest, ok := strings.CutPrefix(series, name)
		if ok && (rest == "" || rest[0] == '{') && strings.Contains(rest, labels) {
			sum, found = sum+value, true
		}
	}
	if len(metrics) == 0 {
		t.Fatalf("%s does not show its metrics", p.Admin)
	}
	if !found && labels == "" && !strings.HasSuffix(name, "_total") {
		t.Fatalf("%s has no metric %s", p.Admin, name)
	}
	return sum
}
