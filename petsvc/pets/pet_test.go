package pets

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"pgregory.net/rapid"

	"petgate/shared/api"
	"petgate/shared/testkit/must"
)

func TestDecode(t *testing.T) {
	named := func(name string) NewPet { return NewPet{Name: name, CategoryID: 1, Status: Available} }
	rex, longest := named("Rex"), strings.Repeat("😀", 200)
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	for _, c := range []struct {
		name, body string
		want       NewPet
		member     string // the invalid member; "-" = the body as a whole; empty = none
	}{
		{"the least", `{"name":"Rex","categoryId":1}`, rex, ""},
		{"all", `{"name":"Rex","categoryId":1,"status":"available"}`, rex, ""},
		{"another order, with space", " \t\r\n{ \"categoryId\" : 1 ,\n\"name\" : \"Rex\" }\n", rex, ""},
		{"unknown members", `{"name":"Rex","x":{"id":[1,{"name":null}]},"categoryId":1,"Name":7,"ID":1,"":0}`, rex, ""},
		{"sold", `{"name":"Rex","categoryId":1,"status":"sold"}`, NewPet{"Rex", 1, Sold}, ""},
		{"the least category", `{"name":"Rex","categoryId":-9223372036854775808}`, NewPet{"Rex", -1 << 63, Available}, ""},
		{"the greatest category", `{"name":"Rex","categoryId":9223372036854775807}`, NewPet{"Rex", 1<<63 - 1, Available}, ""},
		{
			"a name as sent", `{"name":"  Ünïcödé\u2028😀\ud83d\ude00\ufffd ","categoryId":1}`,
			named("  Ünïcödé\u2028😀😀\ufffd "), "",
		},
		{"200 characters", `{"name":"` + longest + `","categoryId":1}`, named(longest), ""},

		{"a name of a byte order mark", `{"name":"\ufeff","categoryId":1}`, rex, "name"},
		{"nothing", ``, rex, "-"},
		{"no object", `[{"name":"Rex","categoryId":1}]`, rex, "-"},
		{"null", `null`, rex, "-"},
		{"a byte order mark", "\ufeff" + `{"name":"Rex","categoryId":1}`, rex, "-"},
		{"trailing data", `{"name":"Rex","categoryId":1}{}`, rex, "-"},
		{"a raw control character", "{\"name\":\"R\nex\",\"categoryId\":1}", rex, "name"},
		{"a leading zero", `{"name":"Rex","categoryId":01}`, rex, "-"},
		{"deeper than anybody reads", `{"name":"Rex","categoryId":1,"x":` + deep + `}`, rex, "x"},
		{"a member's name that is not UTF-8", "{\"name\":\"Rex\",\"categoryId\":1,\"\xff\":1}", rex, "-"},

		{"no name", `{"categoryId":1}`, rex, "name"},
		{"no category", `{"name":"Rex"}`, rex, "categoryId"},
		{"an empty object", `{}`, rex, "name"},
		{"an id", `{"id":7,"name":"Rex","categoryId":1}`, rex, "id"},
		{"an id of null", `{"name":"Rex","categoryId":1,"id":null}`, rex, "id"},
		{"a name twice", `{"name":"Rex","categoryId":1,"name":"Rex"}`, rex, "name"},
		{"a name that is a number", `{"name":1,"categoryId":1}`, rex, "name"},
		{"a name that is null", `{"name":null,"categoryId":1}`, rex, "name"},
		{"an empty name", `{"name":"","categoryId":1}`, rex, "name"},
		{"a name of spaces", `{"name":" \u00a0\u2003","categoryId":1}`, rex, "name"},
		{"201 characters", `{"name":"` + strings.Repeat("x", 201) + `","categoryId":1}`, rex, "name"},
		{"a NUL in the name", `{"name":"R\u0000ex","categoryId":1}`, rex, "name"},
		{"a tab in the name", `{"name":"R\tex","categoryId":1}`, rex, "name"},
		{"a C1 control character in the name", `{"name":"R\u0085ex","categoryId":1}`, rex, "name"},
		{"a name that is not UTF-8", "{\"name\":\"R\xc3\",\"categoryId\":1}", rex, "name"},
		{"the first half of a pair", `{"name":"R\ud83dex","categoryId":1}`, rex, "name"},
		{"half a pair in an unknown member", `{"name":"Rex","categoryId":1,"x":["\udead"]}`, rex, "x"},
		{"a category that is a string", `{"name":"Rex","categoryId":"1"}`, rex, "categoryId"},
		{"a category that is null", `{"name":"Rex","categoryId":null}`, rex, "categoryId"},
		{"a category with a fraction", `{"name":"Rex","categoryId":1.0}`, rex, "categoryId"},
		{"a category with an exponent", `{"name":"Rex","categoryId":1e2}`, rex, "categoryId"},
		{"a category of 65 bits", `{"name":"Rex","categoryId":9223372036854775808}`, rex, "categoryId"},
		{"an unknown status", `{"name":"Rex","categoryId":1,"status":"lost"}`, rex, "status"},
		{"an empty status", `{"name":"Rex","categoryId":1,"status":""}`, rex, "status"},
		{"a status that is null", `{"name":"Rex","categoryId":1,"status":null}`, rex, "status"},
	} {
		got, err := decode([]byte(c.body))
		member := ""
		if r, ok := errors.AsType[*api.Error](err); ok {
			member = "-"
			if place, ok := r.Details.(api.Named); ok {
				member = place.Name
			}
			if r.Status != 400 || r.Code != "invalid_request" ||
				member != "-" && !strings.Contains(r.Message, strconv.Quote(member)) {
				t.Errorf("%s: %+v", c.name, r)
			}
		}
		if member != c.member || err == nil && got != c.want {
			t.Errorf("%s: decode(%.80s) = %+v, %v; want %+v, invalid %q", c.name, c.body, got, err, c.want, c.member)
		}
	}
}

func TestParseKey(t *testing.T) {
	for _, c := range []struct {
		line, want string // "" = it is refused
	}{
		{`"8e03978e-40d5-43e8-bc93-6894a57f9324"`, "8e03978e-40d5-43e8-bc93-6894a57f9324"},
		{`8e03978e-40d5-43e8-bc93-6894a57f9324`, "8e03978e-40d5-43e8-bc93-6894a57f9324"},
		{`"a key, of; words"`, "a key, of; words"},
		{`"\"\\"`, `"\`},
		{`" "`, " "},
		{`!#$%&'()*+-./:<=>?@[]^_{|}~`, `!#$%&'()*+-./:<=>?@[]^_{|}~`},
		{strings.Repeat("x", 255), strings.Repeat("x", 255)},
		{`"` + strings.Repeat(`\"`, 255) + `"`, strings.Repeat(`"`, 255)},

		{``, ""},
		{`"`, ""},
		{`""`, ""},
		{`"a`, ""},
		{`a"`, ""},
		{`"a"b"`, ""},
		{`"\a"`, ""},
		{`"a\"`, ""},
		{`a\b`, ""},
		{`"a";b=1`, ""},
		{`"a", "b"`, ""},
		{`a,b`, ""},
		{`a b`, ""},
		{"\"a\tb\"", ""},
		{`"ä"`, ""},
		{`ä`, ""},
		{"a\x7f", ""},
		{"a\x00", ""},
		{strings.Repeat("x", 256), ""},
		{`"` + strings.Repeat(`x`, 256) + `"`, ""},
	} {
		got, err := parseKey([][]byte{[]byte(c.line)})
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.line, got, err, c.want)
		}
	}
}

// A panic is answered with a 500 and logged, and a request that came too slowly with a 408. The log
// says once that the database is away, and once that it is back.
func TestFaultsOfTheServiceItself(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	s := &Service{config: Config{Log: log}, metrics: newMetrics(prometheus.NewRegistry(), nil)}
	rc := &fasthttp.RequestCtx{}
	s.route()
	rc.Request.SetRequestURI("/v1/pets")
	rc.Request.Header.Set(requestIDHeader, "r-1")
	s.handle(rc) // there is no store
	answered := func(status int, code string) {
		t.Helper()
		if body := string(rc.Response.Body()); rc.Response.StatusCode() != status || !strings.Contains(body, code) {
			t.Errorf("%d %s, want %d %s", rc.Response.StatusCode(), body, status, code)
		}
	}
	answered(500, `"internal"`)
	if !strings.Contains(text.String(), "panic: ") || !strings.Contains(text.String(), "requestId=r-1") {
		t.Errorf("logged: %s", &text)
	}
	s.handleUnreadable(rc, os.ErrDeadlineExceeded)
	answered(408, `"request_timeout"`)
	of := store{log: log, life: t.Context()}
	for _, err := range []error{errors.New("away"), errors.New("away"), nil, nil, nil} {
		of.report(err)
	}
	for _, line := range []string{"database is unavailable", "database is available"} {
		must.Equal(t, strings.Count(text.String(), line), 1, "how often it says %q: %s", line, &text)
	}
}

// TestPaths: every path has the methods that this plain rule says.
func TestPaths(t *testing.T) {
	s := &Service{config: Config{Secret: "open sesame"}}
	s.route()
	known := rapid.SampledFrom([]string{"v1", "pets", "", "1", "V1", "{petId}", "*", "pets1"})
	segment := rapid.OneOf(known, rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		path := "/" + strings.Join(rapid.SliceOfN(segment, 0, 4).Draw(t, "segments"), "/")
		if rapid.Bool().Draw(t, "below") {
			path = petPrefix + path[1:]
		}
		id, isBelow := strings.CutPrefix(path, petPrefix)
		isPet := isBelow && id != "" && !strings.Contains(id, "/")
		isList := path == listPath
		for method, want := range map[string]bool{
			"GET": isPet || isList, "HEAD": isPet || isList, "POST": isList, "PUT": false, "X": false,
		} {
			operation, _ := s.router.Lookup(method, path, new(fasthttp.RequestCtx))
			must.Equal(t, operation != nil, want, "there is %s %q", method, path)
		}
	})
}
