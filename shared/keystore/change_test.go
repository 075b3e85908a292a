package keystore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Writers that change different parts of one record at once, in two processes, lose no change of
// one another.
func TestChangesOfOneRowAllHold(t *testing.T) {
	const rounds = 10
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		ctx := t.Context()
		s := keystore.New(open(t, url), nil, nil, "ada")
		bob := keystore.New(open(t, url), nil, nil, "bob")
		tenant := newTenant(t, s, "acme")
		var writers sync.WaitGroup
		write := func(change func(n int) error) {
			writers.Go(func() {
				for n := range rounds {
					if err := change(n); err != nil {
						t.Error(err)
					}
				}
			})
		}
		var keys [rounds]id.Key
		for n := range keys {
			keys[n] = keyOf(t, s, tenant.ID, "key").ID
		}
		write(func(n int) error { _, _, err := s.RenameTenant(ctx, tenant.ID, fmt.Sprint("acme ", n)); return err })
		write(func(n int) error {
			_, _, err := bob.SetQuota(ctx, tenant.ID, plan.Limits{Minute: int64(n + 1)}, uint8(n+1))
			return err
		})
		write(func(n int) error { _, _, err := s.DisableKey(ctx, keys[n]); return err })
		write(func(n int) error {
			_, _, err := bob.UpdateKey(ctx, keys[n],
				func(k *keystore.Key) { k.ExpiresAt = instant.Of(time.Now().Add(time.Hour)) })
			return err
		})
		writers.Wait()
		want := tenant
		want.Name, want.Override.Minute, want.MonthStarts = fmt.Sprint("acme ", rounds-1), rounds, rounds
		wantEqual(t, "the tenant", must.Get[keystore.Tenant](t)(s.Tenant(ctx, tenant.ID.String())), want)
		for _, key := range keys {
			if k := must.Get[keystore.Key](t)(s.Key(ctx, key)); k.DisabledAt == 0 || k.ExpiresAt == 0 {
				t.Errorf("a change is lost: %+v", k)
			}
		}
	})
}

// While apply decides, no other writer changes what it has read.
func TestApplyKeepsOthersOut(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s, bob := keystore.New(open(t, url), nil, nil, "ada"), keystore.New(open(t, url), nil, nil, "bob")
		tenant := newTenant(t, s, "acme")
		suspended := make(chan error, 1)
		must.Get[keystore.Change](t)(s.Apply(t.Context(), func(keystore.State) (keystore.Edits, error) {
			go func() {
				_, _, err := bob.Suspend(t.Context(), tenant.ID)
				suspended <- err
			}()
			select {
			case err := <-suspended:
				return keystore.Edits{}, fmt.Errorf("another writer's change came between: %v", err)
			case <-time.After(200 * time.Millisecond):
				return keystore.Edits{}, nil
			}
		}))
		must.Do(t, <-suspended)
	})
}

// A change that waits for its turn has written no row: who has the turn may wait for a row with the
// same name, which would be a deadlock. Whatever isolation a database has by default, it is no
// conflict.
func TestResetsBesideTakenNames(t *testing.T) {
	ctx := t.Context()
	db := open(t, testkit.Postgres(t))
	run(
		t,
		db,
		`DO 'BEGIN EXECUTE format(''ALTER DATABASE %I SET default_transaction_isolation = "repeatable read"'', current_database()); END'`,
	)
	db.SetMaxIdleConns(0) // new connections have the setting
	s := keystore.New(db, nil, nil, "ada")
	tenant := newTenant(t, s, "acme")
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for range 20 {
				if i%2 == 0 {
					if _, err := s.ResetUsage(ctx, tenant.ID); err != nil {
						t.Error(err)
					}
				} else if _, _, err := s.CreateTenant(ctx, keystore.TenantSpec{Name: "acme", Plan: "free"}); !errors.Is(err, keystore.ErrExists) {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
}

// A change that its caller gives up says so: it took no longer than it may, and nobody is to blame.
func TestCancelledChange(t *testing.T) {
	db := open(t, testkit.Postgres(t))
	s := keystore.New(db, nil, nil, "ada")
	tenant := newTenant(t, s, "acme")
	holder := must.Get[*sqlx.Conn](t)(db.Connx(t.Context()))
	defer holder.Close()
	must.Get[sql.Result](t)(
		holder.ExecContext(t.Context(), `SELECT pg_advisory_lock(123581046915073), pg_advisory_lock(123581046915074)`),
	) // the writers', and that of usage
	waits := func() (n int) {
		if err := db.Get(&n, `SELECT count(*) FROM pg_locks WHERE NOT granted AND database =
			(SELECT oid FROM pg_database WHERE datname = current_database())`); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		return n
	}
	givenUp := func() context.Context { // when it waits for a lock
		testkit.Eventually(t, time.Minute, "nobody waits", func() bool { return waits() == 0 })
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			for ctx.Err() == nil && waits() == 0 {
				runtime.Gosched()
			}
		}()
		return ctx
	}
	refused(t, context.Canceled)(s.Suspend(givenUp(), tenant.ID))
	refused(t, keystore.ErrUnavailable)(usage.Of(s).SealUsage(givenUp()))
	refused(t, keystore.ErrUnavailable)(usage.Of(s).AddUsage(givenUp(), keystore.Registration{}, 1, nil, nil))
}

// Writers far from PostgreSQL do not wait for one another's round trips.
func TestChangesShareTheRoundTrips(t *testing.T) {
	const writers, latency = 16, 100 * time.Millisecond
	u := must.Get[*url.URL](t)(url.Parse(testkit.Postgres(t)))
	proxy := testkit.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	s := keystore.New(open(t, u.String()), nil, nil, "ada")
	var tenants [writers]keystore.Tenant
	change := func(limit int64) {
		var all sync.WaitGroup
		for i := range tenants {
			all.Go(func() {
				if _, _, err := s.SetQuota(t.Context(), tenants[i].ID, plan.Limits{Minute: limit}, 0); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	for i := range tenants {
		tenants[i] = newTenant(t, s, fmt.Sprint("tenant ", i))
	}
	change(1) // connects
	proxy.Latency(latency)
	begun := time.Now()
	change(2)
	took := time.Since(begun)
	t.Logf("figure: %d writers %v from PostgreSQL: %.0f changes a second", writers, 2*latency, writers/took.Seconds())
	if took > writers*latency*3/2 { // one round trip of each after the other takes a third more
		t.Errorf("%d changes took %v", writers, took)
	}
}

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
		must.Do(
			t,
			usage.Of(s).AddUsage(ctx, gateway, int64(i+1),
				[]usage.Row{{Tenant: tenant.ID, Key: key.ID, Outcome: "ok", Requests: 1}}, nil),
		)
		must.Do(
			t,
			usage.Of(s).SaveQuotas(ctx, instant.Millis(i),
				[]usage.QuotaRecord{{QuotaName: usage.QuotaName{Tenant: tenant.ID}, Record: []byte{1}}}),
		)
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
			process.Env = append(os.Environ(), "KEYSTORE_TEST_WRITER_URL="+url,
				fmt.Sprintf("KEYSTORE_TEST_WRITER=w%d-", i))
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
