package keystore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/keystore/sessions"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// A code opens one session, even if many browsers try at once. Neither works after its end.
func TestConsoleSessions(t *testing.T) {
	const address = "https://gw-1:9090"
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		alice := s.As("keyadmin:alice")
		code := must.First[string](t)(sessions.Of(alice).InviteToConsole(t.Context(),
			sessions.ConsoleInvitation{ReadOnly: true, Address: address, Valid: time.Minute, Lasts: time.Hour}))
		for _, other := range []string{"", "gw-1:9090", "https://gw-66:9090"} {
			refused(t, keystore.ErrNotFound, "for another gateway")(sessions.Of(s).OpenConsole(t.Context(), code, other))
		}
		var opened atomic.Pointer[string]
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				token, session, err := sessions.Of(s).OpenConsole(t.Context(), code, address)
				if err != nil {
					refused(t, keystore.ErrNotFound, "used before")(err)
					return
				}
				if session.Actor != "keyadmin:alice" || !session.ReadOnly {
					t.Errorf("the session is %+v", session)
				}
				if !opened.CompareAndSwap(nil, &token) {
					t.Error("one code opened two sessions")
				}
			})
		}
		group.Wait()
		token := *opened.Load()
		session := must.Get[sessions.ConsoleSession](t)(sessions.Of(s).ConsoleSession(t.Context(), token))
		if left := time.Until(session.EndsAt.Time()); left < 50*time.Minute || left > 70*time.Minute ||
			session.ID == "" {
			t.Errorf("the session ends in %v: %+v", left, session)
		}
		wantEqual(t, "the session", session, sessions.ConsoleSession{
			ID: session.ID, Actor: "keyadmin:alice", ReadOnly: true, EndsAt: session.EndsAt, Role: sessions.RoleRead,
		})

		for what, secret := range map[string]string{"code": code, "nothing": "", "another token": token[1:]} {
			if _, err := sessions.Of(s).ConsoleSession(t.Context(), secret); err == nil {
				t.Errorf("%s is accepted as a session's token", what)
			}
		}
		refused(t, keystore.ErrNotFound)(sessions.Of(s).OpenConsole(t.Context(), token, address))

		for range 2 { // the second time does nothing
			must.Do(t, sessions.Of(alice).EndConsole(t.Context(), session))
		}
		refused(t, keystore.ErrNotFound, "has ended")(sessions.Of(s).ConsoleSession(t.Context(), token))
		for _, short := range []sessions.ConsoleInvitation{{Valid: time.Minute, Lasts: time.Millisecond - 1}, {Valid: time.Millisecond - 1, Lasts: time.Minute}} {
			refused(t, keystore.ErrInvalid, "an invitation and a session last at least 1 ms")(
				sessions.Of(alice).InviteToConsole(t.Context(), short),
			)
			code = must.First[string](t)(
				sessions.Of(alice).InviteToConsole(t.Context(), sessions.ConsoleInvitation{Valid: time.Minute, Lasts: time.Hour}),
			)
		}
		token = must.First[string](t)(sessions.Of(s).OpenConsole(t.Context(), " "+code+"\n", ""))
		wantEqual(t, "the role", must.Get[sessions.ConsoleSession](t)(sessions.Of(s).ConsoleSession(t.Context(), token)).Role,
			sessions.RoleAdmin)
		must.Do(t, sessions.Of(alice).EndConsole(t.Context(), sessions.ConsoleSession{}))
		for _, want := range []int64{2, 0} {
			wantEqual(t, "ended sessions", must.Get[int64](t)(sessions.Of(s).EndConsoles(t.Context())), want)
		}
		var history []string
		for _, e := range events(t, s) {
			history = append(history, e.Kind+" by "+e.Actor)
			if text := fmt.Sprintf("%+v", e); strings.Contains(text, code) || strings.Contains(text, token) {
				t.Errorf("an event contains a secret: %s", text)
			}
		}
		wantEqual(t, "events", history, []string{
			"console.invited by keyadmin:alice", "console.opened by keyadmin:alice", "console.ended by keyadmin:alice",
			"console.invited by keyadmin:alice", "console.invited by keyadmin:alice", "console.opened by keyadmin:alice", "console.ended by ada",
		})
	})
}

// Codes and sessions end by the database's clock.
func TestConsoleSessionsEnd(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		invite := func(valid, lasts time.Duration) string {
			t.Helper()
			return must.First[string](t)(
				sessions.Of(s).InviteToConsole(t.Context(), sessions.ConsoleInvitation{Valid: valid, Lasts: lasts}),
			)
		}
		testkit.Eventually(t, time.Minute, "a code of 1 ms does not work", func() bool {
			_, _, err := sessions.Of(s).OpenConsole(t.Context(), invite(time.Millisecond, time.Hour), "")
			return errors.Is(err, keystore.ErrNotFound)
		})
		must.Get[int64](t)(sessions.Of(s).EndConsoles(t.Context()))
		token := must.First[string](t)(sessions.Of(s).OpenConsole(t.Context(), invite(time.Minute, time.Millisecond), ""))
		testkit.Eventually(t, time.Minute, "a session of 1 ms ends", func() bool {
			_, err := sessions.Of(s).ConsoleSession(t.Context(), token)
			return errors.Is(err, keystore.ErrNotFound)
		})
		wantEqual(t, "sessions that have not ended", must.Get[int64](t)(sessions.Of(s).EndConsoles(t.Context())), int64(0))
	})
}
