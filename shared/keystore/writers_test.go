package keystore_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
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

// TestMain lets a test run this binary again as one of several writing processes.
func TestMain(m *testing.M) {
	if url := os.Getenv("KEYSTORE_TEST_WRITER_URL"); url != "" {
		writeMuch(writer{}, url, os.Getenv("KEYSTORE_TEST_WRITER"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// writer is the test of a writing process.
type writer struct{}

func (writer) Helper() {}
func (writer) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

// writeMuch does what operators and a gateway do, as fast as it can.
func writeMuch(t must.T, url, name string) {
	ctx := context.Background()
	s := keystore.New(must.Get[*database.DB](t)(database.Open(url)), nil, nil, name)
	gateway := keystore.Registration{ID: name, Incarnation: name}
	gateway.Generation = must.Get[int64](t)(s.Register(ctx, gateway, nil))
	for i := range writesPerEach {
		tenant := must.Get[keystore.Tenant](t)(first(s.CreateTenant(ctx, keystore.TenantSpec{Name: fmt.Sprint(name, i), Plan: "free"})))
		key, _, _, err := s.CreateKey(ctx, keystore.KeySpec{Tenant: tenant.ID})
		must.Do(t, err)
		must.Get[keystore.Key](t)(first(s.RevokeKey(ctx, key.ID)))
		must.Get[keystore.Beat](t)(s.Heartbeat(ctx, gateway, 0, ""))
		must.Do(t, s.AddUsage(ctx, gateway, int64(i+1), []keystore.UsageRow{{Tenant: tenant.ID, Key: key.ID, Outcome: "ok", Requests: 1}}, nil))
		must.Do(t, s.SaveQuotas(ctx, instant.Millis(i), []keystore.QuotaRecord{{QuotaName: keystore.QuotaName{Tenant: tenant.ID}, Record: []byte{1}}}))
	}
}

func TestFourProcessesWriteAtOnce(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := keystore.New(open(t, url), nil, nil, "test")
		processes := make([]*exec.Cmd, writers)
		outputs := make([]strings.Builder, writers)
		for i := range processes {
			processes[i] = exec.Command(os.Args[0])
			processes[i].Env = append(os.Environ(), "KEYSTORE_TEST_WRITER_URL="+url, "KEYSTORE_TEST_WRITER=w"+strconv.Itoa(i)+"-")
			processes[i].Stderr = &outputs[i]
			must.Do(t, processes[i].Start())
		}
		for i, p := range processes {
			if err := p.Wait(); err != nil {
				t.Errorf("writer %d: %v: %s", i, err, outputs[i].String())
			}
		}
		events := must.Get[[]keystore.Event](t)(keystore.Collect(s.Events(t.Context(), keystore.EventFilter{}, 0)))
		if want := writers * writesPerEach * 3; len(events) != want {
			t.Errorf("%d events, want %d", len(events), want)
		}
		last := map[string]instant.Millis{} // of each writer, because a writer sets its event's time before it waits for the lock
		for i, e := range events {
			if int(e.ID) != i+1 || e.At < last[e.Actor] {
				t.Errorf("event %d: ID %d at %d", i+1, e.ID, e.At)
			}
			last[e.Actor] = e.At
		}
	})
}
