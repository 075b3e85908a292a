package operate

import "testing"

// A request before the instant would be too early.
func TestRoundedUp(t *testing.T) {
	if got := roundedUp(1772366400001) + roundedUp(1772366400000); got != "2026-03-01T12:00:01Z2026-03-01T12:00:00Z" {
		t.Errorf("roundedUp = %q", got)
	}
}
