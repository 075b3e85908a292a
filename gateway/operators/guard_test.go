package operators

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/sessions"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Each role may make exactly the calls of its row in the table.
func TestRoles(t *testing.T) {
	s := newSite(t, testkit.SQLite(t))
	names := strings.NewReplacer(
		"{key}", "key_0123456789abcdef", "{tenant}", "none", "{plan}", "none", "{gateway}", "none", "{id}", "none",
	)
	for i := range calls {
		c := &calls[i]
		path := names.Replace(c.path)
		for _, role := range append(sessions.Roles, "") {
			got := s.as(s.tokens[role], c.method+" "+path, "")
			want := role.Allows(c.role)
			switch {
			case role == "" && got.status != 401,
				role != "" && want == (got.status == 403),
				got.status == 404 && strings.Contains(got.text, "no_such_route"):
				t.Errorf("%s %s as %q: %d %s", c.method, path, role, got.status, got.text)
			}
		}
	}
	if got := s.as(s.tokens[read], "POST /tenants", `{"name":"x"}`); got.status != 403 ||
		!strings.Contains(got.text, "this call needs the role admin; operator prog-read has the role read") {
		t.Errorf("%+v", got)
	}
	if got := s.want(200, "", "GET /tenants", ""); got.text != "[]\n" {
		t.Errorf("a call without its role has made %s", got.text)
	}
}

// Nothing but the token of an operator is accepted, and nothing of a browser.
func TestForeignRequests(t *testing.T) {
	s := newSite(t, testkit.SQLite(t))
	key := s.newKey().member("token")
	invitation := must.Get[string](t)(
		first(
			sessions.Of(s.store).InviteToConsole(t.Context(),
				sessions.ConsoleInvitation{Address: "a", Valid: time.Minute, Lasts: time.Minute}),
		),
	)
	session := must.First[string](t)(sessions.Of(s.store).OpenConsole(t.Context(), invitation, "a"))
	good := s.tokens[admin]
	revoked, _, err := sessions.Of(s.store).CreateOperator(t.Context(),
		sessions.OperatorToken{Name: "short", Role: admin, ExpiresAt: 1 << 50})
	must.Do(t, err)
	if got := s.as(revoked, "GET /tenants", ""); got.status != 200 {
		t.Errorf("before its end, a token gets %d", got.status)
	}
	must.Get[sessions.OperatorToken](t)(sessions.Of(s.store).RevokeOperator(t.Context(),
		"short")) // its end holds at once
	f := func(status int, token string, fields ...string) {
		t.Helper()
		for _, call := range []string{"GET /tenants", "POST /tenants"} {
			got := s.as(token, call, `{"name":"made"}`, fields...)
			if got.status != status || status == 401 && got.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with %q and %q: %d, want %d\n%s", call, token, fields, got.status, status, got.text)
			}
		}
	}
	for _, token := range []string{
		"", key, session, revoked, good[:41], good + "x", strings.ToUpper(good),
		"pto_" + strings.Repeat("a", 38),
	} {
		f(401, token)
	}
	f(401, "", "Authorization", "Basic "+good)
	f(401, good, "Authorization", "Bearer "+good)
	f(401, "", "X-Api-Key", good)
	f(403, good, "Cookie", "petgate-console="+session)
	f(403, "", "Cookie", "petgate-console="+session)
	f(403, "", "Cookie", "token="+good)
	f(403, good, "Origin", "https://evil.example")
	f(403, good, "Origin", s.url)
	f(403, good, "Origin", "null")
	f(403, good, "Sec-Fetch-Site", "same-origin")
	f(403, good, "Sec-Fetch-Mode", "navigate")
	f(421, good, "Host", "evil.example")
	if got := s.want(200, "", "GET /tenants", ""); strings.Contains(got.text, "made") {
		t.Error("a request that was refused has made a tenant")
	}
	if strings.Contains(s.log.String(), good) || strings.Contains(s.log.String(), key) {
		t.Errorf("the log has a token:\n%s", s.log)
	}
}

func first[A, B any](a A, _ B, err error) (A, error) { return a, err }

// An address that tries unknown tokens is refused. A program whose token is valid, and that has
// used it before, is not.
func TestFailuresAreLimited(t *testing.T) {
	s := newSite(t, testkit.SQLite(t))
	s.want(200, "", "GET /tenants", "")
	statuses := map[int]int{}
	for i := range 80 {
		got := s.as(fmt.Sprintf("pto_%038d", i), "GET /tenants", "")
		statuses[got.status]++
		if got.status == 429 &&
			(got.header.Get("Retry-After") == "" || !strings.Contains(got.text, "too_many_failed_attempts")) {
			t.Errorf("%+v", got)
		}
	}
	if statuses[401] != 60 || statuses[429] != 20 {
		t.Errorf("80 unknown tokens get %v, want 60 times 401 and 20 times 429", statuses)
	}
	s.want(200, "", "GET /tenants", "")
	if got := s.as(s.tokens[read], "GET /tenants", ""); got.status != 429 {
		t.Errorf("a token that this address has not used: %d", got.status)
	}
	s.now = s.now.Add(2 * time.Second)
	if got := s.as(s.tokens[read], "GET /tenants", ""); got.status != 200 {
		t.Errorf("after the wait: %d %s", got.status, got.text)
	}
}

// A request with an Idempotency-Key is carried out once. Its answer can be had again, with the
// token.
func TestRepeatedRequests(t *testing.T) {
	s := newSite(t, testkit.SQLite(t))
	id := s.newKey().member("id")
	once := []string{"Idempotency-Key", "1"}
	events := func() int { return strings.Count(s.want(200, "", "GET /audit?limit=1000", "").text, `"kind"`) }
	for i, c := range []struct {
		call, body string
		status     int
	}{
		{"POST /tenants", `{"name":"new"}`, 201},
		{"POST /plans", `{"name":"team"}`, 201},
		{"POST /keys", `{"tenant":"acme"}`, 201},
		{"POST /tenants/acme/suspend", "", 200},
		{"POST /tenants/acme/usage/reset", "", 200},
		{"POST /keys/" + id + "/rotate", `{"grace":"1h"}`, 201},
		{"POST /keys/" + id + "/rotate", `{"grace":"30m"}`, 201},
		{"POST /keys/" + id + "/revoke", "", 200},
		{"POST /bans", `{"key":"` + id + `","for":"1h","reason":"x"}`, 201},
	} {
		once[1] = fmt.Sprint(i)
		made := s.want(c.status, "", c.call, c.body, once...)
		before := events()
		again := s.want(c.status, "", c.call, c.body, once...)
		if again.text != made.text || made.header.Get("Idempotent-Replayed") != "" ||
			again.header.Get("Idempotent-Replayed") != "true" ||
			events() != before {
			t.Errorf("%s: at first\n%s\nand again\n%s", c.call, made.text, again.text)
		}
		s.want(422, `"code":"idempotency_key_reused"`, "POST /tenants", `{"name":"other"}`, once...)
		if other := s.as(s.tokens[keys], c.call, c.body, once...); other.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s: another operator gets the answer: %s", c.call, other.text)
		}
	}
	s.want(
		422, `"code":"idempotency_key_reused"`, "POST /tenants/acme/resume", "", "Idempotency-Key", "3",
	) // of suspend, with the same body
	s.want(400, "Idempotency-Key must be one text", "POST /tenants", `{"name":"z"}`, "Idempotency-Key",
		strings.Repeat("x", 256))
	s.want(400, "Idempotency-Key must be one text", "POST /tenants", `{"name":"z"}`, "Idempotency-Key", "a",
		"Idempotency-Key", "b")
}

// lossy loses every second answer after the request was carried out.
type lossy struct {
	mu     sync.Mutex
	random *rand.Rand
	lost   int
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.random.IntN(2) == 0 {
		l.lost++
		response.Body.Close()
		return nil, errors.New("the answer is lost")
	}
	return response, err
}

// Each of many requests makes one key, although half of the answers are lost and the requests are
// sent again.
func TestLostAnswersMakeNoSecondKey(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, databaseURL string) {
		n := 300
		if strings.HasPrefix(databaseURL, "postgres") {
			n = testkit.Size(300, 10_000)
		}
		s := newSite(t, databaseURL)
		s.want(201, "", "POST /tenants", `{"name":"acme"}`)
		transport := &lossy{random: rand.New(rand.NewPCG(1, 2))}
		client := &http.Client{Transport: transport}
		tokens, next := make([]string, n), make(chan int)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for i := range next {
					for tokens[i] == "" {
						r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+Root+"/keys",
							strings.NewReader(`{"tenant":"acme","name":"n`+fmt.Sprint(i)+`"}`))
						must.Do(t, err)
						r.Header = http.Header{
							"Authorization":   {"Bearer " + s.tokens[keys]},
							"Idempotency-Key": {fmt.Sprint("create ", i)},
						}
						response, err := client.Do(r)
						if err != nil {
							continue
						}
						text, _ := io.ReadAll(response.Body)
						response.Body.Close()
						if response.StatusCode == http.StatusServiceUnavailable { // the machine is busy
							continue
						}
						if tokens[i] = (reply{text: string(text)}).member("token"); response.StatusCode != 201 ||
							tokens[i] == "" {
							t.Errorf("%d %s", response.StatusCode, text)
							return
						}
					}
				}
			})
		}
		for i := range n {
			next <- i
		}
		close(next)
		group.Wait()
		tenant := must.Get[keystore.Tenant](t)(s.store.Tenant(t.Context(), "acme"))
		made := must.Get[[]keystore.Key](t)(keystore.Collect(lists.Of(s.store).Keys(t.Context(), tenant.ID)))
		if len(made) != n || transport.lost < n/3 {
			t.Errorf("%d keys, want %d; %d answers were lost", len(made), n, transport.lost)
		}
		for i, token := range tokens {
			if k, err := s.store.KeyByToken(t.Context(), token); err != nil || k.Name != fmt.Sprint("n", i) {
				t.Fatalf("the token of request %d is of %q: %v", i, k.Name, err)
			}
		}
		t.Logf("figure: %d creates with %d answers lost and repeated: %d keys", n, transport.lost, len(made))
	})
}
