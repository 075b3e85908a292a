package operate

import (
	"testing"

	"petgate/shared/keystore"
)

func TestChangeOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, before, after, want string }{
		{"members that are not set", "", `{"plan":"free","minute":0,"suspended":false,"allow":null,"scopes":[],"reason":""}`, "plan free"},
		{"texts that look as if they were not set", `{"name":"0"}`, `{"name":"false","reason":"null"}`, `name "0" → "false", reason - → "null"`},
		{"a list of one such text", "", `{"list":["0"]}`, "list 0"},
		{"an address", `{"address":"10.0.0.5:9090"}`, "", "was: address 10.0.0.5:9090"},
		{"an address with words", "", `{"address":"x, plan free"}`, `address "x, plan free"`},
		{"a time that is not set", `{"expiresAt":0}`, `{"expiresAt":1000}`, "expires 1970-01-01T00:00:01Z"},
	} {
		if got := ChangeOf(keystore.Event{Before: c.before, After: c.after}); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
