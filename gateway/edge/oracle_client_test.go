package edge_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"petgate/gateway/http1"
	"petgate/shared/testkit/must"
)

// answer is one response as the client read it.
type answer struct {
	Status int
	Fields map[string][]string
	Body   string
	Code   string // of the Error body; empty for an answer of the upstream
	Closes bool   // the gateway says that it closes

	mayContinue bool // 100 (Continue) came before it
}

func (a answer) field(name string) string { return strings.Join(a.Fields[name], " AND ") }

// expect compares the status, and the code of a refusal, with what is wanted, such as "200" or "503
// overloaded".
func (a answer) expect(t rapid.TB, what, want string) {
	t.Helper()
	must.Equal(t, strings.TrimSpace(fmt.Sprint(a.Status, " ", a.Code)), want, "%s, with %s", what, clip(a.Body))
}

var statusLine = regexp.MustCompile(`^HTTP/1\.1 ([1-5][0-9]{2}) [ -~]*$`)

// errNoAnswer is the end of the connection between two responses.
var errNoAnswer = errors.New("no answer")

// readAnswer reads one response by the grammar of RFC 9112, and skips interim ones. An answer to
// HEAD may have a length but has no content. toHead is called when the head has been read, and says
// whether this is an answer to HEAD.
func readAnswer(in *bufio.Reader, toHead func(in *bufio.Reader) bool) (a answer, err error) {
	for {
		if _, err := in.Peek(1); err != nil {
			return a, fmt.Errorf("%w: %w", errNoAnswer, err)
		}
		line, err := readLine(in)
		if err != nil {
			return a, err
		}
		parts := statusLine.FindStringSubmatch(line)
		if parts == nil {
			return a, malformed("status line %q", line)
		}
		a.Status, _ = strconv.Atoi(parts[1])
		if a.Fields, _, err = readFields(in); err != nil {
			return a, err
		}
		if a.Status >= 200 {
			break
		}
		if a.Status != 100 || len(a.Fields) > 0 {
			return a, malformed("interim response %d %v", a.Status, a.Fields)
		}
		a.mayContinue = true
	}
	a.Closes = strings.EqualFold(a.field("connection"), "close")
	if toHead(in) {
		return a, a.checkFields()
	}
	a.Body, err = readContent(in, a.Fields["content-length"], a.Fields["transfer-encoding"], fmt.Sprint(a.Fields))
	a.Code = codeOf(a)
	isLong := len(a.Body) >= http1.PartBytesMax || strings.HasPrefix(a.field("content-type"), "text/event-stream")
	if err == nil && a.Fields["transfer-encoding"] != nil && !isLong {
		return a, malformed("%d bytes in chunks", len(a.Body))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return a, fmt.Errorf("%w: %w", errCut, err)
	}
	if err != nil {
		return a, err
	}
	return a, a.checkFields()
}

// errCut is the end of the connection before that of a body.
var errCut = errors.New("the body is not whole")

// These functions say whether an answer is an answer to HEAD.
func no(*bufio.Reader) bool  { return false }
func yes(*bufio.Reader) bool { return true }

// guess decides by the next byte, so the next read must not block. All content is JSON, so it never
// begins with the H of a status line.
func guess(in *bufio.Reader) bool {
	next, _ := in.Peek(1)
	return len(next) == 0 || next[0] == 'H'
}

// mustHave are the fields of every response without exception, each exactly once.
var mustHave = map[string]*regexp.Regexp{
	"x-ratelimit-limit":     regexp.MustCompile(`^[0-9]+$`),
	"x-ratelimit-remaining": regexp.MustCompile(`^[0-9]+$`),
	"x-ratelimit-reset":     regexp.MustCompile(`^[0-9]{10}$`),
	"x-request-id":          regexp.MustCompile(`^[0-9A-Za-z_-]{8,64}$`),
}

// checkFields checks what the gateway promises of every response, its own or the upstream's.
func (a answer) checkFields() error {
	for name, shape := range mustHave {
		if got := a.Fields[name]; len(got) != 1 || !shape.MatchString(got[0]) {
			return malformed("%d has %s %q", a.Status, name, got)
		}
	}
	if waits := a.Fields["retry-after"]; (a.Status == 429 || a.Status == 503) &&
		(len(waits) != 1 || !lengthDigits.MatchString(waits[0])) {
		return malformed("%d has Retry-After %q", a.Status, waits)
	}
	if err := a.checkPolicies(); err != nil {
		return err
	}
	for _, name := range []string{"upgrade", "trailer", "keep-alive", "proxy-connection", "te"} {
		if a.Fields[name] != nil {
			return malformed("%d has %s %q", a.Status, name, a.Fields[name])
		}
	}
	return nil
}

// checkPolicies reads the structured fields (RFC 9651) with a parser that is not ours. The fields
// of a response agree: X-RateLimit-* are those of the policy that binds first, and on a 429 of the
// gateway, Retry-After is when that policy admits again.
func (a answer) checkPolicies() error {
	limits, err := policiesOf(a.Fields["ratelimit-policy"], "q", "w")
	if err != nil {
		return err
	}
	states, err := policiesOf(a.Fields["ratelimit"], "r", "t")
	if err != nil {
		return err
	}
	if len(limits) != len(states) {
		return malformed("%d has the policies %v and the states %v", a.Status, limits, states)
	}
	least, tight := states[0].first, false
	for _, s := range states {
		least = min(least, s.first)
	}
	for i, s := range states {
		isTight := s.first == least && a.field("x-ratelimit-remaining") == fmt.Sprint(s.first) &&
			a.field("x-ratelimit-limit") == fmt.Sprint(limits[i].first)
		if isTight && a.Status == 429 && strings.Contains(a.Body, `"details":`) {
			wait := fmt.Sprint(s.second)
			isTight = s.first == 0 && a.field("retry-after") == wait && strings.Contains(a.Body, `"retryAfter":`+wait)
		}
		tight = tight || isTight
		if s.name != limits[i].name || s.first > limits[i].first {
			return malformed("%d has the policy %v and the state %v", a.Status, limits[i], s)
		}
	}
	if !tight {
		return malformed("%d has the policies %v, the states %v, and %v", a.Status, limits, states, a.Fields)
	}
	if dates := a.Fields["deprecation"]; dates != nil {
		item, err := httpsfv.UnmarshalItem(dates)
		if _, isDate := item.Value.(time.Time); err != nil || !isDate {
			return malformed("%d has Deprecation %q: %v", a.Status, dates, err)
		}
	}
	return nil
}

// policyItem is an item of RateLimit or RateLimit-Policy.
type policyItem struct {
	name          string
	first, second int64
}

// policiesOf reads a list of strings with two parameters that are not negative.
func policiesOf(lines []string, first, second string) (items []policyItem, err error) {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil || len(list) == 0 {
		return nil, malformed("policies %q: %v", lines, err)
	}
	for _, member := range list {
		item, _ := member.(httpsfv.Item)
		name, isName := item.Value.(string)
		var values [2]int64
		for i, parameter := range []string{first, second} {
			value, _ := item.Params.Get(parameter)
			n, isInteger := value.(int64)
			values[i] = n
			if !isName || !isInteger || n < 0 || len(item.Params.Names()) != 2 {
				return nil, malformed("policy %v of %q", member, lines)
			}
		}
		items = append(items, policyItem{name, values[0], values[1]})
	}
	return items, nil
}

// refusal reads the Error body of the gateway's own 4xx or 5xx and checks it against the contract.
// An answer to HEAD has no body.
func (a answer) refusal() error {
	if a.Status < 400 {
		return nil
	}
	if got := a.field("content-type"); got != "application/json" {
		return malformed("%d has Content-Type %q", a.Status, got)
	}
	if a.Status == 401 != strings.HasPrefix(a.field("www-authenticate"), `Bearer realm="petgate"`) && a.Status != 403 {
		return malformed("%d has WWW-Authenticate %q", a.Status, a.field("www-authenticate"))
	}
	if a.Status == 405 != (a.field("allow") != "") {
		return malformed("%d has Allow %q", a.Status, a.field("allow"))
	}
	if a.Body != "" &&
		(a.Code == "" || !strings.Contains(a.Body, `"message":"`) || strings.Contains(a.Body, `"message":""`)) {
		return malformed("body %q of a %d", a.Body, a.Status)
	}
	return nil
}

// codeOf is the code of an Error body.
func codeOf(a answer) string {
	var body struct {
		Code   string
		Status int
	}
	if json.Unmarshal([]byte(a.Body), &body) != nil || body.Status != a.Status {
		return ""
	}
	return body.Code
}

// ended reports whether err is the end of a connection, and not an error in the bytes that were
// read.
func ended(err error) bool {
	return errors.Is(err, errNoAnswer) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// rawClient uses one connection for its requests until the connection ends, and then a new one.
type rawClient struct {
	address string
	conn    net.Conn
	in      *bufio.Reader
}

func (r *rig) dial(t testing.TB) *rawClient {
	c := &rawClient{address: r.address}
	t.Cleanup(c.close)
	return c
}

func (c *rawClient) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn, c.in = nil, nil
	}
}

// ask has a new client send a request.
func (r *rig) ask(t testing.TB, request string) answer {
	t.Helper()
	return r.dial(t).ask(t, request)
}

// say connects, writes text and reads nothing. What is read later must come in time.
func (r *rig) say(t testing.TB, text string) *rawClient {
	t.Helper()
	c := r.dial(t)
	must.Do(t, c.connect())
	must.Do(t, c.conn.SetReadDeadline(time.Now().Add(patience)))
	must.Get[int](t)(io.WriteString(c.conn, text))
	return c
}

// send writes text beside what the client reads: the gateway may respond before it has all of it.
func (c *rawClient) send(text string) {
	go func(to net.Conn) { _, _ = io.WriteString(to, text) }(c.conn)
}

// next reads the answer to what was said before.
func (c *rawClient) next(t rapid.TB) answer {
	t.Helper()
	a, err := readAnswer(c.in, no)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return a
}

// ask writes a request and reads its answer.
func (c *rawClient) ask(t rapid.TB, request string) answer {
	t.Helper()
	a, err := c.try(request)
	if err != nil {
		t.Fatalf("%q: %v", clip(request), err)
	}
	return a
}

func (c *rawClient) connect() (err error) {
	if c.conn, err = net.Dial("tcp", c.address); err == nil {
		c.in = bufio.NewReader(c.conn)
	}
	return err
}

func (c *rawClient) try(request string) (a answer, err error) {
	if c.conn == nil {
		if err := c.connect(); err != nil {
			return a, err
		}
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return a, err
	}
	if _, err := io.WriteString(c.conn, request); err != nil {
		c.close()
		return a, err
	}
	toHead := no
	if strings.HasPrefix(request, "HEAD ") {
		toHead = yes
	}
	if a, err = readAnswer(c.in, toHead); err != nil || a.Closes {
		c.close()
	}
	return a, err
}
