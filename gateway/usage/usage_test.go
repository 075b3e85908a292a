package usage

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	stored "petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// What is published as stored lags behind by the longest request, a minute and one interval. It
// never passes usage that is not stored, and after a pause of the process it waits for one more
// interval.
func TestThrough(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		begun := instant.Of(r.now)
		p := r.open(t, "gw-1")
		const lag = 70 * time.Second
		must.Equal(t, p.Through(), begun.Add(-lag), "at the start")
		flush := func(after time.Duration, fails bool) {
			t.Helper()
			r.now = r.now.Add(after)
			p.calls(1)
			if err := p.drain(t.Context(), false); (err != nil) != fails {
				t.Fatalf("%v, want an error: %t", err, fails)
			}
		}
		const long = 10 * time.Minute
		for i, step := range []struct{ after, want time.Duration }{
			{3 * time.Second, 0},
			{3 * time.Second, 3 * time.Second},
			{long, 6 * time.Second},
			{3 * time.Second, long + 6*time.Second},
		} {
			flush(step.after, false)
			must.Equal(t, p.Through().Sub(begun), step.want-lag, "after step %d", i+1)
		}
		before := p.Through()
		must.Get[keystore.Change](t)(r.ForgetGateway(t.Context(), "gw-1"))
		flush(3*time.Second, true)
		flush(3*time.Second, true)
		must.Equal(t, p.Through(), before, "although nothing more was stored")
		p.register(t, nil)
		flush(3*time.Second, false)
		must.Equal(t, r.requests(t), 2*7, "requests that are stored")
		if again := p.Through(); again <= before {
			t.Errorf("stored up to %v, as before", again)
		}
	})
}

// Requests that were dropped because too many rows waited are a gap in the usage, before it is
// published that all is stored. The gap stays when the gateway registers again or ends.
func TestDroppedUsageIsAGap(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		p := r.open(t, "gw-1")
		registered := p.Through()
		for i := range backlogRowsMax {
			p.backlog.Rows[stored.Row{Hour: instant.Millis(i)}] = sum{}
		}
		p.calls(1)
		p.collected()
		clear(p.backlog.Rows)
		p.calls(1)
		must.Do(t, p.drain(t.Context(), false))
		must.Equal(t, r.requests(t), 2, "requests that are stored")
		r.wantGap(t, "after it could write again", registered, keystore.GapDropped)
		p.calls(1)
		must.Do(t, p.drain(t.Context(), false))
		p.through.Store(int64(registered))
		p.register(t, nil)
		r.wantGap(t, "after it has registered again", registered, keystore.GapDropped)
		must.Do(t, r.SignOffWithGap(t.Context(), p.self))
		r.wantGap(t, "after its end", registered, keystore.GapDropped, keystore.GapUnwritten)
		if err := stored.Of(r.Store).NoteDropped(t.Context(), p.self, 9); !errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("without a registration: %v", err)
		}
	})
}

// Minutes are sent when a new minute has begun, and on the way out. A refused attempt counts; a
// request that never reached the quota does not.
func TestMinutesAreSentOnceAMinute(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.SQLite(t))
	r.now = r.now.Truncate(time.Hour).Add(59 * time.Minute)
	p := r.open(t, "gw-1")
	calls := int64(0)
	for i, step := range []struct {
		after      time.Duration
		isLast     bool // no more requests are made
		rows       int
		old, young int64 // attempts in the last minute of the hour, and in the first one of the next
	}{
		{0, false, 0, 0, 0},
		{50 * time.Second, false, 0, 0, 0},
		{10 * time.Second, false, 2, 4, 2},
		{10 * time.Second, false, 2, 4, 2},
		{10 * time.Second, true, 2, 4, 4},
	} {
		r.now = r.now.Add(step.after)
		if !step.isLast {
			p.calls(1)
			p.Count(Request{Tenant: r.tenant, Key: r.key, Outcome: "key_banned", IsTest: true, At: instant.Of(r.now)})
			calls += 3
		}
		must.Do(t, p.drain(t.Context(), step.isLast))
		minutes, err := stored.Of(r.Store).Minutes(t.Context(), r.tenant, 0)
		if err != nil || len(minutes) != step.rows {
			t.Fatalf("step %d: %+v, %v", i+1, minutes, err)
		}
		if step.rows > 0 && (minutes[0].Attempts[59] != step.old || minutes[1].Attempts[0] != step.young) {
			t.Errorf("step %d: %d and %d attempts, want %d and %d", i+1,
				minutes[0].Attempts[59], minutes[1].Attempts[0], step.old, step.young)
		}
		k, used := must.Get[keystore.Key](t)(r.Key(t.Context(), r.key)), instant.Of(r.now.Truncate(time.Minute))
		if k.LastUsedAt != used || k.RefusedAt != used {
			t.Errorf("step %d: the key is %+v, want both uses at %d", i+1, k, used)
		}
		must.Equal(t, r.requests(t), calls, "step %d: requests that are stored", i+1)
	}
}

// What a process has counted and not stored is stored by the next one, once, however the first one
// ended and whatever has happened to its registration. Only a process that was killed leaves a gap.
func TestUsageOutlivesItsProcess(t *testing.T) {
	away := errors.New("away")
	for _, c := range []struct {
		name string
		end  func(t *testing.T, p *process)
		gap  []string
	}{
		{"stopped", func(_ *testing.T, p *process) { p.Leave(away) }, nil},
		{"stopped when only minutes waited", func(t *testing.T, p *process) {
			must.Do(t, p.drain(t.Context(), false))
			p.Leave(away)
		}, nil},
		{"stopped and forgotten", func(t *testing.T, p *process) {
			p.Leave(away)
			must.Get[keystore.Change](t)(p.rig.ForgetGateway(t.Context(), "gw-1"))
		}, nil},
		{"killed", func(t *testing.T, p *process) { must.Do(t, p.keep(false)) }, []string{keystore.GapKilled}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachRig(t, func(t *testing.T, r *rig) {
				first := r.open(t, "gw-1")
				first.calls(5)
				must.Do(t, first.drain(t.Context(), true))
				first.calls(7) // stored, but the answer is lost
				first.collected()
				sent := first.backlog.next(true)
				must.Do(t, stored.Of(r.Store).AddUsage(t.Context(), first.self, first.backlog.Batch, sent.Rows, sent.Minutes))
				first.calls(3)
				c.end(t, first)
				through := first.collectedAt.Add(-first.settles)
				kept := must.Get[[]byte](t)(os.ReadFile(r.path))
				next := r.open(t, "gw-1")
				r.wantStored(t, "the next process", 15)
				r.wantGap(t, "the next process", through, c.gap...)
				if g := r.gateways(t); len(g) != 1 || g[0].Incarnation != next.self.Incarnation {
					t.Errorf("registered are %+v", g)
				}
				if c.gap == nil {
					return // its registration ends only when the file is gone
				}
				// That process was killed before the file was gone.
				must.Do(t, os.WriteFile(r.path, kept, 0o600))
				must.Do(t, r.SignOff(t.Context(), next.self))
				r.open(t, "gw-1")
				r.wantStored(t, "the third process", 15)
				r.wantGap(t, "the third process", through, c.gap...)
			})
		})
	}
}

// wantStored compares the stored usage with this many charged requests and as many refused ones.
func (r *rig) wantStored(t *testing.T, when string, charged int64) {
	t.Helper()
	rows, requests := r.rows(t)
	attempts, units := int64(0), int64(0)
	for _, row := range rows {
		_, cost := row.Taken()
		units += cost
		if !row.IsTest || !row.Charged && row.MoreUnits != 0 {
			t.Errorf("%s: of a live key, or with units that were not taken: %+v", when, row)
		}
	}
	for _, m := range must.Get[[]stored.Minutes](t)(stored.Of(r.Store).Minutes(t.Context(), r.tenant, 0)) {
		if !m.IsTest {
			t.Errorf("%s: attempts of live keys: %+v", when, m)
		}
		for _, n := range m.Attempts {
			attempts += n
		}
	}
	if requests != 2*charged || units != 5*charged || attempts != 2*charged {
		t.Errorf("%s: %d requests, %d units and %d attempts are stored, want %d, %d and %d", when,
			requests, units, attempts, 2*charged, 5*charged, 2*charged)
	}
	r.wantNoFile(t, when)
}

// While the database takes batches again, the file and the database never have different requests
// under one number: the process may be killed between two batches.
func TestFileFollowsTheBatches(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		first := r.open(t, "gw-1")
		const keys = 2*rowsMax + 10
		for i := range uint64(keys) {
			var key id.Key
			binary.BigEndian.PutUint64(key[:], i)
			first.Count(Request{Tenant: r.tenant, Key: key, Outcome: "ok", Charged: true, At: instant.Of(r.now)})
		}
		must.Do(t, first.keep(false))
		refuse, allow := []string{
			"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$",
			`CREATE TRIGGER refuse BEFORE UPDATE ON gateways FOR EACH ROW WHEN (NEW.usage_batch = 2)
				EXECUTE FUNCTION refuse()`,
		}, "DROP TRIGGER refuse ON gateways"
		if r.db.Dialect() == database.SQLite {
			refuse, allow = []string{`CREATE TRIGGER refuse BEFORE UPDATE ON gateways WHEN NEW.usage_batch = 2
				BEGIN SELECT RAISE(ABORT, 'refused'); END`}, "DROP TRIGGER refuse"
		}
		for _, statement := range refuse {
			must.Get[any](t)(r.db.Exec(statement))
		}
		err := first.store(t.Context(), first.self, &first.backlog, false)
		if stored := r.requests(t); err == nil || stored != rowsMax {
			t.Fatalf("%v; stored %d", err, stored)
		}
		if has := newFile(r.path, first.cfg.Log); has.earlier[0].Unstored.Batch != 2 {
			t.Errorf("the file has the usage as it was before batch %d", has.earlier[0].Unstored.Batch+1)
		}
		must.Do(t, first.keep(true))
		kept := must.Get[[]byte](t)(os.ReadFile(r.path))
		losing := r.open(t, "gw-1") // it cannot store the rest, for no outage
		r.wantGap(t, "after the loss", first.Through(), keystore.GapKilled)
		must.Equal(t, len(losing.Earlier()), 0, "processes whose usage still waits")
		must.Do(t, os.WriteFile(r.path, kept, 0o600))
		must.Get[any](t)(r.db.Exec(allow))
		r.open(t, "gw-1")
		rows, _ := r.rows(t)
		if len(rows) != keys || slices.ContainsFunc(rows, func(u stored.Row) bool { return u.Requests != 1 }) {
			t.Errorf("usage of %d keys is stored, want one request of each of %d", len(rows), keys)
		}
	})
}

// A gateway with another ID stores what it finds too, and leaves the registration of that process
// as it is. A damaged file is named, and does not stay. One that cannot be written is named once.
func TestFilesOfOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.SQLite(t))
	first := r.open(t, "gw-1")
	first.calls(1)
	first.collected()
	first.backlog.next(false) // the batch is under way, and only minutes wait beside it
	must.Do(t, first.keep(false))
	kept, before := must.Get[[]byte](t)(os.ReadFile(r.path)), r.gateways(t)[0].Generation
	r.open(t, "gw-2")
	if now := r.gateways(t); len(now) != 2 || now[0].Generation != before || r.requests(t) != 2 {
		t.Errorf("%d requests are stored, want 2; registered are %+v", r.requests(t), now)
	}
	must.Do(t, os.WriteFile(r.path, kept[:len(kept)/2], 0o600))
	damaged := r.open(t, "gw-2")
	must.Do(t, damaged.drain(t.Context(), false))
	must.Equal(t, strings.Count(damaged.log.String(), "what an earlier process counted is lost"), 1, "complaints")
	r.wantNoFile(t, "a damaged one")

	must.Do(t, os.MkdirAll(filepath.Join(r.path, "file"), 0o700))
	damaged.calls(1)
	if damaged.keep(false) == nil || damaged.keep(true) == nil {
		t.Error("usage is kept in a directory")
	}
	must.Equal(t, strings.Count(damaged.log.String(), "is only in memory"), 1, "complaints")
}

func TestBacklogIsBounded(t *testing.T) {
	t.Parallel()
	p := newRig(t, testkit.SQLite(t)).unregistered("gw-1")
	const more = 1000
	known := Request{Key: id.Key{255}, Outcome: "ok"} // in the last shard
	p.Count(known)
	p.collected()
	p.Count(known)
	for i := range uint64(backlogRowsMax + more - 1) {
		var key id.Key
		binary.BigEndian.PutUint64(key[:], i)
		// Each has a minute of its own too, in one hour of each tenant.
		request := Request{Tenant: id.Tenant(key), Key: key, Outcome: "ok", Metered: true, At: 1}
		p.Count(request)
		request.At = 59_999
		p.Count(request)
	}
	must.Equal(t, p.counts.Get(Request{Outcome: "ok", Metered: true}), 2, "requests of a minute, counted together")
	p.collected()
	want := sum{Requests: 2, LastAt: instant.Of(p.rig.now)}
	must.Equal(t, p.backlog.Rows[stored.Row{Key: known.Key, Outcome: "ok"}], want, "a row that waited")
	must.Equal(t, len(p.backlog.Rows), backlogRowsMax, "rows that wait")
	must.Equal(t, testutil.ToFloat64(p.metrics.droppedRequests), 2*more, "requests dropped")
	must.Equal(t, len(p.backlog.Minutes), backlogMinutesMax, "tenants whose minutes wait")
	must.Equal(t, testutil.ToFloat64(p.metrics.droppedAttempts), 2*(backlogRowsMax+more-1-backlogMinutesMax),
		"attempts dropped")
}

func TestCountAllocatesNothing(t *testing.T) {
	p := newRig(t, testkit.SQLite(t)).unregistered("gw-1")
	must.Equal(t, testing.AllocsPerRun(1000, func() { p.calls(1) }), 0, "allocations")
}
