package store

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/keystore/usage"
	"petgate/shared/testkit/must"
)

// newStoppedMemory returns a memory whose clock only the test moves.
func newStoppedMemory() (m *Memory, now *instant.Millis) {
	now = new(instant.Millis)
	*now = epoch
	return NewMemory(quota.Product, func() time.Time { return now.Time() }), now
}

func tenants(saved []usage.QuotaRecord) (all []id.Tenant) {
	for _, one := range saved {
		all = append(all, one.Tenant)
	}
	slices.SortFunc(all, func(a, b id.Tenant) int { return bytes.Compare(a[:], b[:]) })
	return all
}

func TestDumpAndLoad(t *testing.T) {
	before, now := newStoppedMemory()
	for n := range 5 {
		take(t, before, Demand{Request: request(tenant(n), 10, 20), Want: int64(n)})
	}
	saved, mark := before.Dump(0)
	if want := []id.Tenant{tenant(1), tenant(2), tenant(3), tenant(4)}; !slices.Equal(tenants(saved), want) {
		t.Fatalf("dumped %v, want %v: all that have used anything", tenants(saved), want)
	}

	after, later := newStoppedMemory()
	*later = *now + 1000
	must.Do(t, after.Load(saved))
	again, _ := after.Dump(0)
	must.Equal(t, len(again), 0, "what was just loaded is dumped again")
	if v := take(t, after, Demand{Request: request(tenant(4), 10, 20), Want: 10}); v.Granted != 6 ||
		v.Usages[quota.Day].Used != 10 {
		t.Errorf("after the restart %+v, want 6 granted of 10", v)
	}

	take(t, before, Demand{Request: request(tenant(1), 10, 20)})         // only reads
	take(t, before, Demand{Request: request(tenant(4), 4, 20), Want: 1}) // is refused
	take(t, before, Demand{Request: request(tenant(2), 10, 20), Want: 1})
	reset := request(tenant(3), 10, 20)
	reset.Since = 7
	take(t, before, Demand{Request: reset, Want: 1})
	changed, _ := before.Dump(mark)
	if want := []id.Tenant{tenant(2), tenant(3)}; !slices.Equal(tenants(changed), want) {
		t.Fatalf("changed since: %v, want %v", tenants(changed), want)
	}
	if unsaved, next := before.Dump(mark); len(unsaved) != 2 {
		t.Errorf("%d dumped again after a dump that was not saved, want 2", len(unsaved))
	} else if rest, _ := before.Dump(next); len(rest) != 0 {
		t.Errorf("%d dumped without a change", len(rest))
	}
	must.Do(t, after.Load(changed))
	for d, want := range map[*Demand]int64{
		{Request: request(tenant(3), 10, 20)}: 3, {Request: reset}: 1, {Request: request(tenant(2), 10, 20)}: 3,
	} {
		must.Equal(t, take(t, after, *d).Usages[quota.Day].Used, want, "%+v: used after another restart", d.Name)
	}
}

// A limit of the month that is new refuses until the month is over, also after a restart on a later
// day.
func TestRefusalByANewMonthIsSaved(t *testing.T) {
	for _, want := range []int64{0, 1} {
		before, now := newStoppedMemory()
		d := Demand{Request: request(tenant(1), 10, 20), Want: 3}
		take(t, before, d)
		saved, mark := before.Dump(0)
		d.Limits.Month, d.Want = 3, want
		refused := take(t, before, d)
		promised := refused.RetryAt()
		changed, _ := before.Dump(mark)

		after, later := newStoppedMemory()
		must.Do(t, after.Load(append(saved, changed...)))
		d.Want = 1
		*later = promised - 1
		if promised < *now+86_400_000 || take(t, after, d).Granted != 0 {
			t.Errorf("asked for %d, then admitted before %d, which was promised", want, promised)
		}
	}
}

func TestLoadSkipsWhatItCannotUse(t *testing.T) {
	m, now := newStoppedMemory()
	take(t, m, Demand{Request: request(tenant(1), 10, 20), Want: 1})
	good, _ := m.Dump(0)
	*now += 3 * 24 * 3600_000
	take(t, m, Demand{Request: request(tenant(2), 10, 20), Want: 1})
	fresh, _ := m.Dump(0)
	saved := append(good, fresh...)
	saved = append(saved, usage.QuotaRecord{QuotaName: Name{Tenant: tenant(3)}, Record: []byte("spoiled")})

	other, later := newStoppedMemory()
	*later = *now
	err := other.Load(saved)
	if err == nil || !strings.Contains(err.Error(), tenant(3).String()) ||
		strings.Contains(err.Error(), tenant(1).String()) {
		t.Errorf("load = %v, want an error that names %v alone", err, tenant(3))
	}
	must.Equal(t, other.records.Get(Name{Tenant: tenant(1)}), nil, "a record whose day and window are past")
	must.Equal(t, other.records.Get(Name{Tenant: tenant(2)}) != nil, true, "whether a good record is loaded")
}

const shards = 64

// Tenants that ask only once are forgotten, even if Dump is never called.
func TestPastRecordsAreDropped(t *testing.T) {
	m, now := newStoppedMemory()
	for day := range 20 {
		for n := range 64 * shards {
			take(t, m, Demand{Request: request(id.Tenant{byte(day), 6: byte(n >> 8), 9: byte(n)}, 10, 20), Want: 1})
		}
		*now += 24 * 3600_000
	}
	kept := 0
	for range m.records.All() {
		kept++
	}
	if most := 3 * 64 * shards; kept > most {
		t.Errorf("%d records are kept, want at most %d, three days' worth", kept, most)
	}
}

func TestMemoryAllocatesNothing(t *testing.T) {
	m, now := newStoppedMemory()
	demand := Demand{Request: request(tenant(1), 1e9, 1e9), Want: 1}
	decide := func() {
		*now += 100
		m.Take(*now, &demand)
	}
	for range 10 {
		decide()
	}
	must.Equal(t, testing.AllocsPerRun(1000, decide), 0, "how often a decision allocates")
}

const epoch = 1_773_500_966_535

func tenant(n int) id.Tenant { return id.Tenant{8: byte(n >> 8), 9: byte(n)} }

func request(t id.Tenant, minute, day int64) Request {
	return Request{Name: Name{Tenant: t}, Limits: plan.Limits{Minute: minute, Day: day}}
}

func take(_ *testing.T, m *Memory, d Demand) quota.Verdict { return m.Take(m.Now(), &d) }
