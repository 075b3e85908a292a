package edge

import (
	"strings"
	"testing"
)

func TestAppendTrace(t *testing.T) {
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	f := func(parent string, continued bool, flags string) {
		t.Helper()
		text, got := appendTrace(nil, []byte(parent))
		parts := strings.Split(string(text), "-")
		if got != continued || len(text) != 55 || len(parts) != 4 || parts[0] != "00" || parts[3] != flags ||
			(parts[1] == trace) != continued || parts[2] == span {
			t.Errorf("%q: %s %t, want continued: %t", parent, text, got, continued)
		}
	}
	f("00-"+trace+"-"+span+"-01", true, "00")
	f("00-"+trace+"-"+span+"-00", true, "00")
	f("00-"+trace+"-"+span+"-ff", true, "00")
	f("cc-"+trace+"-"+span+"-01-more", true, "00")
	f("", false, "00")
	f("ff-"+trace+"-"+span+"-01", false, "00")
	f("00-"+trace+"-"+span+"-01-more", false, "00")
	f("00-"+strings.ToUpper(trace)+"-"+span+"-01", false, "00")
	f("00-"+strings.Repeat("0", 32)+"-"+span+"-01", false, "00")
	f("00-"+trace+"-"+strings.Repeat("0", 16)+"-01", false, "00")
}
