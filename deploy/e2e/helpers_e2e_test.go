//go:build e2e

package e2e_test

import (
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// least waits until n requests had the expected response since the beginning.
func (l *traffic) least(t testing.TB, n int) {
	t.Helper()
	for l.count(200)+l.count(201) < n {
		l.more(t, 250)
	}
}

// roll restarts gateways in turn. The next one ends only when the last one gets requests again.
func (l *traffic) roll(t *testing.T, gateways []*fleet.Program) {
	t.Helper()
	l.more(t, 250)
	for _, g := range gateways {
		restart(t, g)
		testkit.Eventually(t, fleet.ReplyWithin, "requests at the gateway that was restarted", func() bool {
			return g.Metric(t, "petgate_gateway_requests_total", `outcome="ok"`) > 0
		})
		l.more(t, 250)
	}
}

// count returns how many requests so far were answered with a status.
func (l *load) count(status int) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.shots {
		if s.Status == status {
			n++
		}
	}
	return n
}

// between returns the requests that started within the time.
func (l *load) between(from, to time.Time) (found []shot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.shots {
		if !s.started.Before(from) && s.started.Before(to) {
			found = append(found, s)
		}
	}
	return found
}

func admitted(all []shot) (n int) {
	for _, one := range all {
		if one.Status == 200 {
			n++
		}
	}
	return n
}

// inMode reports whether every gateway decides on quotas in this mode: "shared" or "outage".
func (s *quotaSite) inMode(mode string) bool {
	for _, g := range s.Gateways {
		if g.Metrics()[`petgate_gateway_limits_mode{mode="`+mode+`"}`] != 1 {
			return false
		}
	}
	return true
}
