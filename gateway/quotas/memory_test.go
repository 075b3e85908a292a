package quotas

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// newStoppedMemory makes a memory whose clock stands until the test moves it.
func newStoppedMemory() (m *memory, now *instant.Millis) {
	now = new(instant.Millis)
	*now = epoch
	return newMemory(quota.Product, func() time.Time { return now.Time() }), now
}

func tenants(saved []Saved) (all []id.Tenant) {
	for _, one := range saved {
		all = append(all, one.Tenant)
	}
	slices.SortFunc(all, func(a, b id.Tenant) int { return bytes.Compare(a[:], b[:]) })
	return all
}

func TestDumpAndLoad(t *testing.T) {
	before, now := newStoppedMemory()
	for n := range 5 {
		take(t, before, demand{Ask: ask(tenant(n), 10, 20), Want: int64(n)})
	}
	saved, mark := before.dump(0)
	if want := []id.Tenant{tenant(1), tenant(2), tenant(3), tenant(4)}; !slices.Equal(tenants(saved), want) {
		t.Fatalf("dumped %v, want %v: all that have used anything", tenants(saved), want)
	}

	after, later := newStoppedMemory()
	*later = *now + 1000
	if err := after.load(saved); err != nil {
		t.Fatal(err)
	}
	if again, _ := after.dump(0); len(again) != 0 {
		t.Errorf("what was just loaded is dumped again: %v", tenants(again))
	}
	if v := take(t, after, demand{Ask: ask(tenant(4), 10, 20), Want: 10}); v.Granted != 6 || v.Day.Used != 10 {
		t.Errorf("after the restart %+v, want 6 granted of 10", v)
	}

	take(t, before, demand{Ask: ask(tenant(2), 10, 20), Want: 1})
	if err := before.forget(background, tenant(3)); err != nil {
		t.Fatal(err)
	}
	changed, _ := before.dump(mark)
	if want := []id.Tenant{tenant(2), tenant(3)}; !slices.Equal(tenants(changed), want) {
		t.Fatalf("changed since: %v, want %v", tenants(changed), want)
	}
	if unsaved, next := before.dump(mark); len(unsaved) != 2 {
		t.Errorf("%d dumped again after a dump that was not saved, want 2", len(unsaved))
	} else if rest, _ := before.dump(next); len(rest) != 0 {
		t.Errorf("%d dumped without a change", len(rest))
	}
	for _, one := range changed {
		rec, err := quota.Product.Decode(one.Record)
		if err != nil || rec.IsUnused() != (one.Tenant == tenant(3)) {
			t.Errorf("%v: unused is %v, %v; only the forgotten one has no use", one.Tenant, rec.IsUnused(), err)
		}
	}
}

func TestLoadSkipsWhatItCannotUse(t *testing.T) {
	m, now := newStoppedMemory()
	take(t, m, demand{Ask: ask(tenant(1), 10, 20), Want: 1})
	good, _ := m.dump(0)
	*now += 3 * 24 * 3600_000
	take(t, m, demand{Ask: ask(tenant(2), 10, 20), Want: 1})
	fresh, _ := m.dump(0)
	saved := append(good, fresh...)
	saved = append(saved, Saved{Tenant: tenant(3), Record: []byte("spoiled")})

	other, later := newStoppedMemory()
	*later = *now
	err := other.load(saved)
	if err == nil || !strings.Contains(err.Error(), tenant(3).String()) || strings.Contains(err.Error(), tenant(1).String()) {
		t.Errorf("load = %v, want an error that names %v alone", err, tenant(3))
	}
	if other.shard(tenant(1)).records[tenant(1)] != nil {
		t.Error("a record whose day and window are past was loaded")
	}
	if other.shard(tenant(2)).records[tenant(2)] == nil {
		t.Error("a good record was not loaded")
	}
}

// Tenants that come once and never again are forgotten, though nobody dumps.
func TestPastRecordsAreDropped(t *testing.T) {
	m, now := newStoppedMemory()
	for day := range 20 {
		for n := range 64 * shards {
			take(t, m, demand{Ask: ask(id.Tenant{byte(day), 6: byte(n >> 8), 9: byte(n)}, 10, 20), Want: 1})
		}
		*now += 24 * 3600_000
	}
	kept := 0
	for i := range m.shards {
		kept += len(m.shards[i].records)
	}
	if most := 3 * 64 * shards; kept > most {
		t.Errorf("%d records are kept, want at most %d, three days' worth", kept, most)
	}
}

func TestMemoryAllocatesNothing(t *testing.T) {
	m, now := newStoppedMemory()
	demands, results := []demand{{Ask: ask(tenant(1), 1e9, 1e9), Want: 1}}, make([]result, 1)
	decide := func() {
		*now += 100
		if err := m.decide(background, demands, results); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		decide()
	}
	if n := testing.AllocsPerRun(1000, decide); n != 0 {
		t.Errorf("a decision allocates %v times", n)
	}
}
