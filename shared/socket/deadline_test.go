package socket_test

import (
	"testing"
	"time"

	"petgate/shared/socket"
)

func TestDeadlineIsNeverEarlyAndSeldomTold(t *testing.T) {
	const timeout, slack = 16 * time.Second, time.Second
	var d socket.Deadline
	var told time.Time
	tellings := 0
	now := time.Unix(1000, 0)
	for range 100_000 { // one request per millisecond
		now = now.Add(time.Millisecond)
		if tell, changed := d.Move(now.Add(timeout), slack); changed {
			told = tell
			tellings++
		}
		if late := told.Sub(now) - timeout; late < 0 || late > slack {
			t.Fatalf("late by %v", late)
		}
	}
	if tellings != 100 {
		t.Errorf("told %d times in 100 slacks", tellings)
	}
	if tell, changed := d.Move(time.Time{}, slack); !changed || !tell.IsZero() {
		t.Errorf("none: %v, %v", tell, changed)
	}
	if tell, changed := d.Move(time.Time{}, slack); changed {
		t.Errorf("none again: %v", tell)
	}
	sooner := now.Add(time.Second)
	if tell, changed := d.Move(sooner, slack); !changed || !tell.Equal(sooner.Add(slack)) {
		t.Errorf("a sooner one: %v, %v", tell, changed)
	}
	if tell, changed := d.Move(sooner, 0); !changed || !tell.Equal(sooner) {
		t.Errorf("the same without slack: %v, %v", tell, changed)
	}
}
