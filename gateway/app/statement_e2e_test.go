//go:build e2e

package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
)

// While the database accepts connections and answers nothing, a request for usage fails after two seconds. Requests beside it do not
// wait. When the database answers again, usage can be read.
func TestStatementOfASilentDatabase(t *testing.T) {
	db, databaseURL, proxy := behindProxy(t)
	_, _, token := newAccountant(t, db)
	r := start(t, databaseURL, nil)
	r.awaitReady(t)
	r.awaitUsage(t, "", token)
	proxy.BlackHole()
	type outcome struct {
		body string
		took time.Duration
	}
	// A machine that stops for two seconds may leave no time for requests beside the slow one. A gateway that makes them wait never has it.
	testkit.Eventually(t, time.Minute, "usage fails after two seconds, while three requests are served", func() bool {
		slow := make(chan outcome, 1)
		go func() {
			began := time.Now()
			_, body := get(t, r.url+"/v1/usage", token)
			slow <- outcome{body, time.Since(began)}
		}()
		served := 0
		for {
			select {
			case o := <-slow:
				t.Logf("figure: usage of a silent database: %s after %v; %d requests beside it", o.body, o.took, served)
				return strings.Contains(o.body, `"usage_unavailable"`) && o.took > 1900*time.Millisecond && o.took < 10*time.Second && served >= 3
			case <-time.After(50 * time.Millisecond):
			}
			if response, body := get(t, r.url+"/v1/pets", token); response.StatusCode != http.StatusOK {
				t.Fatalf("beside it: %d %s", response.StatusCode, body)
			}
			served++
		}
	})
	proxy.Restore(t)
	r.awaitUsage(t, "", token)
	r.end(t)
}
