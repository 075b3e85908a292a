package main

import (
	"encoding"
	"strconv"
	"strings"
	"testing"

	"petgate/shared/core/apikey"
	"petgate/shared/keystore"
)

// Each type accepts valid values. It refuses all others with an error that repeats the value, unless the value is too long.
func TestFlags(t *testing.T) {
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
	f(new(format), []string{"table", "json"}, []string{"yaml", ""})
	f(new(keyArgument), []string{"key_0123456789abcdef"}, []string{"key_", "ten_0123456789abcdef", "x"})
	f(new(name), []string{"ci", "ten_x", "Ünïted Pets & Co."}, []string{"", " x", "x ", "a\nb", tooLong})
	f(new(tenantName), []string{"acme", "Ünïted Pets & Co."}, []string{"ten_x", "", " x", "a\nb", tooLong})
	f(new(planName), []string{"free"}, []string{"Free", ""})
	f(new(limit), []string{"1", "60", "1000000000"}, []string{"0", "-1", "1000000001", "99999999999999999999", "x", "1e3", ""})
	f(new(scope), []string{"pets:read", "pets:write", "usage:read"}, []string{"pets", "PETS:READ", "usage:write"})
	f(new(block), []string{"10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::1", "0.0.0.0/0"},
		[]string{"10.0.0.0/33", "fe80::1%eth0", "10.1.2.3/8", ""})
	f(new(period), []string{"1s", "90d"}, []string{"0", "999ms", "-1h", "soon"})
	f(new(grouping), []string{"day", "hour", "operation,key,outcome", "hour,outcome"}, []string{"week", ""})
}

func TestScopesAndBlocks(t *testing.T) {
	if got := scopesOf(nil); got != apikey.DefaultScopes {
		t.Errorf("no scopes = %v", got)
	}
	if got := scopesOf([]scope{"pets:write", "usage:read"}); got != apikey.PetsWrite|apikey.UsageRead {
		t.Errorf("scopes = %v", got)
	}
	var one block
	if err := one.UnmarshalText([]byte("192.0.2.7")); err != nil || prefixes([]block{one})[0].String() != "192.0.2.7/32" {
		t.Errorf("one address is the block %v, %v", prefixes([]block{one}), err)
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
