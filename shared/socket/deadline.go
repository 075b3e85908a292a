package socket

import "time"

// Deadline avoids most SetDeadline calls of a connection. Each call moves a timer of the runtime, and each request would move
// several timers a little. Instead, the connection gets a deadline that is later by the slack. It keeps this deadline until a
// call needs a later one, or one that is earlier by more than the slack. So a call fails at most the slack late, and never early.
//
// The zero Deadline belongs to a connection without a deadline. It is for one goroutine, and for one direction or both.
type Deadline struct{ told time.Time }

// Slack is how late a call with the timeout may fail: a sixteenth.
func Slack(timeout time.Duration) time.Duration { return timeout / 16 }

// Move reports whether the connection's deadline must be changed for a call that should fail at t, and returns the new deadline,
// which is at most slack later than t. The zero time means no deadline.
func (d *Deadline) Move(t time.Time, slack time.Duration) (tell time.Time, changed bool) {
	if t.IsZero() {
		changed = !d.told.IsZero()
		d.told = t
		return t, changed
	}
	if !saves.deadlines {
		slack = 0
	}
	if late := d.told.Sub(t); 0 <= late && late <= slack {
		return time.Time{}, false
	}
	d.told = t.Add(slack)
	return d.told, true
}
