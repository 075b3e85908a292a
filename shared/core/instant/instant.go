// Package instant has the type of every instant that Petgate stores, compares or sends: Unix
// milliseconds.
package instant

import "time"

// Millis is an instant in Unix milliseconds. Zero means that there is none: never, or not set, as
// each field documents.
type Millis int64

// Of returns t, rounded down to a millisecond.
func Of(t time.Time) Millis { return Millis(t.UnixMilli()) }

// Add returns m plus d. Fractions of a millisecond in d are dropped.
func (m Millis) Add(d time.Duration) Millis { return m + Millis(d.Milliseconds()) }

// Sub returns the time from other to m.
func (m Millis) Sub(other Millis) time.Duration { return time.Duration(m-other) * time.Millisecond }

// Truncate returns m rounded down to a multiple of d since the Unix epoch: to the hour or to the
// UTC day.
func (m Millis) Truncate(d time.Duration) Millis { return m - m%Millis(d.Milliseconds()) }

// Time returns m in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// Seconds returns m in Unix seconds, rounded up: a client that waits until then does not come
// early.
func (m Millis) Seconds() int64 { return (int64(m) + 999) / 1000 }

// AppendTo appends m in RFC 3339, in UTC, with milliseconds.
func (m Millis) AppendTo(dst []byte) []byte {
	t := m.Time()
	dst = t.AppendFormat(dst, time.RFC3339) // the format that package time writes fastest
	dst[len(dst)-1] = '.'                   // instead of Z
	millis := t.Nanosecond() / int(time.Millisecond)
	return append(dst, '0'+byte(millis/100), '0'+byte(millis/10%10), '0'+byte(millis%10), 'Z')
}

// String returns m in RFC 3339, in UTC, without fractions of a second: those are cut off. Zero is
// the empty string.
func (m Millis) String() string {
	if m == 0 {
		return ""
	}
	return m.Time().Format(time.RFC3339)
}
