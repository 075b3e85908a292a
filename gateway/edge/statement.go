package edge

import (
	"bytes"
	"context"
	"encoding/csv"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"petgate/gateway/http1"
	"petgate/gateway/share"
	"petgate/shared/api"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

// Statements has the usage of tenants.
type Statements interface {
	// Statement returns a tenant's usage by period, which is an hour or a UTC day, beginning with the period of since. It returns at
	// most rowsMax rows. It may ask a database, until ctx ends.
	Statement(ctx context.Context, t id.Tenant, since instant.Millis, period time.Duration, rowsMax int) (Statement, error)
}

// Statement is the usage of one tenant.
type Statement struct {
	Rows            []StatementRow // ordered by start, key, operation and outcome
	CompleteThrough instant.Millis // it has all requests that were made before, except those that the service has lost
}

// StatementRow is the number of requests of one key in one period that called one operation and ended in one way.
type StatementRow struct {
	Start     instant.Millis
	Key       id.Key
	Operation string // empty: refused before the operation was known
	Outcome   string
	Requests  int64
	Charged   int64 // of the requests: taken from the quota
}

const (
	// statementsMax is how many statements are read and written at a time. Meanwhile, they hold about 10 MB together. What is then sent
	// has up to 2 MB and counts no longer: the client's connection holds it until it is sent or WriteTimeout passes.
	statementsMax = 2

	// tenantStatementsMax is how many of these one tenant has.
	tenantStatementsMax = 1

	// statementWithin is how long a client waits for its statement at most.
	statementWithin = 2 * time.Second

	// statementRowsMax bounds the response: a row has up to 200 bytes.
	statementRowsMax = 10_000
)

// tooManyRows refuses a statement that is too long. Nothing is left out without notice.
const tooManyRows = `the parameter "since" asks for more than 10,000 rows: send a shorter one, or by=day`

const (
	hour = time.Hour
	day  = 24 * time.Hour
)

// How far back statements go. By hour they end earlier, because they have more rows.
const (
	sinceMin       = time.Hour
	sinceDefault   = 7 * day
	sinceHourlyMax = 35 * day
	sinceMax       = 400 * day // usage is kept for a day longer, so the first day is whole
)

// statementReads counts what is being read.
type statementReads struct {
	tenants  *share.Shares
	running  atomic.Int64
	loggedAt atomic.Int64 // when a failure was logged last, in Unix ms
}

func (r *statementReads) end(t id.Tenant) {
	r.running.Add(-1)
	r.tenants.Return(t)
}

// statementAsk is what a client asked for. It keeps nothing of the exchange, because the exchange may end first.
type statementAsk struct {
	tenant    id.Tenant
	now       instant.Millis
	since     time.Duration
	period    time.Duration
	isCSV     bool
	requestID string
}

// written is a statement as the client gets it.
type written struct {
	text     []byte
	mimeType string
	refusal  refusal // instead of the text
}

// statement answers a request for the tenant's usage. The request has passed all stages, and is charged like any other. A goroutine of
// its own reads the statement: the client waits statementWithin at most, even if the database does not answer for longer.
func (e *Edge) statement(x *exchange) refusal {
	ask, wrong := x.readStatementAsk()
	if wrong.isRefused() {
		return wrong
	}
	if !e.reads.tenants.Take(ask.tenant) {
		return refusal{reason: usageOverloaded, message: "another request for the usage of your account is being answered: try again"}
	}
	if e.reads.running.Add(1) > statementsMax {
		e.reads.end(ask.tenant)
		return refusal{reason: usageOverloaded}
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.statementWithin)
	defer cancel()
	answer := make(chan *written, 1)
	go func() {
		w := e.readStatement(ctx, ask)
		e.reads.end(ask.tenant)
		answer <- w
	}()
	var w *written
	select {
	case w = <-answer:
	case <-ctx.Done():
		select {
		case w = <-answer: // it was ready, too
		default:
			e.logStatement(ask, ctx.Err())
			return refusal{reason: usageUnavailable}
		}
	}
	if w.refusal.reason == invalidParameter {
		x.parameter = "since"
	}
	x.statement = w
	return w.refusal
}

// readStatementAsk reads the parameters. Unknown ones are ignored. Known ones must not be repeated.
func (x *exchange) readStatementAsk() (ask statementAsk, wrong refusal) {
	ask = statementAsk{
		tenant: x.entry.Tenant, now: x.now, since: sinceDefault, period: day,
		isCSV: weight(&x.request, "accept", "text/csv") > weight(&x.request, "accept", "application/json"), requestID: string(x.id),
	}
	invalid := func(name, text string) refusal {
		x.parameter = parameter(name)
		return refusal{reason: invalidParameter, message: `the parameter "` + name + `" ` + text}
	}
	var args fasthttp.Args
	args.ParseBytes(x.request.Target[min(len(x.request.Path)+1, len(x.request.Target)):])
	for _, p := range []struct {
		name string
		read func(value []byte) (wrong string)
	}{{"by", ask.readBy}, {"since", ask.readSince}} {
		switch values := args.PeekMulti(p.name); len(values) {
		case 0:
		case 1:
			if text := p.read(values[0]); text != "" {
				return ask, invalid(p.name, text)
			}
		default:
			return ask, invalid(p.name, "must not be repeated")
		}
	}
	if ask.period == hour && ask.since > sinceHourlyMax {
		return ask, invalid("since", "must be at most 35d by hour: send a shorter one, or by=day")
	}
	return ask, refusal{}
}

// readBy reads the period. It says what is wrong with it.
func (a *statementAsk) readBy(value []byte) (wrong string) {
	switch string(value) {
	case "hour":
		a.period = hour
	case "day":
		a.period = day
	default:
		return "must be hour or day"
	}
	return ""
}

// readSince reads how far back the statement goes. It says what is wrong with it.
func (a *statementAsk) readSince(value []byte) (wrong string) {
	var ok bool
	if a.since, ok = parseAge(value); !ok || a.since < sinceMin || a.since > sinceMax {
		return "must be a number of hours or days, from 1h to 400d, such as 36h or 7d"
	}
	return ""
}

// parseAge reads a number of hours or days: 36h, 7d.
func parseAge(text []byte) (age time.Duration, ok bool) {
	const digitsMax = 4
	if len(text) < 2 || len(text) > digitsMax+1 {
		return 0, false
	}
	n, ok := http1.ParseDigits(text[:len(text)-1])
	switch text[len(text)-1] {
	case 'h':
		return time.Duration(n) * hour, ok
	case 'd':
		return time.Duration(n) * day, ok
	}
	return 0, false
}

// readStatement reads and writes a statement. It runs in a goroutine of its own, so it does not panic.
func (e *Edge) readStatement(ctx context.Context, ask statementAsk) (w *written) {
	defer func() {
		if panicked := recover(); panicked != nil {
			e.log.Error("panic", "requestId", ask.requestID, "panic", panicked, "stack", string(debug.Stack()))
			w = &written{refusal: refusal{reason: internal}}
		}
	}()
	s, err := e.statements.Statement(ctx, ask.tenant, ask.now.Add(-ask.since), ask.period, statementRowsMax+1)
	switch {
	case err != nil:
		e.logStatement(ask, err)
		return &written{refusal: refusal{reason: usageUnavailable}}
	case len(s.Rows) > statementRowsMax:
		return &written{refusal: refusal{reason: invalidParameter, message: tooManyRows}}
	case ask.isCSV:
		return &written{text: s.csv(ask), mimeType: "text/csv; charset=utf-8; header=present"}
	}
	return &written{text: s.json(ask), mimeType: "application/json"}
}

// logStatement logs at most one failure in a minute: clients may ask again and again while the database is away. After the clock has
// stepped back, it does not wait for the old time.
func (e *Edge) logStatement(ask statementAsk, err error) {
	was := e.reads.loggedAt.Load()
	if ask.now.Sub(instant.Millis(was)).Abs() < complainEvery || !e.reads.loggedAt.CompareAndSwap(was, int64(ask.now)) {
		return
	}
	e.log.Warn("the usage of a tenant cannot be read", "tenant", ask.tenant.String(), "requestId", ask.requestID, "error", err)
}

// writeStatement writes the response.
func (x *exchange) writeStatement(h *fasthttp.ResponseHeader) {
	h.SetContentType(x.statement.mimeType)
	h.AddBytesK(nameVary, "Accept")
	x.rc.Response.SetBodyRaw(x.statement.text) // not SetBody: fasthttp would keep a buffer of this size
}

// json writes the statement as JSON.
func (s *Statement) json(ask statementAsk) []byte {
	by := "day"
	if ask.period == hour {
		by = "hour"
	}
	dst := append(append([]byte(`{"by":"`), by...), `","since":"`...)
	dst = appendStart(dst, ask.now.Add(-ask.since).Truncate(ask.period))
	dst = appendStart(append(dst, `","completeThrough":"`...), s.CompleteThrough)
	dst = append(dst, `","rows":[`...)
	for i, r := range s.Rows {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendStart(append(dst, `{"start":"`...), r.Start)
		dst = r.Key.AppendTo(append(dst, `","key":"`...))
		dst = api.AppendString(append(dst, `","operation":`...), r.Operation)
		dst = api.AppendString(append(dst, `,"outcome":`...), r.Outcome)
		dst = strconv.AppendInt(append(dst, `,"requests":`...), r.Requests, 10)
		dst = append(strconv.AppendInt(append(dst, `,"charged":`...), r.Charged, 10), '}')
	}
	return append(dst, `]}`...)
}

// appendStart appends an instant. It rounds down to a second: what is complete through an instant is complete before it too.
func appendStart(dst []byte, at instant.Millis) []byte {
	return at.Time().AppendFormat(dst, time.RFC3339)
}

// csv writes the statement as CSV (RFC 4180). Its last column says whether the period of the row is complete.
func (s *Statement) csv(ask statementAsk) []byte {
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	w.UseCRLF = true
	// A buffer takes everything, so there are no errors.
	_ = w.Write([]string{"start", "key", "operation", "outcome", "requests", "charged", "complete"})
	for _, r := range s.Rows {
		_ = w.Write([]string{
			r.Start.String(), r.Key.String(), r.Operation, r.Outcome, strconv.FormatInt(r.Requests, 10), strconv.FormatInt(r.Charged, 10),
			strconv.FormatBool(r.Start.Add(ask.period) <= s.CompleteThrough),
		})
	}
	w.Flush()
	return text.Bytes()
}

// parameter is the name of an invalid parameter, the details of a refusal.
type parameter string

// AppendJSON implements api.Details.
func (p parameter) AppendJSON(dst []byte) []byte {
	return append(api.AppendString(append(dst, `{"parameter":`...), string(p)), '}')
}
