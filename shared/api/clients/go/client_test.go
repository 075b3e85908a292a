package petgate_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	petgate "petgate/shared/api/clients/go"

	"petgate/shared/testkit/must"
)

const pet = `{"id":1,"name":"Rex","categoryId":1,"status":"available"}`

var newPet = petgate.NewPet{Name: "Rex", CategoryID: 1}

// arrival is a request that the fake service received.
type arrival struct {
	after          time.Duration // since the service began
	method, target string
	header         http.Header
	body           string
}

// service answers the client's requests in order, on the fake clock of the test. The last reply is
// repeated.
type service struct {
	replies []reply
	took    time.Duration // by each request on its way
	began   time.Time

	mu       sync.Mutex
	arrivals []arrival
}

type reply struct {
	status int // 0: the connection breaks
	header string
	body   string
	cut    bool // the connection breaks within the body
	err    error
}

var errBroken = errors.New("the test breaks the connection")

func refusal(status int, code, header string) reply {
	return reply{
		status: status,
		header: header,
		body:   fmt.Sprintf(`{"code":%q,"message":"Why.","status":%d}`, code, status),
	}
}

func (s *service) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	time.Sleep(s.took)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.replies[min(len(s.arrivals), len(s.replies)-1)]
	s.arrivals = append(s.arrivals, arrival{
		time.Since(s.began), request.Method, request.URL.String(), request.Header, string(body),
	})
	if r.status == 0 {
		return nil, cmp.Or(r.err, errBroken)
	}
	header := http.Header{"X-Request-Id": {"r-1"}}
	if name, value, ok := strings.Cut(r.header, ": "); ok {
		header.Set(name, value)
	}
	var content io.Reader = strings.NewReader(r.body)
	if r.cut {
		content = io.MultiReader(strings.NewReader(r.body[:len(r.body)/2]), broken{})
	}
	return &http.Response{StatusCode: r.status, Header: header, Body: io.NopCloser(content), Request: request}, nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// start returns a service and a client of it. It must be called within a synctest bubble.
func start(replies ...reply) (*service, *petgate.Client) {
	s := &service{replies: replies, began: time.Now()}
	return s, &petgate.Client{URL: "https://pets.example", Token: "ptg_test_x", HTTP: &http.Client{Transport: s}}
}

func TestARefusedRequestIsRepeatedAfterRetryAfter(t *testing.T) {
	ok, created := reply{status: 200, body: pet}, reply{status: 201, body: pet}
	for _, c := range []struct {
		name    string
		replies []reply
		least   []time.Duration // the earliest instant of each request
		slack   time.Duration   // the sum of the random parts is less than this
	}{
		{"minute", []reply{refusal(429, "minute_quota_exceeded", "Retry-After: 17"), ok}, []time.Duration{0, 17}, 1},
		{"no header", []reply{refusal(502, "upstream_unreachable", ""), ok}, []time.Duration{0, 0}, 1},
		{"unavailable", []reply{refusal(503, "database_unavailable", "Retry-After: 3"), ok}, []time.Duration{0, 3}, 1},
		{"timeout", []reply{refusal(504, "upstream_timeout", ""), ok}, []time.Duration{0, 0}, 1},
		{"in progress", []reply{refusal(409, "request_in_progress", "Retry-After: 1"), created}, []time.Duration{0, 1}, 1},
		{"broken", []reply{{}, created}, []time.Duration{0, 0}, 1},
		{"broken in the body", []reply{{status: 201, body: pet, cut: true}, created}, []time.Duration{0, 0}, 1},
		{"unknown code", []reply{refusal(429, "quite_new", "Retry-After: 2"), ok}, []time.Duration{0, 2}, 1},
		{"a date", []reply{refusal(503, "overloaded", "Retry-After: Sat, 01 Jan 2000 00:00:07 GMT"), ok}, []time.Duration{0, 7}, 1},
		{"not ours", []reply{{status: 503, header: "Retry-After: 5", body: "<html>"}, ok}, []time.Duration{0, 5}, 1},
		{
			"again and again",
			[]reply{
				{},
				refusal(429, "key_banned", "Retry-After: 60"),
				refusal(429, "minute_quota_exceeded", "Retry-After: 9"),
				ok,
			},
			[]time.Duration{0, 0, 60, 69},
			1 + 2 + 4,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, client := start(c.replies...)
				got, err := client.CreatePet(t.Context(), newPet, nil)
				if err != nil || got.Name != "Rex" || len(s.arrivals) != len(c.least) {
					t.Fatalf("%+v, %v after %d requests", got, err, len(s.arrivals))
				}
				for i, a := range s.arrivals {
					if least := c.least[i] * time.Second; a.after < least || a.after > least+c.slack*time.Second {
						t.Errorf("request %d came after %v, want %v to %v", i+1, a.after, least,
							least+c.slack*time.Second)
					}
				}
			})
		})
	}
}

func TestOtherErrorsAreReturnedAtOnce(t *testing.T) {
	for _, c := range []struct {
		reply reply
		want  error // nil: any
	}{
		{refusal(400, "invalid_request", ""), petgate.ErrorCodeInvalidRequest},
		{refusal(401, "invalid_api_key", ""), petgate.ErrorCodeInvalidAPIKey},
		{refusal(403, "insufficient_scope", ""), petgate.ErrorCodeInsufficientScope},
		{refusal(409, "quite_new", "Retry-After: 1"), petgate.ErrorCode("quite_new")},
		{refusal(422, "idempotency_key_reused", ""), petgate.ErrorCodeIdempotencyKeyReused},
		{refusal(500, "internal", ""), petgate.ErrorCodeInternal},
		{reply{status: 500, body: "<html>"}, petgate.ErrorCode("")},
		{reply{status: 201, body: "not JSON"}, nil},
		{reply{err: &tls.CertificateVerificationError{Err: errBroken}}, nil},
		{reply{status: 201, body: strings.Repeat(" ", 5<<20)}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, client := start(c.reply)
			_, err := client.CreatePet(t.Context(), newPet, nil)
			if err == nil || len(s.arrivals) != 1 || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%+v: %v after %d requests", c.reply, err, len(s.arrivals))
			}
			refused, typed := errors.AsType[*petgate.APIError](err)
			if typed != (c.want != nil) ||
				typed && (refused.Status != c.reply.status || refused.RequestID != "r-1" || refused.Message == "") {
				t.Errorf("%+v: %#v", c.reply, err)
			}
		})
	}
}

func TestDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := start(reply{
			status: 429, header: "Retry-After: 12",
			body: `{"code":"day_quota_exceeded","message":"Why.","status":429,` +
				`"details":{"policy":"day","limit":5,"used":7,"new":1}}`,
		})
		client.AttemptsMax = 1
		_, err := client.CreatePet(t.Context(), newPet, nil)
		e, ok := errors.AsType[*petgate.APIError](err)
		if !ok || e.RetryAfter != 12*time.Second || *e.Details.Policy != "day" || *e.Details.Used != 7 {
			t.Errorf("%#v", err)
		}
		must.Equal(t, err.Error(), "petgate: 429 day_quota_exceeded: Why. (request r-1)", "the text")
	})
}

func TestRepetitionsHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, client := start(reply{})
		if _, err := client.CreatePet(t.Context(), newPet, nil); err == nil || len(s.arrivals) != 8 {
			t.Errorf("%v after %d requests", err, len(s.arrivals))
		}
		s, client = start(refusal(503, "overloaded", "Retry-After: 1"))
		client.AttemptsMax = 20
		// The random part of a wait grows up to a minute: without that, all waits would end before
		// 38 s.
		_, err := client.CreatePet(t.Context(), newPet, nil)
		if !errors.Is(err, petgate.ErrorCodeOverloaded) || len(s.arrivals) != 20 ||
			time.Since(s.began) < 40*time.Second {
			t.Errorf("%v after %d requests and %v", err, len(s.arrivals), time.Since(s.began))
		}
		s, client = start(reply{})
		client.URL = "pets.example"
		if _, err := client.CreatePet(t.Context(), newPet, nil); err == nil || len(s.arrivals) != 0 {
			t.Errorf("without a scheme: %v after %d requests", err, len(s.arrivals))
		}
		s, client = start(reply{status: 201, body: pet})
		client.Token += "\n"
		if _, err := client.CreatePet(t.Context(), newPet, nil); err == nil || len(s.arrivals) != 0 ||
			time.Since(s.began) != 0 {
			t.Errorf("a line break in the token: %v after %d requests", err, len(s.arrivals))
		}
	})
}

// A redirect would take the key to another port, to a subdomain, or out of TLS.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, target := range []string{
		"https://pets.example:8443/v1/pets", "https://a.pets.example/v1/pets", "http://pets.example/v1/pets",
	} {
		synctest.Test(t, func(t *testing.T) {
			elsewhere := reply{status: 307, header: "Location: " + target}
			s, client := start(elsewhere, elsewhere, reply{status: 201, body: pet})
			_, err := client.CreatePet(t.Context(), newPet, nil)
			refusal, typed := errors.AsType[*petgate.APIError](err)
			if !typed || refusal.Status != 307 || len(s.arrivals) != 1 {
				t.Errorf("to %s: %v after %d requests", target, err, len(s.arrivals))
			}
			client.HTTP.CheckRedirect = func(*http.Request, []*http.Request) error { return nil } // the caller decides
			must.Get[petgate.Pet](t)(client.CreatePet(t.Context(), newPet, nil))
		})
	}
}

// A call that cannot succeed within its context does not wait for the context's end.
func TestAWaitThatIsTooLongIsNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, client := start(refusal(503, "limits_unavailable", "Retry-After: 60"))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for range 2 { // only a 429 keeps later calls back
			if _, err := client.CreatePet(ctx, newPet, nil); !errors.Is(err, petgate.ErrorCodeLimitsUnavailable) {
				t.Error(err)
			}
		}
		if len(s.arrivals) != 2 || time.Since(s.began) != 0 {
			t.Errorf("%d requests in %v", len(s.arrivals), time.Since(s.began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ended := errors.New("the user gave up")
		s, client := start(refusal(503, "limits_unavailable", "Retry-After: 60"))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Second, func() { cancel(ended) })
		if _, err := client.CreatePet(ctx, newPet, nil); !errors.Is(err, ended) ||
			!errors.Is(err, petgate.ErrorCodeLimitsUnavailable) {
			t.Error(err)
		}
		if len(s.arrivals) != 1 || time.Since(s.began) != 10*time.Second {
			t.Errorf("%d requests in %v", len(s.arrivals), time.Since(s.began))
		}
	})
}

// While a ban lasts longer than WaitMax, calls fail without a request: it could prolong the ban.
func TestALongBanIsReportedWithoutARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, client := start(refusal(429, "key_banned", "Retry-After: 3600"), reply{status: 201, body: pet})
		for range 3 {
			if _, err := client.CreatePet(t.Context(), newPet, nil); !errors.Is(err, petgate.ErrorCodeKeyBanned) {
				t.Error(err)
			}
			must.Equal(t, len(s.arrivals), 1, "requests")
			time.Sleep(19 * time.Minute)
		}
		client.WaitMax = time.Hour
		if _, err := client.CreatePet(t.Context(), newPet, nil); err != nil || s.arrivals[1].after < time.Hour {
			t.Errorf("%v, at %v", err, s.arrivals[1].after)
		}
	})
}

// After a 429, the other calls of the client wait as well. Of two, the one whose Retry-After ends
// last counts.
func TestCallsInParallelWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, client := start(refusal(429, "day_quota_exceeded", "Retry-After: 30"),
			refusal(429, "minute_quota_exceeded", "Retry-After: 5"), reply{status: 201, body: pet})
		s.took = time.Second
		var calls sync.WaitGroup
		create := func() {
			if _, err := client.CreatePet(t.Context(), newPet, nil); err != nil {
				t.Error(err)
			}
		}
		for i := range 50 {
			calls.Go(create)
			time.Sleep(100 * time.Millisecond)
			if i == 1 {
				time.Sleep(s.took) // both were refused
			}
		}
		calls.Wait()
		for i, a := range s.arrivals {
			if i > 1 && a.after < 30*time.Second {
				t.Errorf("request %d came after %v", i+1, a.after)
			}
		}
		must.Equal(t, len(s.arrivals), 52, "requests")
	})
}

// A client with a banned key can ask how long the ban lasts. This neither waits for the end of the
// ban, nor makes other calls wait.
func TestGetQuotaDoesNotWaitForOtherCalls(t *testing.T) {
	quota := reply{
		status: 200,
		body:   `{"plan":"free","ban":{"endsAt":"2026-01-01T00:00:00Z"},"policies":[{"name":"day","used":3}]}`,
	}
	synctest.Test(t, func(t *testing.T) {
		s, client := start(refusal(429, "key_banned", "Retry-After: 3600"), quota)
		if _, err := client.GetPet(t.Context(), 1); !errors.Is(err, petgate.ErrorCodeKeyBanned) {
			t.Error(err)
		}
		got, err := client.GetQuota(t.Context())
		if err != nil || got.Plan != "free" || got.Ban == nil || got.Policies[0].Used != 3 || s.arrivals[1].after != 0 {
			t.Errorf("%+v, %v, after %v", got, err, s.arrivals[1].after)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, client := start(refusal(429, "quota_polling", "Retry-After: 5"), reply{status: 200, body: pet}, quota)
		asked := make(chan error, 1)
		go func() { _, err := client.GetQuota(t.Context()); asked <- err }()
		synctest.Wait()
		_, err := client.GetPet(t.Context(), 1)
		must.Do(t, errors.Join(err, <-asked))
		if pet, quota := s.arrivals[1].after, s.arrivals[2].after; pet != 0 || quota < 5*time.Second {
			t.Errorf("GetPet arrived after %v, GetQuota again after %v", pet, quota)
		}
	})
}

func TestOneIdempotencyKeyForAllRequestsOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		created := reply{status: 201, body: pet}
		s, client := start(reply{}, refusal(502, "upstream_unreachable", ""), created, reply{}, created, reply{},
			created)
		own := "mine"
		for _, params := range []*petgate.CreatePetParams{nil, nil, {IdempotencyKey: &own}} {
			must.Get[petgate.Pet](t)(client.CreatePet(t.Context(), newPet, params))
		}
		var keys []string
		for _, a := range s.arrivals {
			keys = append(keys, a.header.Get("Idempotency-Key"))
			if a.body != `{"categoryId":1,"name":"Rex"}` || a.header.Get("Authorization") != "Bearer ptg_test_x" {
				t.Errorf("%+v", a)
			}
		}
		a, b := keys[0], keys[3]
		if want := []string{a, a, a, b, b, own, own}; !slices.Equal(keys, want) || a == b || len(a) < 20 ||
			a[0] != '"' {
			t.Errorf("the keys are %v", keys)
		}
	})
}

func TestListPetsFollowsTheLinks(t *testing.T) {
	page := func(next string) reply {
		return reply{status: 200, header: "Link: " + next, body: "[" + pet + "," + pet + "]"}
	}
	replies := []reply{
		page(`</v1/pets?limit=2&after=2>; rel="next"`), refusal(429, "minute_quota_exceeded", "Retry-After: 8"),
		page(`</other>; rel="prev", <?limit=2&after=4>; title="x"; rel="next"`),
		page(`</v1/pets>; rel="successor-version"`),
	}
	synctest.Test(t, func(t *testing.T) {
		s, client := start(replies...)
		limit := 2
		pets := 0
		for _, err := range client.ListPets(t.Context(), &petgate.ListPetsParams{Limit: &limit}) {
			must.Do(t, err)
			pets++
		}
		var targets []string
		for _, a := range s.arrivals {
			targets = append(targets, strings.TrimPrefix(a.target, "https://pets.example/v1/pets"))
		}
		want := []string{"?limit=2", "?limit=2&after=2", "?limit=2&after=2", "?limit=2&after=4"}
		if !slices.Equal(targets, want) || pets != 6 {
			t.Errorf("%d pets by %q", pets, targets)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, client := start(replies...)
		for range client.ListPets(t.Context(), nil) {
			break
		}
		if len(s.arrivals) != 1 || !strings.HasSuffix(s.arrivals[0].target, "/v1/pets?limit=100") {
			t.Errorf("for one pet, the requests were %v", s.arrivals)
		}
	})
}

// An error ends the loop, after the pets that were received. A link to another host would hand the
// key over.
func TestListPetsEndsWithAnError(t *testing.T) {
	for link, want := range map[string]string{
		"<https://elsewhere.example/v1/pets>": "another host", "<http://pets.example/v1/pets>": "another host",
		"</v1/pets?after=1>": "invalid_api_key", "<%zz>": "link",
	} {
		synctest.Test(t, func(t *testing.T) {
			_, client := start(
				reply{
					status: 200,
					header: "Link: " + link + `; rel="next"`,
					body:   "[" + pet + "]",
				},
				refusal(401, "invalid_api_key", ""),
			)
			var seen bytes.Buffer
			for pet, err := range client.ListPets(t.Context(), nil) {
				fmt.Fprint(&seen, pet.Name, " ", err, ";")
			}
			if got := seen.String(); !strings.HasPrefix(got, "Rex <nil>; ") || strings.Count(got, ";") != 2 ||
				!strings.Contains(got, want) {
				t.Errorf("%s: %s", link, got)
			}
		})
	}
}
