package console

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
	"petgate/shared/testkit"
)

// stage is a console with a session, and its database.
type stage struct {
	*testing.T
	console *Console
	db      *database.DB
	path    string // of its file
	store   *keystore.Store
	server  *httptest.Server
	cookie  *http.Cookie
}

// A gateway of these tests answers on a busy machine, too.
func init() { operate.LiveWithin, operate.AskWithin = time.Minute, time.Minute }

// newStage returns a console that sends live figures every few milliseconds. clock is time.Now if it is nil.
func newStage(t *testing.T, clock func() time.Time) *stage {
	t.Helper()
	url := testkit.SQLite(t)
	db, err := database.OpenOrCreate(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if err := db.Migrate(t.Context(), keystore.Migrations); err != nil {
		t.Fatal(err)
	}
	s := &stage{T: t, db: db, path: strings.TrimPrefix(url, "sqlite:"), store: keystore.New(db, clock, nil, "gw-1")}
	s.console, err = New(Config{
		Gateway: "gw-1", Store: s.store, Log: slog.New(slog.DiscardHandler), Clock: clock,
		Problems: func() []service.Problem {
			return []service.Problem{{Name: "quotas", Detail: "Redis <slow>", Serving: true}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.console.watch.every = 5 * time.Millisecond
	s.server = httptest.NewServer(s.console)
	t.Cleanup(s.server.Close)
	t.Cleanup(s.console.Close)
	code, _, err := s.store.As("keyadmin:alice").InviteToConsole(t.Context(), keystore.ConsoleInvitation{Valid: time.Minute, Lasts: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := s.store.OpenConsole(t.Context(), code, "")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(s.server.Listener.Addr().String())
	s.cookie = &http.Cookie{Name: "petgate-console-" + port, Value: token}
	return s
}

// request returns a request of the session. A body makes it a form.
func (s *stage) request(method, path, body string) *http.Request {
	r := httptest.NewRequestWithContext(s.Context(), method, path, strings.NewReader(body))
	r.Host = s.server.Listener.Addr().String()
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.AddCookie(s.cookie)
	return r
}

// send serves a request of the session without a connection.
func (s *stage) send(method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.console.ServeHTTP(w, s.request(method, path, body))
	return w
}

// Routes returns the patterns of all routes.
func (c *Console) Routes() []string { return c.routes }
