package edge_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"petgate/shared/testkit"
)

// secret is what no log, metric or upstream may hold: a good part of a token, wherever it comes from.
var secret = regexp.MustCompile(`ptg_(live|test)_[0-9A-Za-z]{8}`)

// findSecrets cuts tokens out of text, with what stands around them.
func findSecrets(text string) []string {
	var found []string
	for _, at := range secret.FindAllStringIndex(text, -1) {
		found = append(found, text[max(0, at[0]-80):at[0]]+"…")
	}
	return found
}

// checkLogs checks everything that was logged: it has no token, and each line is one JSON object.
func (r *rig) checkLogs(t testing.TB) {
	t.Helper()
	for _, text := range []string{r.accessLog.String(), r.log.String()} {
		for _, found := range findSecrets(text) {
			t.Errorf("a log holds a token: %s", found)
		}
		for line := range strings.Lines(text) {
			if err := checkLogLine(line); err != nil {
				t.Errorf("%v", err)
			}
		}
	}
}

// awaitLines waits until the access log holds n lines, and no more.
func (r *rig) awaitLines(t testing.TB, n int) {
	t.Helper()
	testkit.Eventually(t, patience, "the access log", func() bool { return len(r.accessLog.Lines()) >= n })
	if got := len(r.accessLog.Lines()); got != n {
		t.Errorf("%d access log lines for %d answers: %s", got, n, r.accessLog)
	}
}

func checkLogLine(line string) error {
	var fields map[string]any
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		return fmt.Errorf("log line %q: %w", line, err)
	}
	for _, c := range line {
		if c < ' ' && c != '\n' || c == 0x7f {
			return fmt.Errorf("log line %q holds a control character", line)
		}
	}
	return nil
}

// A client cannot forge the access log: whatever it sends, its exchange is one line, which does not look like another exchange.
func TestAccessLogCannotBeForged(t *testing.T) {
	const forged = `","status":200,"key":"key_forged","x":"`
	r, total := newRig(t, nil), 0
	for name, request := range map[string]string{
		"target":           rawTarget("/v1/pets?a=" + strings.ReplaceAll(forged, `"`, "%22")),
		"encoded line end": rawTarget("/v1/pets?a=%0a{%22status%22:200}"),
		"raw line end":     rawTarget("/v1/pets\n{\"status\":200}"),
		"escape":           rawTarget("/v1/pets?\x1b[2J"),
		"method":           rawStart("GET\"'{} /v1/pets HTTP/1.1"),
		"long method":      rawStart(repeat("A", 5000) + " /v1/pets HTTP/1.1"),
		"host":             rawHost("Host: " + forged),
		"user agent":       rawGet("User-Agent: " + forged),
		"non-UTF-8 agent":  rawGet("User-Agent: \xff\xfe" + forged),
		"request ID":       rawGet("X-Request-Id: " + forged),
		"forwarder":        rawGet("X-Forwarded-For: " + forged),
		"token in a query": rawTarget("/v1/pets?access_token=" + token),
		"token in a path":  rawTarget("/v1/pets/" + token),
		"token for method": rawStart(token + " /v1/pets HTTP/1.1"),
		"token for host":   rawHost("Host: " + token),
		"token for agent":  rawGet("User-Agent: " + token),
		"token for type":   rawPost("Content-Type: "+token, "Content-Length: 0"),
		"token for ID":     rawGet("X-Request-Id: " + token),
		"token for length": rawPost("Content-Length: " + token),
		"token unframed":   token + "\r\n\r\n",
		"token as a field": rawGet(token),
		"mistyped token":   rawKey("Authorization: Bearer " + mistyped(token)),
		"token in Basic":   rawKey("Authorization: Basic " + token),
	} {
		answers, out, err := r.playAll(guess, []byte(request))
		if err != nil || len(answers) == 0 {
			t.Fatalf("%s: %d answers, %v", name, len(answers), err)
		}
		if total += len(answers); findSecrets(string(out)) != nil {
			t.Errorf("%s: an answer holds a token", name)
		}
	}
	r.awaitLines(t, total)
	if strings.Contains(r.accessLog.String(), `"key":"key_forged"`) {
		t.Errorf("forged: %s", r.accessLog)
	}
}
