package keystore_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

// A code opens one session, even if many browsers try at once. Neither works after its end.
func TestConsoleSessions(t *testing.T) {
	const address = "https://gw-1:9090"
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		alice := s.As("keyadmin:alice")
		code, _, err := alice.InviteToConsole(t.Context(), keystore.ConsoleInvitation{ReadOnly: true, Address: address, Valid: time.Minute, Lasts: time.Hour})
		must.Do(t, err)
		for _, other := range []string{"", "gw-1:9090", "https://gw-66:9090"} {
			_, _, err := s.OpenConsole(t.Context(), code, other)
			wantError(t, err, keystore.ErrNotFound, "for another gateway")
		}
		var opened atomic.Pointer[string]
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				token, session, err := s.OpenConsole(t.Context(), code, address)
				if err != nil {
					wantError(t, err, keystore.ErrNotFound, "used before")
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
		session := must.Get[keystore.ConsoleSession](t)(s.ConsoleSession(t.Context(), token))
		wantEqual(t, "actor", session.Actor, "keyadmin:alice")

		for what, secret := range map[string]string{"code": code, "nothing": "", "another token": token[1:]} {
			if _, err := s.ConsoleSession(t.Context(), secret); err == nil {
				t.Errorf("%s is accepted as a session's token", what)
			}
		}
		_, _, err = s.OpenConsole(t.Context(), token, address)
		wantError(t, err, keystore.ErrNotFound)

		for range 2 { // the second time does nothing
			must.Do(t, alice.EndConsole(t.Context(), session))
		}
		_, err = s.ConsoleSession(t.Context(), token)
		wantError(t, err, keystore.ErrNotFound, "has ended")
		for range 2 {
			must.Get[string](t)(first(alice.InviteToConsole(t.Context(), keystore.ConsoleInvitation{Valid: time.Minute, Lasts: time.Hour})))
		}
		must.Do(t, alice.EndConsole(t.Context(), keystore.ConsoleSession{}))
		for _, want := range []int64{2, 0} {
			wantEqual(t, "ended sessions", must.Get[int64](t)(s.EndConsoles(t.Context())), want)
		}
		var history []string
		events := must.Get[[]keystore.Event](t)(keystore.Collect(s.Events(t.Context(), keystore.EventFilter{}, 0)))
		for _, e := range events {
			history = append(history, e.Kind+" by "+e.Actor)
		}
		wantEqual(t, "events", history, []string{
			"console.invited by keyadmin:alice", "console.opened by keyadmin:alice", "console.ended by keyadmin:alice",
			"console.invited by keyadmin:alice", "console.invited by keyadmin:alice", "console.ended by ada",
		})
		for _, e := range events {
			if text := fmt.Sprintf("%+v", e); strings.Contains(text, code) || strings.Contains(text, token) {
				t.Errorf("an event contains a secret: %s", text)
			}
		}
	})
}

// Codes and sessions end by the database's clock.
func TestConsoleSessionsEnd(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		short := keystore.ConsoleInvitation{Valid: time.Millisecond, Lasts: time.Hour}
		late, _, err := s.InviteToConsole(t.Context(), short)
		must.Do(t, err)
		deadline := time.Now().Add(10 * time.Second)
		for {
			token, _, err := s.OpenConsole(t.Context(), late, "")
			if err != nil {
				wantError(t, err, keystore.ErrNotFound)
				break
			}
			if late, _, err = s.InviteToConsole(t.Context(), short); err != nil || token == "" || time.Now().After(deadline) {
				t.Fatalf("a code of 1 ms still works: %v", err)
			}
		}
		code, _, err := s.InviteToConsole(t.Context(), keystore.ConsoleInvitation{Valid: time.Minute, Lasts: time.Millisecond})
		must.Do(t, err)
		token, _, err := s.OpenConsole(t.Context(), code, "")
		must.Do(t, err)
		for {
			if _, err := s.ConsoleSession(t.Context(), token); err != nil {
				wantError(t, err, keystore.ErrNotFound)
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("a session of 1 ms still lasts")
			}
		}
	})
}
