// Package contract_test drives the built programs over sockets and checks every response against
// the OpenAPI document.
package contract_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/api"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// refusal is one way to be refused, over a socket, whatever operation is requested.
type refusal struct {
	code    string
	base    func(*system) string // where to send the request; nil: the ordinary gateway
	request func(*system) request
	only    string // the operation that it concerns; empty: all
	charged bool   // it concerns only operations that are charged
	pets    bool   // it concerns only operations that the pet service answers
}

// system is everything that the provocations on one database need.
type system struct {
	*fleet.Fleet
	good                              fleet.Key
	revoked, expired, banned, spent   fleet.Key
	readOnly, writeOnly, elsewhere    fleet.Key
	accountant                        fleet.Key // may read the usage
	suspended, unlimited, testKey, hr fleet.Key
	// other is a gateway in front of the faulty upstream. It serves one request at a time.
	other *fleet.Fleet
}

func (s *system) gateway() string { return s.Gateways[0].URL }
func (s *system) faulty() string  { return s.other.Gateways[0].URL }

func startSystem(t *testing.T, database string) *system {
	t.Helper()
	s := &system{Fleet: fleet.Start(t, fleet.Spec{
		Database: database, Gateways: 1,
		GatewayEnv: []string{"GATEWAY_READ_TIMEOUT=1s", "GATEWAY_AUTH_FAILURES_PER_MINUTE=20"},
	})}
	s.other = fleet.Start(t, fleet.Spec{
		Database: database, Gateways: 1, Upstreams: faultyUpstream(t),
		GatewayEnv: []string{"GATEWAY_ID=faulty", "GATEWAY_UPSTREAM_TIMEOUT=1s", "GATEWAY_CONCURRENCY_MAX=1"},
	})
	s.good = s.NewTenant("good", "--plan", "business")
	s.revoked, s.expired, s.banned = s.NewKey("good"), s.NewKey("good", "--expires", "1s"), s.NewKey("good")
	s.readOnly, s.writeOnly = s.NewKey("good", "--scope", "pets:read"), s.NewKey("good", "--scope", "pets:write")
	s.accountant = s.NewKey("good", "--scope", "usage:read")
	s.elsewhere, s.testKey = s.NewKey("good", "--allow", "192.0.2.0/24"), s.NewKey("good", "--test")
	s.suspended, s.unlimited = s.NewTenant("suspended"), s.NewTenant("unlimited", "--plan", "enterprise")
	s.spent, s.hr = s.NewTenant("spent", "--minute", "1"), s.NewTenant("spent-day", "--day", "1")
	s.MustKeyadmin("key", "revoke", s.revoked.ID, "--yes")
	s.MustKeyadmin("ban", "add", s.banned.ID, "--for", "1h", "--reason", "a test", "--yes")
	s.MustKeyadmin("tenant", "suspend", "suspended", "--yes")
	for _, key := range []fleet.Key{s.spent, s.hr} {
		send(t, s.gateway(), "the one request of the limit", operations[0], request{token: key.Token})
	}
	return s
}

// The refusals that a client can provoke at the ordinary gateway, in the order of its stages.
var refusals = []refusal{
	{code: "bad_request", request: good(request{header: []string{"Authorization: Bearer another"}})},
	{code: "request_timeout", request: good(request{cut: true})},
	{code: "body_too_large", request: good(request{header: []string{"Content-Length: 999999999"}, body: "{}"})},
	{code: "uri_too_long", request: good(request{query: "?x=" + strings.Repeat("x", 9000)})},
	{code: "expectation_failed", request: good(request{header: []string{"Expect: the impossible"}})},
	{code: "headers_too_large", request: good(request{header: slices.Repeat([]string{"X-Filler: " + strings.Repeat("x", 1000)}, 40)})},
	{code: "missing_api_key", request: func(*system) request { return request{} }},
	{code: "malformed_api_key", request: key(func(s *system) fleet.Key { return fleet.Key{Token: s.good.Token[:46] + "!"} })},
	{code: "invalid_api_key", request: key(func(s *system) fleet.Key { return s.revoked })},
	{code: "invalid_api_key", request: key(func(s *system) fleet.Key { return s.expired })},
	{code: "invalid_api_key", request: key(func(s *system) fleet.Key { return s.testKey })},
	{code: "address_not_allowed", request: key(func(s *system) fleet.Key { return s.elsewhere })},
	{code: "tenant_suspended", charged: true, request: key(func(s *system) fleet.Key { return s.suspended })},
	{code: "quota_not_set", charged: true, request: key(func(s *system) fleet.Key { return s.unlimited })},
	{code: "key_banned", charged: true, request: key(func(s *system) fleet.Key { return s.banned })},
	{code: "minute_quota_exceeded", charged: true, request: key(func(s *system) fleet.Key { return s.spent })},
	{code: "day_quota_exceeded", charged: true, request: key(func(s *system) fleet.Key { return s.hr })},
	{code: "method_not_allowed", request: good(request{method: "DELETE"})},
	{code: "insufficient_scope", only: "createPet", request: key(func(s *system) fleet.Key { return s.readOnly })},
	{code: "insufficient_scope", only: "listPets", request: key(func(s *system) fleet.Key { return s.writeOnly })},
	{code: "insufficient_scope", only: "getPet", request: key(func(s *system) fleet.Key { return s.writeOnly })},
	{code: "insufficient_scope", only: "getUsage", request: key(func(s *system) fleet.Key { return s.good })},
	{code: "invalid_parameter", only: "getUsage", request: func(s *system) request {
		return request{token: s.accountant.Token, query: "?since=401d"}
	}},
	{code: "pet_not_found", only: "getPet", request: good(request{target: "/v1/pets/9223372036854775807"})},
	{code: "invalid_parameter", only: "getPet", request: good(request{target: "/v1/pets/one"})},
	{code: "invalid_parameter", only: "listPets", request: good(request{query: "?limit=101"})},
	{code: "invalid_request", only: "createPet", request: good(request{body: `{"name":"Rex"}`})},
	{code: "unsupported_media_type", only: "createPet", request: good(request{header: []string{"Content-Type: text/plain"}})},
	{
		code:    "idempotency_key_reused",
		only:    "createPet",
		request: good(request{header: []string{"Idempotency-Key: used"}, body: `{"name":"Another","categoryId":1}`}),
	},
	{code: "request_in_progress", base: (*system).faulty, only: "createPet", request: fault("409")},
	{code: "internal", pets: true, base: (*system).faulty, request: fault("500")},
	{code: "upstream_failed", pets: true, base: (*system).faulty, request: fault("garbage")},
	{code: "upstream_refused", pets: true, base: (*system).faulty, request: fault("401")},
	{code: "database_unavailable", pets: true, base: (*system).faulty, request: fault("503")},
	{code: "upstream_timeout", pets: true, base: (*system).faulty, request: fault("hang")},
}

// good sends a request with a key that may make it.
func good(r request) func(*system) request {
	return func(s *system) request {
		mine := r // each database's test has a system of its own
		mine.token = s.good.Token
		return mine
	}
}

func key(of func(*system) fleet.Key) func(*system) request {
	return func(s *system) request { return request{token: of(s).Token} }
}

func fault(kind string) func(*system) request { return good(request{query: "?fault=" + kind}) }

func TestEveryAnswerIsInTheDocument(t *testing.T) {
	t.Parallel()
	testkit.EachDatabase(t, func(t *testing.T, database string) {
		t.Parallel() // most of the time goes to timeouts
		s := startSystem(t, database)
		answers := append(s.successes(t), s.refusals(t)...)
		answers = append(answers, s.failedAttempts(t)...)
		answers = append(answers, s.overloaded(t)...)
		answers = append(answers, s.reports(t)...)
		answers = append(answers, s.gone(t))
		checkAnswers(t, answers)
	})
}

// successes requests every operation with success. The first one stores the pet that the others
// find; the second one repeats it.
func (s *system) successes(t *testing.T) []answer {
	t.Helper()
	var answers []answer
	for _, o := range []operation{operations[1], operations[1], operations[0], operations[2], report, usage} {
		token := s.good.Token
		if o.id == usage.id {
			token = s.accountant.Token
		}
		a := send(t, s.gateway(), "success of", o, request{token: token, header: []string{"Idempotency-Key: used"}})
		want := http.StatusOK
		if o.method == http.MethodPost {
			want = http.StatusCreated
		}
		if a.status != want {
			t.Fatalf("%s: %d %s", a.what, a.status, a.body)
		}
		answers = append(answers, a)
	}
	return answers
}

func (s *system) refusals(t *testing.T) []answer {
	t.Helper()
	testkit.Eventually(t, time.Minute, "the short-lived key expires", func() bool {
		a := send(t, s.gateway(), "expiry", operations[0], request{token: s.expired.Token})
		return a.status == http.StatusUnauthorized
	})
	var answers []answer
	for _, r := range refusals {
		for _, o := range operations {
			isOwn := o.id == report.id || o.id == usage.id
			if r.only != "" && r.only != o.id || r.charged && o.id == report.id || r.pets && isOwn {
				continue
			}
			base := s.gateway()
			if r.base != nil {
				base = r.base(s)
			}
			if r.code == "minute_quota_exceeded" { // the request that used the minute up may be a minute ago
				send(t, base, "the one request of the limit", operations[0], request{token: s.spent.Token})
			}
			what := r.request(s)
			if strings.Contains(what.target+what.query, "fault=garbage") {
				s.awaitUpstream(t) // three failures in a row take an upstream out for a while
			}
			a := send(t, base, r.code, o, what)
			if a.code != r.code {
				t.Errorf("%s: %d %s", a.what, a.status, a.body)
			}
			answers = append(answers, a)
		}
	}
	return answers
}

// gone requests the deprecated operation at a gateway whose document says that it has ended.
func (s *system) gone(t *testing.T) answer {
	t.Helper()
	earlier := strings.NewReplacer(
		"x-deprecated-at: '2026-", "x-deprecated-at: '2020-",
		"x-sunset: '2030-", "x-sunset: '2021-",
	)
	ended := earlier.Replace(string(api.Pets().Source()))
	gateway := s.AddGateway("GATEWAY_API=" + write(t, filepath.Join(t.TempDir(), "ended.yaml"), ended))
	a := send(t, gateway.URL, "after the end of", operations[2], request{token: s.good.Token})
	if a.status != http.StatusGone || a.code != "operation_removed" {
		t.Errorf("%s: %d %s", a.what, a.status, a.body)
	}
	return a
}

// awaitUpstream waits until the faulty upstream gets requests again.
func (s *system) awaitUpstream(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, "the upstream is back", func() bool {
		a := send(t, s.faulty(), "success behind", operations[0], request{token: s.good.Token})
		return a.status == http.StatusOK
	})
}

// failedAttempts sends well-formed tokens without a key, until the gateway tells the address to
// wait.
func (s *system) failedAttempts(t *testing.T) []answer {
	t.Helper()
	var answers []answer
	for _, o := range operations {
		for i := 0; ; i++ {
			a := send(t, s.gateway(), "an unknown token", o, request{token: unknownToken(t)})
			answers = append(answers, a)
			if a.status == http.StatusTooManyRequests {
				if a.code != "too_many_failed_attempts" {
					t.Errorf("%s: %s", a.what, a.body)
				}
				break
			}
			if a.code != "invalid_api_key" || i > 100 {
				t.Fatalf("%s, attempt %d: %d %s", a.what, i, a.status, a.body)
			}
		}
	}
	return answers
}

// reports asks for the quota with keys whose other requests are refused. Then it asks with one key
// until that is refused as too frequent.
func (s *system) reports(t *testing.T) []answer {
	t.Helper()
	var answers []answer
	for _, key := range []fleet.Key{s.banned, s.suspended, s.unlimited, s.spent, s.readOnly, s.writeOnly} {
		a := send(t, s.gateway(), "success of", report, request{token: key.Token})
		if a.status != http.StatusOK {
			t.Errorf("%s: %d %s", a.what, a.status, a.body)
		}
		answers = append(answers, a)
	}
	testkit.Eventually(t, fleet.ReplyWithin, "the quota is asked for too often", func() bool {
		a := send(t, s.gateway(), "too many", report, request{token: s.good.Token})
		answers = append(answers, a)
		return a.status == http.StatusTooManyRequests && a.code == "quota_polling"
	})
	return answers
}

// overloaded sends a request to a gateway that serves one request at a time and is serving one.
func (s *system) overloaded(t *testing.T) []answer {
	t.Helper()
	var answers []answer
	for _, o := range operations {
		var a answer
		testkit.Eventually(t, fleet.ReplyWithin, "a request is refused while another one hangs", func() bool {
			hung := make(chan struct{})
			go func() {
				defer close(hung)
				send(t, s.faulty(), "occupy the only slot", operations[0],
					request{token: s.good.Token, query: "?fault=hang"})
			}()
			for {
				select {
				case <-hung:
					return false
				default:
				}
				a = send(t, s.faulty(), "overloaded", o, request{token: s.good.Token})
				if a.status == http.StatusServiceUnavailable && a.code == "overloaded" {
					<-hung
					return true
				}
			}
		})
		answers = append(answers, a)
	}
	return answers
}

// A call uses its key if it is charged, also if its answer is a refusal. What is refused before
// that is shown apart.
func TestLastUse(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{Gateways: 1, Upstreams: fleet.FixedUpstream(t)})
	f.NewTenant("acme", fleet.Unlimited...)
	suspended := f.NewTenant("suspended", fleet.Unlimited...)
	f.MustKeyadmin("tenant", "suspend", "suspended", "--yes")
	spender := f.NewTenant("spent", "--minute", "1", "--day", "1000")
	f.Gateways[0].Want(t, spender.Token, 200, "")
	revoked, banned, disabled := f.NewKey("acme"), f.NewKey("acme"), f.NewKey("acme")
	f.MustKeyadmin("key", "disable", disabled.ID, "--yes")
	f.MustKeyadmin("key", "revoke", revoked.ID, "--yes")
	f.MustKeyadmin("ban", "add", banned.ID, "--for", "1h", "--reason", "test", "--yes")
	c := f.Gateways[0].Client()
	defer c.Close()
	calls := []struct {
		key          fleet.Key
		target, code string
		isUse        bool
	}{
		{f.NewKey("acme"), "GET /v1/pets", "", true},
		{f.NewKey("acme"), "GET /v1/quota", "", true},
		{f.NewKey("acme"), "GET /v1/nothing", "no_such_route", true},
		{f.NewKey("acme", "--scope", "pets:write"), "GET /v1/pets", "insufficient_scope", true},
		{f.NewKey("acme", "--allow", "192.0.2.0/24"), "GET /v1/pets", "address_not_allowed", false},
		{revoked, "GET /v1/pets", "invalid_api_key", false},
		{disabled, "GET /v1/pets", "invalid_api_key", false},
		{banned, "GET /v1/pets", "key_banned", false},
		{suspended, "GET /v1/pets", "tenant_suspended", false},
		{f.NewKey("spent"), "GET /v1/pets", "minute_quota_exceeded", false},
	}
	for _, call := range calls {
		if a, err := c.Do(fleet.Request(call.target, call.key.Token, "")); err != nil || a.Code() != call.code {
			t.Fatalf("%s: %d %q, want %q: %v", call.target, a.Status, a.Code(), call.code, err)
		}
	}
	for _, call := range calls {
		var used, refused bool
		testkit.Eventually(t, fleet.ReplyWithin, "the call is known", func() bool {
			var k operate.KeyView
			must.Do(t, json.Unmarshal([]byte(f.MustKeyadmin("key", "show", call.key.ID, "-o", "json")), &k))
			used, refused = k.LastUsedAt != "", k.LastRefusedAt != ""
			return used || refused
		})
		if used != call.isUse || refused == call.isUse {
			t.Errorf("after %s, %q: used %t, refused %t", call.target, call.code, used, refused)
		}
	}
	if a := f.Gateways[0].MustAsk(t, disabled.Token); !strings.Contains(
		a.Body, "the API key is disabled: ask your contact to enable it",
	) {
		t.Error(a.Body)
	}
	f.MustKeyadmin("key", "enable", disabled.ID)
	f.Gateways[0].Want(t, disabled.Token, 200, "")
}
