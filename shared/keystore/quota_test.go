package keystore_test

import (
	"encoding/binary"
	"net/url"
	"runtime"
	"testing"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// A save takes few round trips, however many records it has: resets and heartbeats wait for it.
func TestSavesOfManyQuotas(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(testkit.Postgres(t))
	must.Do(t, err)
	proxy := testkit.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	s := keystore.New(open(t, u.String()), nil, nil, "ada")
	records := make([]keystore.QuotaRecord, 5001)
	for i := range records {
		binary.BigEndian.PutUint32(records[i].Tenant[:], uint32(i+1))
		records[i].Record = records[i].Tenant[:4]
	}
	before := proxy.RoundTrips()
	must.Do(t, s.SaveQuotas(t.Context(), 1, records))
	const most = 14 // three statements take two each; the others are for the transaction and perhaps a new connection
	if n := proxy.RoundTrips() - before; n > most {
		t.Errorf("%d records took %d round trips, want at most %d", len(records), n, most)
	}
	saved := map[id.Tenant]string{}
	for _, r := range must.Get[[]keystore.QuotaRecord](t)(s.LoadQuotas(t.Context())) {
		saved[r.Tenant] = string(r.Record)
	}
	for _, r := range records {
		if saved[r.Tenant] != string(r.Record) {
			t.Fatalf("saved %q of %s, want %q", saved[r.Tenant], r.Tenant, r.Record)
		}
	}
}

// A save needs little memory: it takes place every second, and its garbage would make the whole process larger.
func TestSavesOfQuotasNeedLittleMemory(t *testing.T) {
	s := keystore.New(open(t, testkit.Postgres(t)), nil, nil, "ada")
	const (
		recordBytes = 1000
		bytesMax    = 8 * recordBytes
	)
	records := make([]keystore.QuotaRecord, 500)
	for i := range records {
		binary.BigEndian.PutUint32(records[i].Tenant[:], uint32(i+1))
		records[i].Record = make([]byte, recordBytes)
	}
	save := func() (allocated uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		must.Do(t, s.SaveQuotas(t.Context(), 1, records))
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(len(records))
	}
	save() // buffers grow
	if got := save(); got > bytesMax {
		t.Errorf("%d bytes were allocated for a record of %d bytes, want at most %d", got, recordBytes, bytesMax)
	} else {
		t.Logf("%d bytes were allocated for a record of %d bytes", got, recordBytes)
	}
}
