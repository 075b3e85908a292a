package keystore_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

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
		if err := writeMuch(url, os.Getenv("KEYSTORE_TEST_WRITER")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// writeMuch does what operators and a gateway do, as fast as it can.
func writeMuch(url, name string) error {
	ctx := context.Background()
	db, err := database.Open(url)
	if err != nil {
		return err
	}
	defer db.Close()
	s := keystore.New(db, nil, nil, name)
	gateway := keystore.Registration{ID: name, Incarnation: name}
	if gateway.Generation, err = s.Register(ctx, gateway, nil); err != nil {
		return err
	}
	for i := range writesPerEach {
		tenant, _, err := s.CreateTenant(ctx, keystore.TenantSpec{Name: fmt.Sprint(name, i), Plan: "free"})
		if err != nil {
			return err
		}
		key, _, _, err := s.CreateKey(ctx, keystore.KeySpec{Tenant: tenant.ID})
		if err != nil {
			return err
		}
		if _, _, err := s.RevokeKey(ctx, key.ID); err != nil {
			return err
		}
		if _, err := s.Heartbeat(ctx, gateway, 0, ""); err != nil {
			return err
		}
		rows := []keystore.UsageRow{{Tenant: tenant.ID, Key: key.ID, Outcome: "ok", Requests: 1}}
		if err := s.AddUsage(ctx, gateway, int64(i+1), rows, nil); err != nil {
			return err
		}
		if err := s.SaveQuotas(ctx, instant.Millis(i), []keystore.QuotaRecord{{QuotaName: keystore.QuotaName{Tenant: tenant.ID}, Record: []byte{1}}}); err != nil {
			return err
		}
	}
	return nil
}

func TestFourProcessesWriteAtOnce(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := keystore.New(open(t, url), nil, nil, "test")
		begun := time.Now()
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
		by := map[string]int{}
		last := map[string]instant.Millis{} // of each writer, because a writer sets its event's time before it waits for the lock
		for i, e := range events {
			if int(e.ID) != i+1 || e.At < last[e.Actor] {
				t.Errorf("event %d: ID %d at %d", i+1, e.ID, e.At)
			}
			by[e.Actor]++
			last[e.Actor] = e.At
		}
		t.Logf("figure: %d processes made %d changes in %v, none failed: %v", writers, len(events),
			time.Since(begun).Round(time.Millisecond), by)
	})
}
