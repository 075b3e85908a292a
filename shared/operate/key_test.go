package operate

import "testing"

// The last use of a key that had ended before was refused.
func TestLastUsed(t *testing.T) {
	const before, at, after = "2026-03-01T12:00:00Z", "2026-03-01T12:00:01Z", "2026-03-01T12:00:02Z"
	const refused = after + ", refused because it had ended"
	for _, c := range []struct {
		view KeyView
		want string
	}{
		{KeyView{}, "never"},
		{KeyView{RevokedAt: at}, "never"},
		{KeyView{LastUsedAt: after}, after},
		{KeyView{LastUsedAt: before, RevokedAt: at}, before},
		{KeyView{LastUsedAt: at, RevokedAt: at}, at},
		{KeyView{LastUsedAt: after, RevokedAt: at}, refused},
		{KeyView{LastUsedAt: after, ExpiresAt: at}, refused},
		{KeyView{LastUsedAt: after, GraceEndsAt: at}, refused},
	} {
		if got := c.view.LastUsed(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.view, got, c.want)
		}
	}
}
