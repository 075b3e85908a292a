package api_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"petgate/shared/api"
	"petgate/shared/testkit/must"
)

func load(t *testing.T) *openapi3.T {
	t.Helper()
	return must.Get[*openapi3.T](t)(openapi3.NewLoader().LoadFromData(api.Pets().Source()))
}

func TestDocumentIsValid(t *testing.T) {
	doc := load(t)
	must.Do(t, doc.Validate(t.Context(), openapi3.EnableSchemaFormatValidation()))
	must.Equal(t, doc.Info.Version, "1.0.0", "the version")
}

// Every answer carries the rate-limit headers and a request ID, every 429 and 503 a Retry-After,
// every error an Error.
func TestDocumentKeepsItsPromises(t *testing.T) {
	doc := load(t)
	wantSchema := doc.Components.Schemas["Error"].Value
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				want := []string{
					"X-Request-Id", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit",
					"RateLimit-Policy",
				}
				switch status {
				case "401":
					want = append(want, "WWW-Authenticate")
				case "405":
					want = append(want, "Allow")
				case "409", "429", "503":
					want = append(want, "Retry-After")
				}
				for _, name := range want {
					if h := response.Value.Headers[name]; h == nil || !h.Value.Required {
						t.Errorf("%s %s: %s does not promise %s", method, path, status, name)
					}
				}
				schema := response.Value.Content.Get("application/json").Schema.Value
				must.Equal(t, schema == wantSchema, status >= "400", "%s %s: %s: the body is an Error", method, path,
					status)
			}
		}
	}
}

func TestOperations(t *testing.T) {
	got := api.Pets().Operations
	want := []api.Operation{
		{ID: "listPets", Method: http.MethodGet, Path: "/v1/pets", Scope: "pets:read"},
		{ID: "createPet", Method: http.MethodPost, Path: "/v1/pets", Scope: "pets:write", TakesKey: true},
		{
			ID: "getPet", Method: http.MethodGet, Path: "/v1/pets/{petId}", Scope: "pets:read",
			IsDeprecated: true, DeprecatedAt: time.Unix(1767225600, 0).UTC(),
			SunsetAt: time.Date(2030, 12, 5, 0, 0, 0, 0, time.UTC), Successor: "/v1/pets",
		},
		{ID: "getQuota", Method: http.MethodGet, Path: "/v1/quota", ByGateway: true, Stability: "beta"},
		{
			ID: "getUsage", Method: http.MethodGet, Path: "/v1/usage", Scope: "usage:read", ByGateway: true,
			Stability: "beta",
		},
	}
	must.Equal(t, cmp.Diff(want, got), "", "the difference")
}

func TestErrorJSON(t *testing.T) {
	f := func(e api.Error, want string) {
		t.Helper()
		got := string(e.AppendJSON(nil))
		must.Equal(t, got, want, "%+v", e)
		must.Equal(t, json.Valid([]byte(got)), true, "whether it is JSON: %s", got)
	}
	f(api.Error{Code: "c", Message: "A fault.", Status: 500}, `{"code":"c","message":"A fault.","status":500}`)
	f(api.Error{Code: "c", Message: "\"na\\me\"\x00\n\r\t\x1f\x7f é 日本 😀 \u2028 \xff\xc3", Status: 400},
		`{"code":"c","message":"\"na\\me\"\u0000\n\r\t\u001f`+"\x7f é 日本 😀 \u2028 \ufffd\ufffd"+`","status":400}`)

	limited := func(details api.Limited, want string) {
		t.Helper()
		f(api.Error{Code: "c", Message: "m", Status: 429, Details: details},
			`{"code":"c","message":"m","status":429,"details":`+want+`}`)
	}
	limited(api.Limited{}, `{}`)
	limited(api.Limited{
		Policy: "minute", Plan: "free", Limit: 60, Used: 60, ResetAt: 1767225660001, RetryAfter: 12,
		CountsStrikes: true, StrikesUntilBan: 29,
	}, `{"policy":"minute","plan":"free","limit":60,"used":60,"resetAt":"2026-01-01T00:01:01Z","retryAfter":12,`+
		`"strikesUntilBan":29}`)
	limited(api.Limited{
		Limit: 60, RetryAfter: 60, CountsStrikes: true, Ban: api.Ban{EndsAt: 1767225660000, IsAutomatic: true},
	}, `{"limit":60,"used":0,"retryAfter":60,"strikesUntilBan":0,`+
		`"ban":{"kind":"automatic","endsAt":"2026-01-01T00:01:00Z"}}`)
	limited(api.Limited{Policy: "ban", Ban: api.Ban{EndsAt: 1767225660001, Notice: "\"1\""}},
		`{"policy":"ban","ban":{"kind":"manual","endsAt":"2026-01-01T00:01:01Z","notice":"\"1\""}}`)
}

func TestAppendStringSaysWhatItWasGiven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytesAsText := rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })
		in := rapid.OneOf(rapid.String(), bytesAsText).Draw(t, "in")
		encoded := api.AppendString([]byte("x"), in)
		if !bytes.Equal(encoded, api.AppendString([]byte("x"), []byte(in))) {
			t.Fatalf("%q: a string and bytes are encoded differently", in)
		}
		var out string
		must.Do(t, json.Unmarshal(encoded[1:], &out))
		if want := strings.ToValidUTF8(in, ""); !strings.Contains(in, "\ufffd") &&
			strings.ReplaceAll(out, "\ufffd", "") != want {
			t.Fatalf("%q came back as %q", in, out)
		}
	})
}

// Only bytes that JSON requires to be escaped, or that are not ASCII, are escaped.
func TestAppendStringEscapes(t *testing.T) {
	for c := range 256 {
		encoded := api.AppendString(nil, []byte{byte(c)})
		isEscaped := len(encoded) > len(`"c"`)
		if isEscaped != (c < ' ' || c == '"' || c == '\\' || c >= 0x80) || !json.Valid(encoded) {
			t.Errorf("%#02x is encoded as %s", c, encoded)
		}
	}
}
