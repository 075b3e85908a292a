package keystore_test

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

const (
	writers       = 4
	writesPerEach = 60 // rounds of several writes
)

// writeMuch does what operators and a gateway do, as fast as it can.
func writeMuch(t *testing.T, url, name string) {
	ctx := t.Context()
	s := keystore.New(must.Get[*database.DB](t)(database.Open(url)), nil, nil, name)
	gateway := registered(t, s, keystore.Registration{ID: name, Incarnation: name})
	for i := range writesPerEach {
		tenant := newTenant(t, s, fmt.Sprint(name, i))
		key := keyOf(t, s, tenant.ID, "key")
		must.First[keystore.Key](t)(s.RevokeKey(ctx, key.ID))
		must.Get[keystore.Beat](t)(s.Heartbeat(ctx, gateway, 0, ""))
		must.Do(t, s.AddUsage(ctx, gateway, int64(i+1), []keystore.UsageRow{{Tenant: tenant.ID, Key: key.ID, Outcome: "ok", Requests: 1}}, nil))
		must.Do(t, s.SaveQuotas(ctx, instant.Millis(i), []keystore.QuotaRecord{{QuotaName: keystore.QuotaName{Tenant: tenant.ID}, Record: []byte{1}}}))
	}
}

// The test runs its binary again as each of the processes.
func TestFourProcessesWriteAtOnce(t *testing.T) {
	if url := os.Getenv("KEYSTORE_TEST_WRITER_URL"); url != "" {
		writeMuch(t, url, os.Getenv("KEYSTORE_TEST_WRITER"))
		return
	}
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := keystore.New(open(t, url), nil, nil, "test")
		var processes sync.WaitGroup
		for i := range writers {
			process := exec.Command(os.Args[0], "-test.run=^TestFourProcessesWriteAtOnce$")
			process.Env = append(os.Environ(), "KEYSTORE_TEST_WRITER_URL="+url, fmt.Sprintf("KEYSTORE_TEST_WRITER=w%d-", i))
			processes.Go(func() {
				if text, err := process.CombinedOutput(); err != nil {
					t.Errorf("writer %d: %v: %s", i, err, text)
				}
			})
		}
		processes.Wait()
		all := events(t, s)
		wantEqual(t, "number of events", len(all), writers*writesPerEach*3)
		last := map[string]instant.Millis{} // of each writer, because a writer sets its event's time before it waits for the lock
		for i, e := range all {
			if int(e.ID) != i+1 || e.At < last[e.Actor] {
				t.Errorf("event %d: ID %d at %d", i+1, e.ID, e.At)
			}
			last[e.Actor] = e.At
		}
	})
}
