package sharded_test

import (
	"testing"
	"time"

	"petgate/shared/sharded"
	"petgate/shared/testkit/must"
)

// A key may do ten things at once, and then one a second, whatever the clock does.
func TestBuckets(t *testing.T) {
	b, now := sharded.NewBuckets[int](10, time.Second, 64, hash), time.Unix(1_000_000, 0)
	for _, c := range []struct {
		after time.Duration
		want  int
	}{
		{0, 10},
		{999 * time.Millisecond, 0},
		{time.Millisecond, 1},
		{3 * time.Second, 3},
		{-time.Hour, 0}, // as if the bucket were empty now
		{time.Second, 1},
		{2 * time.Hour, 10},
	} {
		now = now.Add(c.after)
		n := 0
		for range 100 {
			fullAt, isAllowed := b.Take(1, now)
			must.Equal(t, b.FullAt(1, now), fullAt, "when the bucket is full, %v later", c.after)
			if isAllowed {
				n++
				continue
			}
			wait := b.Since(fullAt, 1).Sub(now)
			must.Equal(t, wait > 0 && wait <= time.Second && b.Tokens(fullAt, now) == 0, true, "%v is a wait", wait)
		}
		must.Equal(t, n, c.want, "how many of 100 are allowed %v later", c.after)
	}
	_, isAllowed := b.Take(2, now)
	must.Equal(t, isAllowed, true, "whether another key may")
}

// What another counter says only takes tokens away.
func TestBucketsAreLowered(t *testing.T) {
	b, now := sharded.NewBuckets[int](10, time.Second, 64, hash), time.Unix(1_000_000, 0)
	f := func(seconds, want int) {
		t.Helper()
		fullAt := b.Lower(1, now.Add(time.Duration(seconds)*time.Second), now)
		must.Equal(t, b.Tokens(fullAt, now), want, "tokens after a bucket that is full in %d s", seconds)
		must.Equal(t, b.FullAt(1, now), fullAt, "when it is full")
	}
	f(-5, 10)
	f(4, 6)
	f(2, 6)
	f(60, 0)
	must.Equal(t, b.Len(), 1, "how many buckets are kept")
	must.Equal(t, b.FullAt(1, now.Add(time.Hour)), now.Add(time.Hour), "an hour later, it is full")
}
