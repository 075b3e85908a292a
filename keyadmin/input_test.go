package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"petgate/shared/core/apikey"
	"petgate/shared/core/plan"
)

func TestParseDuration(t *testing.T) {
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
		{"1w", 0, false},
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

func TestInput(t *testing.T) {
	var in input
	if got, want := in.limits("60", ""), (plan.Limits{Minute: 60}); got != want {
		t.Errorf("limits = %v, want %v", got, want)
	}
	if got := in.scopes(nil); got != apikey.AllScopes {
		t.Errorf("no scopes = %v", got)
	}
	if got := in.scopes([]string{"pets:write"}); got != apikey.PetsWrite {
		t.Errorf("scopes = %v", got)
	}
	var blocks []string
	for _, b := range in.prefixes([]string{"10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::1", "0.0.0.0/0"}) {
		blocks = append(blocks, b.String())
	}
	if diff := cmp.Diff([]string{"10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32", "::1/128", "0.0.0.0/0"}, blocks); diff != "" {
		t.Errorf("prefixes (-want +got):\n%s", diff)
	}
	if got := in.tenantName("Ünïted Pets & Co."); got != "Ünïted Pets & Co." {
		t.Errorf("tenantName = %q", got)
	}
	if err := in.err(); err != nil {
		t.Fatal(err)
	}
	in.limits("0", "1000000001")
	in.scopes([]string{"pets:read", "pets", "PETS:READ"})
	in.prefixes([]string{"10.0.0.0/33", "fe80::1%eth0", "10.1.2.3/8"})
	in.tenantName("ten_x")
	in.tenantName("")
	in.tenantName(" x")
	in.tenantName("a\nb")
	in.tenantName(strings.Repeat("ü", nameRunesMax+1))
	in.duration("for", "-1h", 0)
	in.format("yaml")
	if len(in.problems) != 14 || strings.Count(in.err().Error(), "\n") != 14 {
		t.Errorf("%d problems: %v", len(in.problems), in.err())
	}
}

func TestDidYouMean(t *testing.T) {
	known := []string{"acme", "Acme-Test", "globex", "initech", "a", "ab"}
	for name, want := range map[string]string{
		"acne":   ": did you mean acme?",
		"acme-":  ": did you mean acme or Acme-Test?",
		"amce":   ": did you mean acme?",
		"acm":    ": did you mean acme or Acme-Test?",
		"GLOBEX": ": did you mean globex?",
		"ini":    ": did you mean initech?",
		"hooli":  "",
		"x":      "",
		"":       "",
	} {
		if got := didYouMean(name, known); got != want {
			t.Errorf("didYouMean(%q) = %q, want %q", name, got, want)
		}
	}
}

// A distance is a metric: that is what makes "at most 2" mean something.
func TestDistance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[ab]{0,6}`)
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		if (distance(a, b) == 0) != (a == b) || distance(a, b) != distance(b, a) || distance(a, c) > distance(a, b)+distance(b, c) {
			t.Fatalf("distances %d, %d, %d", distance(a, b), distance(b, a), distance(a, c))
		}
	})
	if got := distance("kitten", "sitting"); got != 3 {
		t.Errorf("distance = %d, want 3", got)
	}
}
