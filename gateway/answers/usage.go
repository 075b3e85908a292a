package answers

import (
	"bytes"
	"context"
	"encoding/csv"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"petgate/gateway/http1"
	"petgate/gateway/share"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore/usage"
)

// Statements has the usage of tenants.
type Statements interface {
	// Statement returns a tenant's usage by period, which is an hour or a UTC day, beginning with
	// the period of since: that of its live keys, or of its test keys. It returns at most rowsMax
	// rows. It may ask a database, until ctx ends.
	Statement(
		ctx context.Context, t id.Tenant, since instant.Millis, period time.Duration, isTest bool, rowsMax int,
	) (usage.Statement, error)
}

const (
	// statementsMax is how many statements are read and written at a time. Meanwhile, they hold
	// about 10 MB together. A finished statement has up to 2 MB and does not count: the client's
	// connection holds it until it is sent or the write timeout passes.
	statementsMax = 2

	// tenantStatementsMax is how many of these one tenant has.
	tenantStatementsMax = 1

	// statementWithin is how long a client waits for its statement at most.
	statementWithin = 2 * time.Second

	// rowsMax bounds the answer: a row has up to 200 bytes.
	rowsMax = 10_000

	// logEvery is how often a failure is logged at most: clients may ask again and again while the
	// database is away.
	logEvery = time.Minute
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

// Problem is why there is no answer. The zero Problem is none.
type Problem struct {
	Kind      ProblemKind
	Message   string // for the client; may be empty
	Parameter string // the one that is invalid
}

// ProblemKind says what kind of problem there is.
type ProblemKind uint8

// The kinds of problems.
const (
	InvalidParameter ProblemKind = iota + 1
	Overloaded                   // too many statements are being read
	Unavailable                  // the usage cannot be read
	Internal                     // a defect
)

// Usage answers requests for usage. Its methods are safe for concurrent use.
type Usage struct {
	from     Statements
	log      *slog.Logger
	within   time.Duration // the constant, except in tests
	tenants  *share.Shares // of what is being read
	running  atomic.Int64  // what is being read
	failures rate.Sometimes
}

// NewUsage returns the answers for the usage that from has.
func NewUsage(from Statements, log *slog.Logger) *Usage {
	return &Usage{
		from:     from,
		log:      log,
		within:   statementWithin,
		tenants:  share.New(tenantStatementsMax),
		failures: rate.Sometimes{Interval: logEvery},
	}
}

// Ask is a request for usage. It keeps nothing of the request, because that may end first.
type Ask struct {
	Tenant    id.Tenant
	IsTest    bool // by a test key
	Now       instant.Millis
	RequestID string

	since  time.Duration
	period time.Duration
	isCSV  bool
}

// Read reads the parameters. Unknown ones are ignored. Known ones must not be repeated.
func (a *Ask) Read(q *http1.Request) Problem {
	a.since, a.period = sinceDefault, day
	a.isCSV = weight(q, "accept", "text/csv") > weight(q, "accept", "application/json")
	parameters, err := url.ParseQuery(string(q.Target[min(len(q.Path)+1, len(q.Target)):]))
	if err != nil { // http1 has checked the encoding
		return Problem{
			Kind:    InvalidParameter,
			Message: "the query has a semicolon, which separates parameters for some programs: write %3B",
		}
	}
	if by := parameters["by"]; len(by) > 0 {
		a.period = periods[by[0]]
		if len(by) > 1 || a.period == 0 {
			return invalid("by", "must be hour or day, once")
		}
	}
	if since := parameters["since"]; len(since) > 0 {
		a.since = parseSince(since[0])
		if len(since) > 1 || a.since < sinceMin || a.since > sinceMax {
			return invalid("since", "must be a number of hours or days, from 1h to 400d, such as 36h or 7d, once")
		}
	}
	if a.period == hour && a.since > sinceHourlyMax {
		return invalid("since", "must be at most 35d by hour: send a shorter one, or by=day")
	}
	return Problem{}
}

var periods = map[string]time.Duration{"hour": hour, "day": day}

func invalid(name, must string) Problem {
	return Problem{InvalidParameter, `the parameter "` + name + `" ` + must, name}
}

// parseSince reads a number of hours or days, such as 36h or 7d. It returns 0 for anything else.
func parseSince(value string) time.Duration {
	const digitsMax = 4
	digits := len(value) - 1
	if digits <= 0 || digits > digitsMax {
		return 0
	}
	n, _ := http1.ParseDigits([]byte(value[:digits])) // 0 if these are no digits
	switch value[digits] {
	case 'h':
		return time.Duration(n) * hour
	case 'd':
		return time.Duration(n) * day
	}
	return 0
}

// Statement answers a request for usage. A goroutine of its own reads the statement: the client
// waits statementWithin at most, even if the database does not answer for longer.
func (u *Usage) Statement(ask Ask) (*Answer, Problem) {
	if !u.tenants.Take(ask.Tenant) {
		return nil, Problem{
			Kind:    Overloaded,
			Message: "another request for the usage of your account is being answered: try again",
		}
	}
	if u.running.Add(1) > statementsMax {
		u.end(ask.Tenant)
		return nil, Problem{Kind: Overloaded}
	}
	ctx, cancel := context.WithTimeout(context.Background(), u.within)
	defer cancel()
	type result struct {
		answer  *Answer
		problem Problem
	}
	done := make(chan result, 1)
	go func() {
		answer, problem := u.read(ctx, ask)
		u.end(ask.Tenant)
		done <- result{answer, problem}
	}()
	select {
	case r := <-done:
		return r.answer, r.problem
	case <-ctx.Done():
		return nil, u.unavailable(ask, ctx.Err())
	}
}

func (u *Usage) end(t id.Tenant) {
	u.running.Add(-1)
	u.tenants.Return(t)
}

// read reads and writes a statement. It runs in a goroutine of its own, so it does not panic.
func (u *Usage) read(ctx context.Context, ask Ask) (answer *Answer, problem Problem) {
	defer func() {
		if panicked := recover(); panicked != nil {
			u.log.Error("panic", "requestId", ask.RequestID, "panic", panicked, "stack", string(debug.Stack()))
			answer, problem = nil, Problem{Kind: Internal}
		}
	}()
	s, err := u.from.Statement(ctx, ask.Tenant, ask.Now.Add(-ask.since), ask.period, ask.IsTest, rowsMax+1)
	switch {
	case err != nil:
		return nil, u.unavailable(ask, err)
	case len(s.Rows) > rowsMax:
		return nil, Problem{InvalidParameter, tooManyRows, "since"}
	case ask.isCSV:
		return &Answer{Outcome: outcomeOK, Status: http.StatusOK, Fields: csvFields, Body: csvOf(s, ask)}, Problem{}
	}
	return &Answer{Outcome: outcomeOK, Status: http.StatusOK, Fields: statementFields, Body: jsonOf(s, ask)}, Problem{}
}

var (
	csvFields       = fieldsOf("Content-Type", "text/csv; charset=utf-8; header=present", "Vary", "Accept")
	statementFields = fieldsOf("Content-Type", "application/json", "Vary", "Accept")
)

// unavailable logs why there is no statement.
func (u *Usage) unavailable(ask Ask, err error) Problem {
	u.failures.Do(func() {
		u.log.Warn("the usage of a tenant cannot be read",
			"tenant", ask.Tenant.String(), "requestId", ask.RequestID, "error", err)
	})
	return Problem{Kind: Unavailable}
}

// jsonOf writes a statement as JSON. Instants are rounded down to a second: what is complete
// through an instant is complete before it, too.
func jsonOf(s usage.Statement, ask Ask) []byte {
	type row struct {
		Start     string `json:"start"`
		Key       id.Key `json:"key"`
		Operation string `json:"operation"`
		Outcome   string `json:"outcome"`
		Requests  int64  `json:"requests"`
		Charged   int64  `json:"charged"`
		Units     int64  `json:"units"`
	}
	rows := make([]row, len(s.Rows))
	for i, r := range s.Rows {
		rows[i] = row{r.Start.String(), r.Key, r.Operation, r.Outcome, r.Requests, r.Charged, r.Units}
	}
	by := "day"
	if ask.period == hour {
		by = "hour"
	}
	return encode(struct {
		By              string `json:"by"`
		Since           string `json:"since"`
		CompleteThrough string `json:"completeThrough"`
		Rows            []row  `json:"rows"`
	}{by, ask.Now.Add(-ask.since).Truncate(ask.period).String(), s.CompleteThrough.Time().Format(time.RFC3339), rows})
}

// csvOf writes a statement as CSV (RFC 4180). Its column complete says whether the period of the
// row is complete.
func csvOf(s usage.Statement, ask Ask) []byte {
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	w.UseCRLF = true
	// A buffer takes everything, so there are no errors.
	_ = w.Write([]string{"start", "key", "operation", "outcome", "requests", "charged", "complete", "units"})
	for _, r := range s.Rows {
		isComplete := r.Start.Add(ask.period) <= s.CompleteThrough
		_ = w.Write([]string{
			r.Start.String(), r.Key.String(), r.Operation, r.Outcome,
			strconv.FormatInt(r.Requests, 10),
			strconv.FormatInt(r.Charged, 10),
			strconv.FormatBool(isComplete),
			strconv.FormatInt(r.Units, 10),
		})
	}
	w.Flush()
	return text.Bytes()
}
