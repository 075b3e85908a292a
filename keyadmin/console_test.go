package main

import (
	"strings"
	"testing"

	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// The link has a code that opens one session in the name of the person who ran the command.
func TestConsole(t *testing.T) {
	t.Parallel()
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newMigrated(t, url)
		s.want(exitFailed, "no live gateway says that it serves the console", "console")
		for _, flag := range []string{"--read-only", "--gateway=gw-1", "--at=localhost:1"} {
			s.want(exitUsage, "cannot be combined", "console", "--end-sessions", flag)
		}
		s.want(exitUsage, "use 1s to 7d", "console", "--ttl", "8d")
		s.want(exitUsage, "use host:port", "console", "--at", "localhost")
		without, with := newStation(t), newStation(t)
		s.gateway(s.store(), "gw-1", "127.0.0.1:1").follow()
		s.gateway(s.store(), "gw-2", without.url).follow()
		s.want(exitFailed, "start one with --console", "console")
		s.want(exitFailed, "gw-1 (127.0.0.1) does not answer", "console")
		with.about.Console = true
		s.gateway(s.store(), "gw-3", with.url).follow()
		s.gateway(s.store(), "gw-4", "https://gw-4:9090").follow() // it is named, and not asked
		s.want(exitFailed, "there is no gateway \"gw-5\"", "console", "--gateway", "gw-5")

		for _, test := range []struct {
			args     []string
			page     string
			address  string
			readOnly bool
		}{
			{nil, "http://" + with.url + "/console/login", with.url, false},
			{[]string{"--gateway", "gw-4", "--read-only"}, "https://gw-4:9090/console/login", "https://gw-4:9090", true},
			{[]string{"--gateway", "gw-4", "--at", "127.0.0.1:9099"}, "https://127.0.0.1:9099/console/login", "https://gw-4:9090", false},
		} {
			link := s.ok(append([]string{"console"}, test.args...)...)
			page, code, _ := strings.Cut(link, "#")
			must.Equal(t, page, test.page, "keyadmin console %v", test.args)
			token, session, err := s.store().OpenConsole(t.Context(), code, test.address)
			if err != nil || session.Actor != "keyadmin:anna" || session.ReadOnly != test.readOnly {
				t.Fatalf("the session is %+v, %v", session, err)
			}
			s.want(exitUsage, "add --yes", "console", "--end-sessions")
			if _, err := s.store().ConsoleSession(t.Context(), token); err != nil {
				t.Errorf("a session has ended before the answer: %v", err)
			}
			s.ok("console", "--end-sessions", "--yes")
			if _, err := s.store().ConsoleSession(t.Context(), token); err == nil {
				t.Error("a session goes on after --end-sessions")
			}
		}
		events, err := s.store().FindEvents(t.Context(), keystore.EventFilter{}, 0, 1)
		if err != nil || events[0].Kind != keystore.ConsoleEnded || events[0].Actor != "keyadmin:anna" {
			t.Errorf("the last event is %+v, %v", events, err)
		}
	})
}
