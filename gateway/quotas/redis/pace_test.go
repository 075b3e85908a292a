package redis

import (
	"testing"
	"time"
)

// Further batches leave only to a server that is far away, and not while its trips are slow.
func TestPace(t *testing.T) {
	now := time.Unix(1_000_000_000, 0)
	const near, far = 80 * time.Microsecond, 600 * time.Microsecond
	p := newPace(0)
	is := func(want int, when string, trips ...time.Duration) {
		t.Helper()
		for _, took := range trips {
			p.note(now, took)
			now = now.Add(time.Second)
		}
		if p.lanes != want {
			t.Errorf("%s: %d lanes, want %d", when, p.lanes, want)
		}
	}
	is(1, "at the begin")
	is(3, "two trips to a server far away", far, far)
	is(8, "many", far, 2*far, far, far, far, far, far, far)
	is(6, "two slow trips", 3*far, 4*far)
	is(7, "a quick one", far)
	p.slow()
	is(1, "after a failure")
	is(2, "one trip after it", far)
	is(1, "a server near by", near)
	is(1, "a server near by, slow", far, far, far)
	now = now.Add(2 * period)
	is(1, "still the shortest lately", far)
	now = now.Add(2 * period)
	is(2, "the server is far away now", far)

	fixed := newPace(3)
	fixed.note(now, near)
	fixed.slow()
	if fixed.lanes != 3 || !fixed.pays(1, 2) || fixed.pays(1, 3) || fixed.pays(0, 1) {
		t.Errorf("fixed: %+v", fixed)
	}
}
