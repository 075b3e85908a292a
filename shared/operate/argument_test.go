package operate

import (
	"encoding"
	"strconv"
	"strings"
	"testing"
	"time"

	"petgate/shared/keystore"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"90d", 90 * day, true},
		{"24h", 24 * time.Hour, true},
		{"1d12h", 36 * time.Hour, true},
		{"30m", 30 * time.Minute, true},
		{"1h30m", 90 * time.Minute, true},
		{"1.5h", 90 * time.Minute, true},
		{"250ms", 250 * time.Millisecond, true},
		{"0", 0, true},
		{"0d", 0, true},
		{"36500d", durationMax, true},
		{"36500d1ns", 0, false},
		{"999999d", 0, false},
		{"9999999d", 0, false},
		{"876001h", 0, false},
		{"", 0, false},
		{"5", 0, false},
		{"d", 0, false},
		{"1w", 7 * day, true},
		{"1w2d", 9 * day, true},
		{"1d1w", 0, false},
		{"w", 0, false},
		{"1.5d", 0, false},
		{"12h1d", 0, false},
		{"-1d", 0, false},
		{"-1h", 0, false},
		{"1d-1h", 0, false},
		{"1 d", 0, false},
		{"١d", 0, false},
	} {
		got, err := parseDuration(c.text)
		if (err == nil) != c.ok || err == nil && got != c.want {
			t.Errorf("parseDuration(%q) = %v, %v; want %v, ok %t", c.text, got, err, c.want, c.ok)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, text := range []string{"90d", "1d12h", "36500d", "0", "-1h", "1e9h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := parseDuration(text); err == nil && (d < 0 || d > durationMax) {
			t.Errorf("parseDuration(%q) = %v", text, d)
		}
	})
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0 ms", 14 * time.Millisecond: "14 ms", 999 * time.Millisecond: "999 ms", time.Second: "1 s", 119 * time.Second: "119 s",
		2 * time.Minute: "2 min", 3 * time.Hour: "3 h", 49 * time.Hour: "2 days",
	} {
		if got := Span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestPlural(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 days", 1: "1 day", 2: "2 days", 1739: "1,739 days"} {
		if got := Plural(n, "day"); got != want {
			t.Errorf("Plural(%d) = %q, want %q", n, got, want)
		}
	}
}

// Each type accepts valid values. It refuses all others with an error that repeats the value, unless the value is too long.
func TestFlags(t *testing.T) {
	t.Parallel()
	f := func(flag encoding.TextUnmarshaler, good, bad []string) {
		t.Helper()
		for _, text := range good {
			if err := flag.UnmarshalText([]byte(text)); err != nil {
				t.Errorf("%T: %q: %v", flag, text, err)
			}
		}
		for _, text := range bad {
			err := flag.UnmarshalText([]byte(text))
			if err == nil || len(text) <= keystore.NameRunesMax && !strings.Contains(err.Error(), strings.Trim(strconv.Quote(text), `"`)) {
				t.Errorf("%T: %q: %v", flag, text, err)
			}
		}
	}
	tooLong := strings.Repeat("ü", keystore.NameRunesMax+1)
	f(new(KeyID), []string{"key_0123456789abcdef"}, []string{"key_", "ten_0123456789abcdef", "x"})
	f(new(Name), []string{"ci", "ten_x", "Ünïted Pets & Co."}, []string{"", " x", "x ", "a\nb", tooLong})
	f(new(TenantName), []string{"acme", "Ünïted Pets & Co."}, []string{"ten_x", "", " x", "a\nb", tooLong})
	f(new(PlanName), []string{"free"}, []string{"Free", ""})
	f(new(Limit), []string{"1", "60", "1000000000"}, []string{"0", "-1", "1000000001", "99999999999999999999", "x", "1e3", ""})
	f(new(Scope), []string{"pets:read", "pets:write", "usage:read"}, []string{"PETS:READ", "a b", ""})
	f(new(Block), []string{"10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::1", "0.0.0.0/0"},
		[]string{"10.0.0.0/33", "fe80::1%eth0", "10.1.2.3/8", ""})
	f(new(Period), []string{"1s", "90d"}, []string{"0", "999ms", "-1h", "soon"})
	f(new(Grouping), []string{"day", "hour", "operation,key,outcome", "hour,outcome"}, []string{"week", ""})
}

func TestScopesAndBlocks(t *testing.T) {
	t.Parallel()
	if got, err := ScopesOf(nil); got != "" || err != nil {
		t.Errorf("no scopes = %v, %v", got, err)
	}
	if got, err := ScopesOf([]Scope{"usage:read", "pets:write"}); got != "pets:write usage:read" || err != nil {
		t.Errorf("scopes = %v, %v", got, err)
	}
	var one Block
	if err := one.UnmarshalText([]byte("192.0.2.7")); err != nil || Prefixes([]Block{one})[0].String() != "192.0.2.7/32" {
		t.Errorf("one address is the block %v, %v", Prefixes([]Block{one}), err)
	}
}
