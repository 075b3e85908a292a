package edge

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"petgate/shared/testkit"
)

// gone is a reader of the access log that has gone away.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// What cannot be written is counted, and logged once a minute.
func TestDroppedLinesAreCounted(t *testing.T) {
	dropped := prometheus.NewCounter(prometheus.CounterOpts{Name: "dropped"})
	var log testkit.Output
	l := newAccessLog(gone{}, slog.New(slog.NewTextHandler(&log, nil)), dropped)
	for n := range 2 {
		_, _ = l.lines.Write([]byte("{}\n"))
		testkit.Eventually(t, 10*time.Second, "the line is counted", func() bool { return testutil.ToFloat64(dropped) == float64(n+1) })
	}
	l.close()
	if n := strings.Count(log.String(), "broken pipe"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, &log)
	}
	_, _ = l.lines.Write([]byte("{}\n"))
	if got := testutil.ToFloat64(dropped); got != 3 {
		t.Errorf("%v lines are counted, want 3", got)
	}
}
