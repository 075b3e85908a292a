package socket

import "time"

// Deadline spares a connection most of its deadlines. To set one is to move a timer of the runtime's, and each request
// would move several by as much as has passed since the last one. So the connection is told of a deadline that is a little
// late, and keeps it for as long as it serves: calls fail late by up to the slack, and never early.
//
// The zero Deadline is that of a connection that has none. It is for one goroutine, and for one direction or for both.
type Deadline struct{ told time.Time }

// Slack is how late a call may fail that is given so much time: a sixteenth.
func Slack(timeout time.Duration) time.Duration { return timeout / 16 }

// Move is asked for a deadline at t or up to slack later, or for none where t is zero. It returns what the connection has to
// be told, if anything.
func (d *Deadline) Move(t time.Time, slack time.Duration) (tell time.Time, changed bool) {
	if t.IsZero() {
		changed = !d.told.IsZero()
		d.told = t
		return t, changed
	}
	if late := d.told.Sub(t); 0 <= late && late <= slack {
		return time.Time{}, false
	}
	d.told = t.Add(slack)
	return d.told, true
}
