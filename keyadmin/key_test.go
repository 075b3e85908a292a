package main

import "testing"

// The last use of a key that had ended before was refused.
func TestLastUsed(t *testing.T) {
	const before, at, after = "2026-03-01T12:00:00Z", "2026-03-01T12:00:01Z", "2026-03-01T12:00:02Z"
	const refused = after + ", refused because it had ended"
	for _, c := range []struct {
		view keyView
		want string
	}{
		{keyView{}, "never"},
		{keyView{RevokedAt: at}, "never"},
		{keyView{LastUsedAt: after}, after},
		{keyView{LastUsedAt: before, RevokedAt: at}, before},
		{keyView{LastUsedAt: after, RevokedAt: at}, refused},
		{keyView{LastUsedAt: after, ExpiresAt: at}, refused},
		{keyView{LastUsedAt: after, GraceEndsAt: at}, refused},
	} {
		if got := lastUsed(c.view); got != c.want {
			t.Errorf("%+v: %s, want %s", c.view, got, c.want)
		}
	}
}
