package plot

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"petgate/shared/testkit/must"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// hours is a day with a quiet night, a peak that exceeds the limit, and a failure of the service.
func hours() Usage {
	u := Usage{
		ID:     "usage",
		Title:  `Requests of "acme" by hour`,
		Period: "hour",
		Width:  760,
		Series: Outcomes,
		Limit:  3600,
	}
	for hour := range 24 {
		served := int64(40 + 900*min(hour, 24-hour)/4)
		bar := Bar{
			Label:  fmt.Sprintf("%02d:00", hour),
			Name:   fmt.Sprintf("2026-03-01 %02d:00 UTC", hour),
			Counts: []int64{min(served, 3600), 0, 0},
		}
		switch {
		case served > 2500:
			bar.Counts[1] = 1200
		case hour == 5:
			bar.Counts[2] = 700
		}
		u.Bars = append(u.Bars, bar)
	}
	return u
}

func TestUsage(t *testing.T) {
	narrow, quiet, empty := hours(), hours(), hours()
	narrow.ID, narrow.Width = "narrow", 340
	quiet.Limit = 1_000_000
	for i := range quiet.Bars {
		quiet.Bars[i].Counts = []int64{int64(i % 3), 0, 0}
	}
	empty.Bars = nil
	for name, u := range map[string]Usage{"hours": hours(), "narrow": narrow, "quiet": quiet, "empty": empty} {
		got := u.SVG()
		path := filepath.Join("testdata", name+".svg")
		if *update {
			must.Do(t, os.WriteFile(path, got, 0o644))
			continue
		}
		want := must.Get[[]byte](t)(os.ReadFile(path))
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s\nIf it is meant: go test ./shared/plot -update", path, diff)
		}
	}
}

// No bar leaves the drawing, and the limit is drawn only if the bars stay visible beside it.
func TestScale(t *testing.T) {
	for _, c := range []struct{ highest, step, top int64 }{
		{0, 1, 1},
		{1, 1, 1},
		{5, 1, 5},
		{6, 2, 6},
		{10, 2, 10},
		{11, 5, 15},
		{26, 10, 30},
		{3600, 1000, 4000},
		{999_999_999_999, 200_000_000_000, 1_000_000_000_000},
	} {
		if step, top := scale(c.highest); step != c.step || top != c.top {
			t.Errorf("scale(%d) = %d, %d, want %d, %d", c.highest, step, top, c.step, c.top)
		}
	}
	u := Usage{Bars: []Bar{{Counts: []int64{100}}}}
	for limit, top := range map[int64]int64{0: 100, 50: 100, 400: 400, 401: 100} {
		u.Limit = limit
		must.Equal(t, u.top(), top, "limit %d: the top", limit)
	}
}
