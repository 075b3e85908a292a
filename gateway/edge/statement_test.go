package edge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/edge"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/testkit"
)

// fakeStatements replaces the database of usage.
type fakeStatements func(ctx context.Context, ask asked) (edge.Statement, error)

// asked is what the edge asks the database for.
type asked struct {
	tenant  id.Tenant
	since   instant.Millis
	period  time.Duration
	rowsMax int
}

func (f fakeStatements) Statement(ctx context.Context, t id.Tenant, since instant.Millis, period time.Duration, rowsMax int) (edge.Statement, error) {
	return f(ctx, asked{t, since, period, rowsMax})
}

// twoRows is a statement whose second row is of a day that is not complete.
func twoRows(context.Context, asked) (edge.Statement, error) {
	today := instant.Of(now).Truncate(24 * time.Hour)
	return edge.Statement{CompleteThrough: instant.Of(now) - 2001, Rows: []edge.StatementRow{
		{Start: today.Add(-24 * time.Hour), Key: id.Key{7}, Operation: "listPets", Outcome: "ok", Requests: 12, Charged: 11},
		{Start: today, Key: id.Key{7}, Outcome: "key_banned", Requests: 3},
	}}, nil
}

func rawUsage(query string, fields ...string) string {
	return rawStart("GET /v1/usage"+query+" HTTP/1.1", fields...)
}

// rawUsageOf is rawUsage of another key.
func rawUsageOf(key string) string { return strings.Replace(rawUsage(""), token, key, 1) }

func TestStatement(t *testing.T) {
	r := newRig(t, func(s *setup) { s.Clock = func() time.Time { return now } })
	client := r.dial(t)
	f := func(request, contentType, want string) {
		t.Helper()
		before := r.admitted.Load()
		got := client.ask(t, request)
		if got.Status != 200 || got.Body != want || got.field("content-type") != contentType {
			t.Errorf("%d %v\n%s\nwant\n%s", got.Status, got.Fields, got.Body, want)
		}
		if err := got.checkFields(); err != nil || got.field("x-stability") != "beta" || got.field("vary") != "Accept" {
			t.Errorf("%v, %v", err, got.Fields)
		}
		if charged := r.admitted.Load() - before; charged != 1 {
			t.Errorf("%d requests were charged", charged)
		}
	}
	const asJSON, asCSV = "application/json", "text/csv; charset=utf-8; header=present"
	const text = `{"by":"day","since":"2026-05-25T00:00:00Z","completeThrough":"2026-06-01T11:59:57Z","rows":[` +
		`{"start":"2026-05-31T00:00:00Z","key":"key_0w00000000000000","operation":"listPets","outcome":"ok","requests":12,"charged":11},` +
		`{"start":"2026-06-01T00:00:00Z","key":"key_0w00000000000000","operation":"","outcome":"key_banned","requests":3,"charged":0}]}`
	const lines = "start,key,operation,outcome,requests,charged,complete\r\n" +
		"2026-05-31T00:00:00Z,key_0w00000000000000,listPets,ok,12,11,true\r\n" +
		"2026-06-01T00:00:00Z,key_0w00000000000000,,key_banned,3,0,false\r\n"
	f(rawUsage(""), asJSON, text)
	f(rawUsage("", "Accept: */*"), asJSON, text)
	f(rawUsage("", "Accept: text/html, text/csv;q=0"), asJSON, text)
	f(rawUsage("", "Accept: text/csv"), asCSV, lines)
	f(rawUsage("", "Accept: text/html, Text/CSV;q=0.9, */*;q=0.1"), asCSV, lines)
	f(rawUsage("", "Accept: application/json;q=0.05, text/csv;q=0.1"), asCSV, lines)
	f(rawUsage("", "Accept: application/json, text/csv;q=0.1"), asJSON, text)
	f(rawUsage("", "Accept: text/csv;q=0.7, application/json;q=0.75"), asJSON, text)
	f(strings.Replace(rawUsage(""), "GET", "HEAD", 1), asJSON, "")
	if got := client.ask(t, rawUsageOf(readerToken)); got.Status != 403 || codeOf(got) != "insufficient_scope" ||
		!strings.Contains(got.Body, "usage:read") {
		t.Errorf("without the scope: %d %s", got.Status, got.Body)
	}
	if seen := r.upstream.Seen(); len(seen) != 0 {
		t.Errorf("the upstream got %v", seen)
	}
	r.awaitLines(t, 10)
	if lines := r.accessLog.String(); strings.Count(lines, `"operation":"getUsage"`) != 10 || strings.Count(lines, `"outcome":"ok"`) != 9 {
		t.Errorf("the access log has %s", lines)
	}
}

// What the client asks for is what the database is asked for, or it is refused with the cure.
func TestStatementParameters(t *testing.T) {
	var got []asked
	r := newRig(t, func(s *setup) {
		s.Clock = func() time.Time { return now }
		s.Statements = fakeStatements(func(_ context.Context, ask asked) (edge.Statement, error) {
			got = append(got, ask)
			return edge.Statement{}, nil
		})
	})
	client := r.dial(t)
	tenant := entries[apikey.Sum([]byte(token))].Tenant
	const hour, day = time.Hour, 24 * time.Hour
	for _, c := range []struct {
		query         string
		since, period time.Duration
	}{
		{"", 7 * day, day},
		{"?", 7 * day, day},
		{"?other=1&page=2", 7 * day, day},
		{"?by=hour", 7 * day, hour},
		{"?by=day&since=1h", hour, day},
		{"?since=36h&by=hour", 36 * hour, hour},
		{"?by=hour&since=35d", 35 * day, hour},
		{"?by=hour&since=840h", 35 * day, hour},
		{"?since=400d", 400 * day, day},
		{"?since=%34%30%30d", 400 * day, day},
	} {
		got = nil
		a := client.ask(t, rawUsage(c.query))
		want := asked{tenant, instant.Of(now.Add(-c.since)), c.period, 10_001}
		if a.Status != 200 || !strings.HasSuffix(a.Body, `"rows":[]}`) || !slices.Equal(got, []asked{want}) {
			t.Errorf("%s: %d %s; asked for %v, want %v", c.query, a.Status, a.Body, got, want)
		}
	}
	for query, want := range map[string][2]string{
		"?by=week": {"by", "must be hour or day"}, "?by=": {"by", "must be hour or day"}, "?by=day&by=day": {"by", "must not be repeated"},
		"?since=": {"since", "7d"}, "?since=h": {"since", "7d"}, "?since=7": {"since", "7d"}, "?since=7w": {"since", "7d"}, "?since=-1d": {"since", "7d"},
		"?since=+1d": {"since", "7d"}, "?since=1.5d": {"since", "7d"}, "?since=0h": {"since", "from 1h"}, "?since=401d": {"since", "to 400d"},
		"?since=9601h": {"since", "to 400d"}, "?since=99999999999999999999d": {"since", "to 400d"}, "?since=7d&since=7d": {"since", "must not be repeated"},
		"?since=36d&by=hour": {"since", "at most 35d by hour: send a shorter one, or by=day"},
	} {
		got = nil
		a := client.ask(t, rawUsage(query))
		if a.Status != 400 || codeOf(a) != "invalid_parameter" || !strings.Contains(a.Body, want[1]) ||
			!strings.Contains(a.Body, `"details":{"parameter":"`+want[0]+`"}`) || got != nil {
			t.Errorf("%s: %d %s; asked for %v", query, a.Status, a.Body, got)
		}
	}
}

// A statement that is too long is refused. Nothing is cut off.
func TestStatementIsBounded(t *testing.T) {
	rows := 10_000
	r := newRig(t, func(s *setup) {
		s.Statements = fakeStatements(func(context.Context, asked) (edge.Statement, error) {
			return edge.Statement{Rows: make([]edge.StatementRow, rows)}, nil
		})
	})
	client := r.dial(t)
	if got := client.ask(t, rawUsage("")); got.Status != 200 || strings.Count(got.Body, `"start"`) != rows || len(got.Body) > rows*200 {
		t.Errorf("%d, %d bytes", got.Status, len(got.Body))
	}
	rows++
	if got := client.ask(t, rawUsage("")); got.Status != 400 || !strings.Contains(got.Body, "more than 10,000 rows: send a shorter one, or by=day") ||
		!strings.Contains(got.Body, `"details":{"parameter":"since"}`) {
		t.Errorf("%d %s", got.Status, got.Body)
	}
}

// While a database is slow, two requests wait for it at most, only one of a tenant, and no other request does.
func TestSlowStatements(t *testing.T) {
	arrived, released := make(chan time.Duration), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	r := newRig(t, func(s *setup) {
		s.statementWithin = 0
		s.Statements = fakeStatements(func(ctx context.Context, ask asked) (edge.Statement, error) {
			select {
			case <-released:
			default:
				deadline, _ := ctx.Deadline()
				arrived <- time.Until(deadline)
				<-released
			}
			return twoRows(ctx, ask)
		})
	})
	t.Cleanup(release)
	answers, began := make(chan answer, 2), time.Now()
	client := r.dial(t)
	for _, key := range []string{token, otherToken} {
		waiting := r.dial(t)
		go func() {
			a, _ := waiting.try(rawUsageOf(key))
			answers <- a
		}()
		if left := receive(t, arrived, "the database is asked"); left > 2*time.Second {
			t.Errorf("the database has %v", left)
		}
		if got := client.ask(t, rawUsageOf(key)); got.Status != 503 || codeOf(got) != "usage_overloaded" || !strings.Contains(got.Body, "your account") {
			t.Errorf("a second one of the tenant: %d %s", got.Status, got.Body)
		}
	}
	if got := client.ask(t, rawUsageOf(rotatedToken)); got.Status != 503 || codeOf(got) != "usage_overloaded" || got.field("retry-after") != "1" {
		t.Errorf("a third one: %d %v %s", got.Status, got.Fields, got.Body)
	}
	for range 20 {
		if got := client.ask(t, rawGet()); got.Status != 200 {
			t.Errorf("another request: %d %s", got.Status, got.Body)
		}
	}
	release()
	for range 2 {
		got := receive(t, answers, "a slow one is answered")
		if isLate := time.Since(began) > 2*time.Second && codeOf(got) == "usage_unavailable"; got.Status != 200 && !isLate {
			t.Errorf("a slow one: %d %s", got.Status, got.Body)
		}
	}
	testkit.Eventually(t, patience, "usage can be read afterwards", func() bool { return client.ask(t, rawUsage("")).Status == 200 })
}

// If the usage cannot be read, the log says why: once in a minute, also after the clock has stepped back by an hour.
func TestStatementFails(t *testing.T) {
	var passed atomic.Int64
	r := newRig(t, func(s *setup) {
		s.Clock = func() time.Time { return now.Add(time.Duration(passed.Load())) }
		s.Statements = fakeStatements(func(context.Context, asked) (edge.Statement, error) {
			return edge.Statement{}, errors.New("the planted failure")
		})
	})
	client := r.dial(t)
	for n, after := range []time.Duration{0, 59 * time.Second, 60 * time.Second, -time.Hour} {
		passed.Store(int64(after))
		if got := client.ask(t, rawUsage("")); got.Status != 503 || codeOf(got) != "usage_unavailable" || got.field("retry-after") != "5" {
			t.Errorf("%d %v %s", got.Status, got.Fields, got.Body)
		}
		want := []int{1, 1, 2, 3}[n]
		testkit.Eventually(t, patience, fmt.Sprintf("the log has %d lines after %v", want, after), func() bool {
			return strings.Count(r.log.String(), "the planted failure") == want
		})
	}
}
