package edge_test

import (
	"errors"
	"strings"
	"testing"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

func oneRow() (keystore.Statement, error) {
	return keystore.Statement{Rows: []keystore.StatementRow{{Start: instant.Of(now), Key: id.Key{7}, Outcome: "key_banned", Requests: 3}}}, nil
}

func rawUsage(query string, fields ...string) string {
	return rawStart("GET /v1/usage"+query+" HTTP/1.1", fields...)
}

// A statement is charged like any request, and the service sees nothing of it.
func TestStatement(t *testing.T) {
	r := newRig(t, nil)
	client := r.dial(t)
	f := func(request string, status int, contentType, want string) {
		t.Helper()
		before := r.admitted.Load()
		got := client.ask(t, request)
		if err := got.checkFields(); got.Status != status || !strings.Contains(got.Body, want) || got.field("content-type") != contentType ||
			got.field("x-stability") != "beta" || (got.field("vary") == "Accept") != (status == 200) || err != nil || r.admitted.Load() != before+1 {
			t.Errorf("%d %v, %d charged, %v\n%s\nwant\n%s", got.Status, got.Fields, r.admitted.Load()-before, err, got.Body, want)
		}
	}
	f(rawUsage(""), 200, "application/json", `"outcome":"key_banned"`)
	f(rawUsage("", "Accept: text/csv"), 200, "text/csv; charset=utf-8; header=present", ",key_banned,3,")
	f(strings.Replace(rawUsage(""), "GET", "HEAD", 1), 200, "application/json", "")
	f(strings.Replace(rawUsage(""), token, readerToken, 1), 403, "application/json", "the API key needs the scope usage:read")
	f(rawUsage("?by=week"), 400, "application/json", `"details":{"parameter":"by"}`)
	r.awaitLines(t, 5)
	if lines := r.accessLog.String(); strings.Count(lines, `"operation":"getUsage"`) != 5 || strings.Count(lines, `"outcome":"ok"`) != 3 || len(r.upstream.Seen()) > 0 {
		t.Errorf("the upstream got a request, or the access log has %s", lines)
	}
}

// While the database fails, or is asked by as many as it may be, the client is told to wait. No other request waits.
func TestStatementThatCannotBeRead(t *testing.T) {
	arrived, released := make(chan bool), make(chan bool)
	r := newRig(t, func(s *setup) {
		s.statement = func() (keystore.Statement, error) {
			arrived <- true
			<-released
			return keystore.Statement{}, errors.New("planted")
		}
	})
	waiting, client, failed := r.dial(t), r.dial(t), make(chan answer, 1)
	go func() {
		a, _ := waiting.try(rawUsage(""))
		failed <- a
	}()
	receive(t, arrived, "the database is asked")
	if got := client.ask(t, rawUsage("")); got.Status != 503 || codeOf(got) != "usage_overloaded" || got.field("retry-after") != "1" {
		t.Errorf("a second one: %d %v %s", got.Status, got.Fields, got.Body)
	}
	if got := client.ask(t, rawGet()); got.Status != 200 {
		t.Errorf("another request: %d %s", got.Status, got.Body)
	}
	close(released)
	if got := receive(t, failed, "an answer"); got.Status != 503 || codeOf(got) != "usage_unavailable" || got.field("retry-after") != "5" {
		t.Errorf("%d %v %s", got.Status, got.Fields, got.Body)
	}
}
