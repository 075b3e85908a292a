package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
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
	u := Usage{ID: "usage", Title: `Requests of "acme" by hour`, Period: "hour", Noun: "Requests", Width: 760, Series: Outcomes, Limit: 3600}
	for hour := range 24 {
		served := int64(40 + 900*min(hour, 24-hour)/4)
		bar := Bar{Label: fmt.Sprintf("%02d:00", hour), Name: fmt.Sprintf("2026-03-01 %02d:00 UTC", hour), Counts: []int64{min(served, 3600), 0, 0}}
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
	before := hours()
	before.BeforeName = "the day before"
	for _, bar := range before.Bars {
		before.Before = append(before.Before, bar.Counts[0]+600)
	}
	for name, u := range map[string]Usage{"hours": hours(), "narrow": narrow, "quiet": quiet, "empty": empty, "before": before} {
		got := u.SVG()
		checkXML(t, name, got)
		path := filepath.Join("testdata", name+".svg")
		if *update {
			must.Do(t, os.WriteFile(path, got, 0o644))
			continue
		}
		want, err := os.ReadFile(path)
		must.Do(t, err)
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s\nIf it is meant: go test ./shared/plot -update", path, diff)
		}
	}
}

// In a PDF, each use of a pattern is a picture. One is in the legend, one has all the bars of the series.
func TestPatternsAreUsedTwice(t *testing.T) {
	svg := string(hours().SVG())
	for i := 1; i < len(Outcomes); i++ {
		if n := strings.Count(svg, fmt.Sprintf(`fill="url(#%s)"`, patternID("usage", i))); n != 2 {
			t.Errorf("the pattern of %s is used %d times", Outcomes[i], n)
		}
	}
}

// A drawing is well formed, its references lead to IDs of its own, and it has a title and a description.
func checkXML(t *testing.T, name string, svg []byte) {
	t.Helper()
	ids, references := map[string]bool{}, map[string]bool{}
	texts := map[string]string{}
	var inside string
	for decoder := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inside = token.Name.Local
			for _, a := range token.Attr {
				switch {
				case a.Name.Local == "id":
					ids[a.Value] = true
				case a.Name.Local == "aria-labelledby":
					for id := range strings.FieldsSeq(a.Value) {
						references[id] = true
					}
				case strings.HasPrefix(a.Value, "url(#"):
					references[strings.TrimSuffix(strings.TrimPrefix(a.Value, "url(#"), ")")] = true
				}
			}
		case xml.CharData:
			if texts[inside] == "" {
				texts[inside] = string(token)
			}
		case xml.EndElement:
			inside = ""
		}
	}
	for id := range references {
		if !ids[id] {
			t.Errorf("%s refers to #%s, which it does not have", name, id)
		}
	}
	if len(references) < 2 || texts["title"] != `Requests of "acme" by hour` || len(texts["desc"]) < 20 {
		t.Errorf("%s: references %v, title %q, description %q", name, references, texts["title"], texts["desc"])
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
		if u.Limit = limit; u.top() != top {
			t.Errorf("limit %d: the top is %d, want %d", limit, u.top(), top)
		}
	}
}
