package contract_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// The refusals that only a broken system gives.
func TestRefusalsOfABrokenSystem(t *testing.T) {
	t.Parallel()
	postgres, redis := testkit.StartPostgres(t), testkit.StartRedis(t)
	f := fleet.Start(t, fleet.Spec{
		Database: postgres.URL, Redis: redis.URL, Gateways: 1, Upstreams: faultyUpstream(t),
		GatewayEnv: []string{"GATEWAY_LIMITS_ON_OUTAGE=refuse", "GATEWAY_DIRECTORY_MAX_AGE=3s"},
	})
	key := f.NewTenant("unlucky", "--minute", "1000000", "--day", "1000000")
	doc := loadDocument(t)
	expect(t, f, key, http.StatusOK, "")

	redis.Kill(t)
	for _, a := range expect(t, f, key, http.StatusServiceUnavailable, "limits_unavailable") {
		if err := validate(doc, a); err != nil {
			t.Error(err)
		}
	}
	testkit.Eventually(t, 15*time.Second, "usage is reported without Redis", func() bool {
		known := send(t, f.Gateways[0].URL, "without Redis", report, request{token: key.Token})
		if err := validate(doc, known); err != nil {
			t.Error(err)
		}
		if known.status == http.StatusServiceUnavailable && codeOf(t, known) == "directory_unavailable" {
			return false // a machine that stopped for longer than the directory's maximum age
		}
		if known.status != http.StatusOK || !strings.Contains(string(known.body), `"degraded":true`) {
			t.Fatalf("%s: %d %s", known.what, known.status, known.body)
		}
		return true
	})
	redis.Start(t)
	expect(t, f, key, http.StatusOK, "")

	postgres.Kill(t)
	for _, a := range expect(t, f, key, http.StatusServiceUnavailable, "directory_unavailable") {
		if err := validate(doc, a); err != nil {
			t.Error(err)
		}
	}
	postgres.Start(t)
	expect(t, f, key, http.StatusOK, "")
}

// expect requests every operation of the pet service until all have the expected response, and returns these responses.
func expect(t *testing.T, f *fleet.Fleet, key fleet.Key, status int, code string) []answer {
	t.Helper()
	var answers []answer
	testkit.Eventually(t, 15*time.Second, "every operation is answered "+http.StatusText(status)+" "+code, func() bool {
		answers = answers[:0]
		for _, o := range served {
			a := send(t, f.Gateways[0].URL, code, o, request{token: key.Token})
			if a.status != status || status >= 400 && codeOf(t, a) != code {
				return false
			}
			answers = append(answers, a)
		}
		return true
	})
	return answers
}
