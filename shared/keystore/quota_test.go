package keystore_test

import (
	"bytes"
	"encoding/binary"
	"net/url"
	"runtime"
	"slices"
	"testing"

	"petgate/shared/keystore"
	"petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// manyQuotas returns records of different tenants.
func manyQuotas(n, recordBytes int) []usage.QuotaRecord {
	records := make([]usage.QuotaRecord, n)
	for i := range records {
		binary.BigEndian.PutUint32(records[i].Tenant[:], uint32(i+1))
		records[i].Record = append(make([]byte, 0, recordBytes), records[i].Tenant[:4]...)[:recordBytes]
	}
	return records
}

// A save takes few round trips, however many records it has: resets and heartbeats wait for it.
func TestSavesOfManyQuotas(t *testing.T) {
	t.Parallel()
	u := must.Get[*url.URL](t)(url.Parse(testkit.Postgres(t)))
	proxy := testkit.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	s := keystore.New(open(t, u.String()), nil, nil, "ada")
	records := manyQuotas(5001, 4)
	before := proxy.RoundTrips()
	must.Do(t, usage.Of(s).SaveQuotas(t.Context(), 1, records))
	const most = 14 // three statements take two each; the others are for the transaction and perhaps a new connection
	if n := proxy.RoundTrips() - before; n > most {
		t.Errorf("%d records took %d round trips, want at most %d", len(records), n, most)
	}
	saved := must.Get[[]usage.QuotaRecord](t)(usage.Of(s).LoadQuotas(t.Context()))
	slices.SortFunc(saved, func(a, b usage.QuotaRecord) int { return bytes.Compare(a.Tenant[:], b.Tenant[:]) })
	wantEqual(t, "the saved records", saved, records)
}

// A save needs little memory: it takes place every second, and its garbage would make the whole
// process larger.
func TestSavesOfQuotasNeedLittleMemory(t *testing.T) {
	s := keystore.New(open(t, testkit.Postgres(t)), nil, nil, "ada")
	const (
		recordBytes = 1000
		bytesMax    = 8 * recordBytes
	)
	records := manyQuotas(500, recordBytes)
	save := func() (allocated uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		must.Do(t, usage.Of(s).SaveQuotas(t.Context(), 1, records))
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(len(records))
	}
	save() // buffers grow
	if got := save(); got > bytesMax {
		t.Errorf("%d bytes were allocated for a record of %d bytes, want at most %d", got, recordBytes, bytesMax)
	}
}
