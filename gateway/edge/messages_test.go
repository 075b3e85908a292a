package edge_test

import (
	"fmt"
	"strings"
	"testing"
)

// A message names what the client has to change.
func TestMessagesNameTheFault(t *testing.T) {
	r := newRig(t, nil)
	for raw, want := range map[string]string{
		rawKey(`Authorization: Bearer "` + token + `"`):     "the API key is in quotes",
		rawKey("Authorization: Bearer  " + token):           "the API key contains a space",
		rawKey("Authorization: Bearer " + token + "x"):      "a key has 47 characters, and yours has 48",
		strings.Replace(rawReport(token), "GET", "POST", 1): "Its methods are GET, HEAD",
		rawChunked(fmt.Sprintf("%x", bodyMax+1) + "\r\n"):   fmt.Sprintf("the body is larger than %d bytes", bodyMax),
	} {
		if got := r.dial(t).ask(t, raw); !strings.Contains(got.Body, want) {
			t.Errorf("%d %s, want %q", got.Status, got.Body, want)
		}
	}
}
