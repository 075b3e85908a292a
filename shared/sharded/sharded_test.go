package sharded_test

import (
	"maps"
	"testing"

	"petgate/shared/sharded"
	"petgate/shared/testkit/must"
)

func hash(k int) byte { return byte(k) }

func put(m *sharded.Map[int, int], k, v int, idle func(k, v int) bool) {
	s := m.Lock(k)
	defer s.Unlock()
	s.Put(k, v, idle)
}

func TestMap(t *testing.T) {
	m := sharded.New[int, int](0, hash)
	want := map[int]int{}
	for k := range 100_000 {
		put(m, k, 0, nil)
		put(m, k, k+1, nil)
		want[k] = k + 1
	}
	if got := maps.Collect(m.All()); !maps.Equal(got, want) {
		t.Errorf("%d entries, want %d", len(got), len(want))
	}
	if got, none := m.Get(7), m.Get(-1); got != 8 || none != 0 {
		t.Errorf("7 has %d and -1 has %d, want 8 and 0", got, none)
	}
}

func TestBound(t *testing.T) {
	f := func(max int, idle func(k, v int) bool, least, most int) {
		t.Helper()
		m := sharded.New[int, int](max, hash)
		for k := range 100_000 {
			put(m, k, k, idle)
			must.Equal(t, m.Get(k), k, "entry %d, which was just set", k)
			put(m, k, k, idle) // a known key makes nothing go
			must.Equal(t, m.Get(k), k, "entry %d, which was set again", k)
		}
		if got := len(maps.Collect(m.All())); got < least || got > most {
			t.Errorf("bound of %d: %d entries remain, want %d to %d", max, got, least, most)
		}
	}
	old := func(k, _ int) bool { return k < 90_000 }
	f(0, nil, 100_000, 100_000)
	f(64*100, nil, 64*90, 64*100)
	f(1, nil, 64, 64)
	f(0, old, 10_000, 2*10_000)
	f(64*500, old, 10_000, 64*500)
	f(64*100, func(int, int) bool { return true }, 1, 64*100)
}

// An entry that is in use outlives idle ones.
func TestIdleEntriesGoFirst(t *testing.T) {
	m := sharded.New[int, int](64*100, hash)
	for k := range 100_000 {
		put(m, k, k, func(k, _ int) bool { return k >= 64*50 })
	}
	for k := range 64 * 50 {
		must.Equal(t, m.Get(k), k, "entry %d, while others were idle", k)
	}
}
