package main

import (
	"bytes"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// Charged and refused requests can be told apart without colour, and a few of them have a sign, too. Bars fit the width.
func TestBars(t *testing.T) {
	t.Parallel()
	hour := instant.Of(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	row := func(n time.Duration, outcome string, requests int64) keystore.UsageRow {
		return keystore.UsageRow{Hour: hour.Add(n * time.Hour), Outcome: outcome, Charged: outcome == "ok", Requests: requests}
	}
	rows := []keystore.UsageRow{
		row(0, "ok", 1), row(1, "minute_quota_exceeded", 1), row(1, "report", 9), row(3, "ok", 3600), row(3, "key_banned", 2400), row(4, "ok", 5999), row(4, "key_banned", 1),
	}
	const want = `HOUR (UTC)            CHARGED  REFUSED
2026-03-01T09:00:00Z        1        0  █
2026-03-01T10:00:00Z        0        1  ░
2026-03-01T11:00:00Z        0        0
2026-03-01T12:00:00Z    3,600    2,400  ████████████░░░░░░░░
2026-03-01T13:00:00Z    5,999        1  ███████████████████░
`
	var got bytes.Buffer
	barsOf(rows, time.Hour, 60).write(&got, 60)
	if got.String() != want {
		t.Errorf("bars:\n%s\nwant:\n%s", got.String(), want)
	}
	for got, want := range map[string]string{share(999, 0): "-", share(999, 1000): "99 %", listed(nil): "none", listed([]string{"a", "b"}): "a, b"} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for limits, want := range map[plan.Limits]string{
		{Minute: 60}: "3,600 in each hour", {Minute: 60, Day: 3600}: "3,600 in each hour", {Minute: 60, Day: 3599}: "3,599 in each day", {}: "",
	} {
		if got := limitOf(limits, time.Hour); got != want {
			t.Errorf("the limit of %v is %q, want %q", limits, got, want)
		}
	}
}
