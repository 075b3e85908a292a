package answers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// fakeStatements replaces the database of usage.
type fakeStatements func(ctx context.Context, ask asked) (usage.Statement, error)

// asked is what the database is asked for.
type asked struct {
	tenant  id.Tenant
	since   instant.Millis
	period  time.Duration
	isTest  bool
	rowsMax int
}

func (f fakeStatements) Statement(
	ctx context.Context, t id.Tenant, since instant.Millis, period time.Duration, isTest bool, rowsMax int,
) (usage.Statement, error) {
	return f(ctx, asked{t, since, period, isTest, rowsMax})
}

// twoRows is a statement whose second row is of a day that is not complete. The first one's is
// complete just then.
func twoRows(context.Context, asked) (usage.Statement, error) {
	today := instant.Of(now).Truncate(day)
	return usage.Statement{CompleteThrough: instant.Of(now) - 2001, Rows: []usage.StatementRow{
		{
			Start:     (instant.Of(now) - 2001).Add(-day),
			Key:       id.Key{7},
			Operation: "listPets",
			Outcome:   "ok",
			Requests:  12,
			Charged:   11,
			Units:     55,
		},
		{Start: today, Key: id.Key{7}, Outcome: "key_banned", Requests: 3},
	}}, nil
}

func newUsage(from fakeStatements) *Usage { return NewUsage(from, slog.New(slog.DiscardHandler)) }

// ask asks for the usage of a tenant.
func (u *Usage) ask(t *testing.T, tenant byte, query string, fields ...string) (*Answer, Problem) {
	t.Helper()
	a := Ask{Tenant: id.Tenant{tenant}, Now: instant.Of(now)}
	if problem := a.Read(request(t, "GET /v1/usage"+query, fields...)); problem.Kind != 0 {
		return nil, problem
	}
	return u.Statement(a)
}

func TestStatement(t *testing.T) {
	const asJSON, asCSV = "application/json", "text/csv; charset=utf-8; header=present"
	text := map[string]string{
		asJSON: `{"by":"day","since":"2026-05-25T00:00:00Z","completeThrough":"2026-06-01T11:59:57Z","rows":[` +
			`{"start":"2026-05-31T11:59:57Z","key":"key_0w00000000000000","operation":"listPets","outcome":"ok",` +
			`"requests":12,"charged":11,"units":55},` +
			`{"start":"2026-06-01T00:00:00Z","key":"key_0w00000000000000","operation":"","outcome":"key_banned",` +
			`"requests":3,"charged":0,"units":0}]}`,
		asCSV: "start,key,operation,outcome,requests,charged,complete,units\r\n" +
			"2026-05-31T11:59:57Z,key_0w00000000000000,listPets,ok,12,11,true,55\r\n" +
			"2026-06-01T00:00:00Z,key_0w00000000000000,,key_banned,3,0,false,0\r\n",
	}
	for accept, want := range map[string]string{
		"": asJSON, "*/*": asJSON, "text/html, text/csv;q=0": asJSON,
		"text/csv": asCSV, "text/html, Text/CSV;q=0.9, */*;q=0.1": asCSV,
		"application/json;q=0.05, text/csv;q=0.1": asCSV, "text/csv, application/json;q=0.9": asCSV,
		"application/json, text/csv;q=0.1": asJSON, "text/csv;q=0.7, application/json;q=0.75": asJSON,
	} {
		got, problem := newUsage(twoRows).ask(t, 1, "", "Other: text/csv", "Accept: "+accept)
		if problem.Kind != 0 || string(got.Body) != text[want] || field(got.Fields, "Content-Type") != want ||
			field(got.Fields, "Vary") != "Accept" {
			t.Errorf("%q: %v, %v", accept, got, problem)
		}
	}
}

// What the client asks for is what the database is asked for, or it is refused with the cure.
func TestStatementParameters(t *testing.T) {
	var got []asked
	u := newUsage(func(_ context.Context, ask asked) (usage.Statement, error) {
		got = append(got, ask)
		return usage.Statement{}, nil
	})
	for query, want := range map[string][2]time.Duration{
		"": {7 * day, day}, "?": {7 * day, day}, "?other=1&page=2": {7 * day, day},
		"?by=hour": {7 * day, hour}, "?by=day&since=1h": {hour, day},
		"?since=36h&by=hour": {36 * hour, hour}, "?since=0036h": {36 * hour, day},
		"?by=hour&since=840h": {35 * day, hour}, "?since=%34%30%30d": {400 * day, day},
	} {
		got = nil
		a, problem := u.ask(t, 1, query)
		wanted := asked{id.Tenant{1}, instant.Of(now.Add(-want[0])), want[1], false, 10_001}
		body := fmt.Sprintf(`{"by":"%s","since":"%s","completeThrough":"1970-01-01T00:00:00Z","rows":[]}`,
			map[time.Duration]string{hour: "hour", day: "day"}[want[1]], wanted.since.Truncate(want[1]))
		if problem.Kind != 0 || string(a.Body) != body || !slices.Equal(got, []asked{wanted}) {
			t.Errorf("%s: %s %v; asked for %v, want %v", query, a.Body, problem, got, wanted)
		}
	}
	const by, since = `the parameter "by" must be hour or day, once`,
		`the parameter "since" must be a number of hours or days, from 1h to 400d, such as 36h or 7d, once`
	for want, queries := range map[Problem][]string{
		{InvalidParameter, by, "by"}: {"?by=week", "?by", "?by=day&by=day"},
		{InvalidParameter, since, "since"}: strings.Fields("?since= ?since=h ?since=7w ?since=-1d ?since=1.5d ?since=0h ?since=401d " +
			"?since=00036h ?since=99999999999999999999d ?since=7d&since=7d"),
		{InvalidParameter, "the query has a semicolon, which separates parameters for some programs: write %3B", ""}: {"?by=hour;since=1d"},
		{InvalidParameter, `the parameter "since" must be at most 35d by hour: send a shorter one, or by=day`, "since"}: strings.Fields(
			"?since=36d&by=hour ?since=841h&by=hour"),
	} {
		for _, query := range queries {
			got = nil
			if _, problem := u.ask(t, 1, query); problem != want || got != nil {
				t.Errorf("%s: %v; asked for %v", query, problem, got)
			}
		}
	}
}

// A statement that is too long is refused. Nothing is cut off.
func TestStatementIsBounded(t *testing.T) {
	rows := 10_000
	u := newUsage(func(context.Context, asked) (usage.Statement, error) {
		return usage.Statement{Rows: make([]usage.StatementRow, rows)}, nil
	})
	u.within = time.Minute
	if got, problem := u.ask(t, 1, ""); problem.Kind != 0 || strings.Count(string(got.Body), `"start"`) != rows ||
		len(got.Body) > rows*200 {
		t.Errorf("%v, %v", problem, got)
	}
	rows++
	if _, problem := u.ask(t, 1, ""); problem != (Problem{InvalidParameter, tooManyRows, "since"}) {
		t.Errorf("%v", problem)
	}
}

// While a database hangs, two requests wait for it at most, only one of a tenant, and none for
// longer than two seconds. What hangs still counts when its client has gone.
func TestStatementHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		u := newUsage(func(ctx context.Context, ask asked) (usage.Statement, error) {
			<-released
			return twoRows(ctx, ask)
		})
		problems := make(chan Problem, 2)
		began := time.Now()
		for tenant := range byte(2) {
			go func() {
				_, problem := u.ask(t, tenant, "")
				problems <- problem
			}()
			synctest.Wait()
			const busy = "another request for the usage of your account is being answered: try again"
			if _, problem := u.ask(t, tenant, ""); problem != (Problem{Overloaded, busy, ""}) {
				t.Errorf("a second one of the tenant: %v", problem)
			}
		}
		for range 2 {
			if problem := <-problems; problem.Kind != Unavailable {
				t.Errorf("one that hangs: %v", problem)
			}
		}
		waited := time.Since(began)
		if _, problem := u.ask(t, 3, ""); problem.Kind != Overloaded || problem.Message != "" {
			t.Errorf("a third one: %v", problem)
		}
		close(released)
		synctest.Wait()
		must.Equal(t, waited, statementWithin, "how long the clients waited")
		_, problem := u.ask(t, 3, "")
		must.Equal(t, problem.Kind, 0, "the problem afterwards")
	})
}

// If the usage cannot be read, the log says why, once in a minute. A driver that panics is a
// failure, too.
func TestStatementFails(t *testing.T) {
	log := &testkit.Output{}
	failing := func(context.Context, asked) (usage.Statement, error) {
		return usage.Statement{}, errors.New("planted")
	}
	u := NewUsage(fakeStatements(failing), slog.New(slog.NewTextHandler(log, nil)))
	for range 3 {
		if _, problem := u.Statement(Ask{RequestID: "r"}); problem.Kind != Unavailable ||
			strings.Count(log.String(), "requestId=r error=planted") != 1 {
			t.Errorf("%v; the log has %s", problem, log)
		}
	}
	u.from = fakeStatements(func(context.Context, asked) (usage.Statement, error) { panic("a defect") })
	if _, problem := u.Statement(Ask{}); problem.Kind != Internal || !strings.Contains(log.String(), "a defect") {
		t.Errorf("%v; the log has %s", problem, log)
	}
}
