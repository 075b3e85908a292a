package apikey_test

import (
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"petgate/shared/core/apikey"
	"petgate/shared/testkit/must"
)

func mint(t testing.TB, env apikey.Environment) string {
	t.Helper()
	return must.Get[string](t)(apikey.Draw(apikey.Beginning(apikey.DefaultPrefix, env), rand.Reader))
}

func TestMintedTokensParse(t *testing.T) {
	for _, env := range []apikey.Environment{apikey.Live, apikey.Test} {
		seen := map[string]bool{}
		for i := range 1000 {
			prefix := []string{apikey.DefaultPrefix, "ab", "abcdefghij"}[i%3]
			token, err := apikey.Draw(apikey.Beginning(prefix, env), rand.Reader)
			if err != nil || !strings.HasPrefix(token, apikey.Beginning(prefix, env)) ||
				!apikey.IsIn([]byte("/x/"+token)) {
				t.Fatalf("Draw(%q) = %q, %v", prefix, token, err)
			}
			if got, err := apikey.Parse([]byte(token)); err != nil || got != env {
				t.Fatalf("Parse(%q) = %v, %v", token, got, err)
			}
			if seen[token] {
				t.Fatalf("minted %q twice", token)
			}
			seen[token] = true
		}
	}
}

func TestParse(t *testing.T) {
	token := mint(t, apikey.Live)
	for _, c := range []struct {
		name, token string
		want        error
	}{
		{"good", token, nil},
		{"empty", "", apikey.ErrPrefix},
		{"another vendor's", "sk_prod_4eC39HqLyjWDarjtT1zdp7dc", apikey.ErrPrefix},
		{"with another prefix", strings.Replace(token, "ptg", "abc", 1), apikey.ErrChecksum},
		{"without a prefix", token[3:], apikey.ErrPrefix},
		{"with too short a prefix", token[2:], apikey.ErrPrefix},
		{"with too long a prefix", "abcdefgh" + token, apikey.ErrPrefix},
		{"prefix in capitals", strings.Replace(token, "ptg", "PTG", 1), apikey.ErrPrefix},
		{"cut off before its secret", token[:8], apikey.ErrPrefix},
		{"cut off", token[:len(token)-1], apikey.ErrLength},
		{"with a character too many", token + "0", apikey.ErrLength},
		{"with a stray dot", token[:46] + ".", apikey.ErrAlphabet},
		{"with a NUL", token[:20] + "\x00" + token[21:], apikey.ErrAlphabet},
		{"of the other environment", strings.Replace(token, "live", "test", 1), apikey.ErrChecksum},
	} {
		if env, err := apikey.Parse([]byte(c.token)); !errors.Is(err, c.want) || (env == apikey.Live) != (err == nil) ||
			(env == 0) != (err != nil) {
			t.Errorf("%s: Parse(%q) = %d, %v, want %v", c.name, c.token, env, err, c.want)
		}
	}
}

// CRC-32 finds every error of up to 32 adjacent bits, so every single mistyped character and every
// swap of neighbours.
func TestChecksumFindsTypingErrors(t *testing.T) {
	token := mint(t, apikey.Live)
	refused := func(typed []byte) {
		t.Helper()
		if _, err := apikey.Parse(typed); string(typed) != token && !errors.Is(err, apikey.ErrChecksum) {
			t.Errorf("Parse(%q) = %v, want %v", typed, err, apikey.ErrChecksum)
		}
	}
	for at := len("ptg_live_"); at < len(token); at++ {
		for _, c := range []byte("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
			typed := []byte(token)
			typed[at] = c
			refused(typed)
		}
		if typed := []byte(token); at+1 < len(token) {
			typed[at], typed[at+1] = typed[at+1], typed[at]
			refused(typed)
		}
	}
}

func TestDrawSaysWhenRandomnessFails(t *testing.T) {
	live := apikey.Beginning(apikey.DefaultPrefix, apikey.Live)
	if token, err := apikey.Draw(live, strings.NewReader("short")); token != "" ||
		err == nil ||
		err.Error() != "apikey: draw random bytes: unexpected EOF" {
		t.Errorf("Draw = %q, %v", token, err)
	}
}

func TestParseAllocatesNothing(t *testing.T) {
	token := []byte(mint(t, apikey.Live))
	if n := testing.AllocsPerRun(100, func() {
		must.Get[apikey.Environment](t)(apikey.Parse(token))
		apikey.Sum(token)
	}); n != 0 {
		t.Errorf("Parse and Sum allocate %v times", n)
	}
}

func TestPrefix(t *testing.T) {
	for prefix, want := range map[string]bool{
		"ptg": true, "ab": true, "zz": true, "abcdefghij": true,
		"": false, "a": false, "abcdefghijk": false, "Ab": false, "a1": false, "a_b": false, "a{": false,
	} {
		err := apikey.CheckPrefix(prefix)
		if (err == nil) != want ||
			err != nil &&
				err.Error() != strconv.Quote(prefix)+" is not a prefix of keys: use 2 to 10 lower-case letters" {
			t.Errorf("the prefix %q: %v", prefix, err)
		}
	}
	for text, want := range map[string]bool{
		"a ptg_live_00000000": true, "acme_test_0aZ0aZ0aZ": true,
		"ptg_live_0000000": false, "a g_live_00000000": false, "ptg_live_…": false,
		"/load_test_results": false, "/live_tests": false, "/load_test_run": false,
	} {
		must.Equal(t, apikey.IsIn([]byte(text)), want, "a token is in %q", text)
	}
}

func TestScopes(t *testing.T) {
	if err := new(apikey.Environment).UnmarshalText([]byte("none")); err == nil ||
		err.Error() != `"none" is not an environment: use live or test` {
		t.Errorf("an environment: %v", err)
	}
	const noScope = " is not the name of a scope: use 1 to 64 of a-z, 0-9, colon, dot, hyphen and underscore"
	many := make([]string, 65)
	for i := range many {
		many[i] = "s" + strconv.Itoa(i)
	}
	for _, c := range []struct {
		names []string
		want  apikey.Scopes
		bad   string // the error
	}{
		{nil, "", ""},
		{[]string{"pets:read"}, "pets:read", ""},
		{[]string{"pets:write", "pets:read", "pets:read"}, "pets:read pets:write", ""},
		{[]string{"a.b_c-d:9"}, "a.b_c-d:9", ""},
		{[]string{"Pets"}, "", `"Pets"` + noScope},
		{[]string{"a b"}, "", `"a b"` + noScope},
		{[]string{""}, "", `""` + noScope},
		{[]string{"a", strings.Repeat("a", 65)}, "", `"` + strings.Repeat("a", 65) + `"` + noScope},
		{many[1:], apikey.Scopes(strings.Join(slices.Sorted(slices.Values(many[1:])), " ")), ""},
		{many, "", "a key may have 64 scopes, and these are 65"},
	} {
		got, err := apikey.ParseScopes(c.names)
		if got != c.want || (err != nil) != (c.bad != "") || err != nil && err.Error() != c.bad {
			t.Errorf("ParseScopes(%q) = %v, %v", c.names, got, err)
		}
	}
	const set apikey.Scopes = "pets:read pets:write"
	for name, want := range map[string]bool{
		"": true, "pets:read": true, "pets:write": true, "pets": false, "read pets": false, "pets:write ": false,
	} {
		must.Equal(t, set.Has(name), want, "%q has %q", set, name)
	}
	if apikey.Scopes("").Has("a") || !apikey.Scopes("").Has("") {
		t.Error("the empty set has a scope, or lacks none")
	}
	must.Equal(t, testing.AllocsPerRun(100, func() { set.Has("pets:write") }), 0, "allocations of Has")
}
