package socket

import "testing"

func TestSavingsAreChosen(t *testing.T) {
	all := savings{quiet: canCallQuietly, exchange: true, deadlines: true}
	for list, want := range map[string]savings{
		"none": {}, "": {}, "quiet": {quiet: canCallQuietly}, "exchange, deadlines": {exchange: true, deadlines: true},
		"quiet,exchange,deadlines": all,
	} {
		if got := parseSavings(list, true); got != want {
			t.Errorf("%q: %+v", list, got)
		}
	}
	if got := parseSavings("", false); got != all {
		t.Errorf("without the variable: %+v", got)
	}
}
