package operate

import (
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

// A spreadsheet runs no cell. Numbers stay numbers, negative ones too.
func TestCSVHasNoFormulas(t *testing.T) {
	t.Parallel()
	type row struct {
		Name  string          `json:"name"`
		Names []string        `json:"names"`
		N     int             `json:"n"`
		Event keystore.Change `json:"event"`
		Ratio float64         `json:"ratio"`
	}
	for in, want := range map[string]string{
		`=HYPERLINK("http://example.com";"x")`: `'=HYPERLINK("http://example.com";"x")`,
		"+1+cmd|' /C calc'!A0":                 "'+1+cmd|' /C calc'!A0",
		"-1":                                   "'-1",
		"@SUM(1)":                              "'@SUM(1)",
		"\t=1":                                 "'\t=1",
		"\r=1":                                 "'=1", // the writer of CSV drops it
		"'=1":                                  "'=1",
		"a=1":                                  "a=1",
		"":                                     "",
	} {
		var out strings.Builder
		must.Do(t, WriteCSV(&out, row{in, []string{in, "b"}, -1, -2, -0.5}))
		lines, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
		if got := lines[1]; err != nil || !slices.Equal(got, []string{want, want + " b", "-1", "-2", "-0.5"}) {
			t.Errorf("%q: %q, %v", in, lines, err)
		}
	}
}
