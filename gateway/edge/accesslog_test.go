package edge

import (
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// gone is a reader of the access log that has gone away.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// What cannot be written is counted.
func TestDroppedLinesAreCounted(t *testing.T) {
	dropped := prometheus.NewCounter(prometheus.CounterOpts{Name: "dropped"})
	l := newAccessLog(gone{}, slog.New(slog.NewTextHandler(io.Discard, nil)), dropped)
	_, _ = l.lines.Write([]byte("{}\n{}\n"))
	l.close()
	_, _ = l.lines.Write([]byte("{}\n"))
	if got := testutil.ToFloat64(dropped); got != 3 {
		t.Errorf("%v lines are counted, want 3", got)
	}
}
