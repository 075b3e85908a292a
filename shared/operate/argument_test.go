package operate

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit/golden"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90d": 90 * day, "24h": day, "1d12h": 36 * time.Hour, "30m": 30 * time.Minute, "1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute,
		"250ms": 250 * time.Millisecond, "0": 0, "0d": 0, "36500d": durationMax, "1w": 7 * day, "1w2d": 9 * day, "876000h": durationMax,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"36500d1ns", "999999d", "9999999d", "876001h", "", "5", "d", "1d1w", "w", "1.5d", "12h1d", "-1d", "-1h", "1d-1h", "1 d", "١d",
	} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("parseDuration(%q) = %v", text, got)
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

// What ends after a period ends with a whole second, and not too early.
func TestPeriodEndsWithASecond(t *testing.T) {
	t.Parallel()
	for at, want := range map[instant.Millis]instant.Millis{1000: 2000, 1001: 3000, 1999: 3000} {
		if got, err := (Moment{Period: Period(time.Second)}).After(at); err != nil || got != want {
			t.Errorf("a second after %d: %d, %v, want %d", at, got, err, want)
		}
	}
	if got, err := (Moment{At: 1000}).After(1000); err == nil {
		t.Errorf("an end that is now: %d", got)
	}
}

// Each argument that is wrong is told, and why.
func TestReadArguments(t *testing.T) {
	t.Parallel()
	var key UpdateKey
	got := ReadArguments(reflect.ValueOf(&key).Elem(), map[string][]string{
		"name": {"a\xff"}, "scopes": {"A", "ok", "B"}, "allowAny": {"perhaps"}, "noExpires": {"true"}, "minute": {"1", "2"}, "day": {},
	})
	const scope = " is not the name of a scope: use 1 to 64 of a-z, 0-9, colon, dot, hyphen and underscore"
	want := []Mistake{
		{"key", Text{"it is missing: The key's ID, key_…"}},
		{"name", Text{"it has bytes that are not text"}},
		{"scopes", Text{`"A"` + scope + `; "B"` + scope}},
		{"allowAny", Text{`"perhaps" is neither true nor false`}},
		{"minute", Text{"give one value"}},
		{"day", Text{"give one value"}},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || !key.NoExpires || key.AllowAny {
		t.Errorf("%q, want %q", got, want)
	}
}

// Each type accepts valid values. It refuses all others with an error that repeats the value,
// unless the value is too long.
func TestFlags(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	f := func(flag encoding.TextUnmarshaler, good, bad []string) {
		t.Helper()
		for i, text := range append(good, bad...) {
			err := flag.UnmarshalText([]byte(text))
			quoted, isLong := strings.Trim(strconv.Quote(text), `"`), len(text) > keystore.NameRunesMax
			isNamed := err != nil && (isLong || strings.Contains(err.Error(), quoted))
			if i < len(good) && err != nil || i >= len(good) && !isNamed {
				t.Errorf("%T: %q: %v", flag, text, err)
			}
			fmt.Fprintf(&said, "%T %q: %v, %v\n", flag, text, reflect.ValueOf(flag).Elem(), err)
		}
	}
	tooLong := strings.Repeat("ü", keystore.NameRunesMax+1)
	f(new(KeyID), []string{"key_0123456789abcdef"}, []string{"key_", "ten_0123456789abcdef", "x"})
	f(new(Name), []string{"ci", "ten_x", "Ünïted Pets & Co."}, []string{"", " x", "x ", "a\nb", tooLong})
	f(new(TenantName), []string{"acme", "Ünïted Pets & Co."}, []string{"ten_x", "", " x", "a\nb", tooLong})
	f(new(PlanName), []string{"free"}, []string{"Free", ""})
	f(new(Limit), []string{"1", "60", "1000000000"},
		[]string{"0", "-1", "1000000001", "99999999999999999999", "x", "1e3", ""})
	f(new(Scope), []string{"pets:read", "pets:write", "usage:read"}, []string{"PETS:READ", "a b", ""})
	f(new(Block), []string{"10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::1", "0.0.0.0/0"},
		[]string{"10.0.0.0/33", "fe80::1%eth0", "10.1.2.3/8", "", "any", "*"})
	f(new(Period), []string{"1s", "90d"}, []string{"0", "999ms", "-1h", "soon"})
	f(new(Grouping), []string{"day", "hour", "operation,key,outcome", "hour,outcome"}, []string{"week", ""})
	f(new(MonthStarts), []string{"1", "28"}, []string{"0", "29", "256"})
	f(new(Notice), []string{tooLong}, []string{strings.Repeat("ü", keystore.NoticeRunesMax+1)})
	f(new(Address), []string{"2001:db8::1", "::ffff:10.0.0.5"}, []string{"fe80::1%eth0"})
	f(new(TenantState), []string{"suspended"}, []string{"deleted"})
	f(new(EventKind), []string{"ban", "ban.added"}, []string{"ban.removed"})
	f(new(LimitChange), []string{"none", "0", "60"}, []string{"-1"})
	f(new(Delay), []string{"0", "1w", "1h30m"}, []string{"36500d1ns", "-1d"})
	f(new(Moment), []string{"2026-12-31", "2026-12-31T18:00:00Z", "90d"}, []string{"soon", "999ms", "never"})
	golden.Check(t, "flags", said.String())
}
