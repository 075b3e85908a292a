package directory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sync/errgroup"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// changesMade are attempts: one in nine finds nothing to change.
var changesMade = testkit.Size[int64](400, 4_000)

// Many change the database at a time. A gateway that follows from the first change on and those
// that start meanwhile have every row.
func TestNoEventIsSkipped(t *testing.T) {
	const writers, late = 8, 5
	eachStore(t, func(t *testing.T, _ *database.DB, store *keystore.Store) {
		gateways := []*running{start(t, store, Config{})}
		begun := time.Now()
		var made atomic.Int64
		var working errgroup.Group
		for i := range writers {
			working.Go(func() error {
				w := writer{store: store, random: rand.New(rand.NewPCG(1, uint64(i))), name: fmt.Sprint("w", i, "-")}
				for made.Add(1) <= changesMade {
					if err := w.change(); err != nil {
						made.Store(changesMade)
						return err
					}
				}
				return nil
			})
		}
		for n := range int64(late) {
			testkit.Eventually(t, 2*time.Minute, "the writers go on",
				func() bool { return made.Load() >= (n+1)*changesMade/(late+1) })
			gateways = append(gateways, start(t, store, Config{GatewayID: fmt.Sprint("late-", n)}))
		}
		must.Do(t, working.Wait())
		took := time.Since(begun)
		events := must.Get[[]keystore.Event](t)(keystore.Collect(lists.Of(store).Events(t.Context(), lists.EventFilter{}, 0)))
		confirm(t, store)(events[len(events)-1].ID, nil)
		for _, d := range gateways {
			wantSame(t, d.Directory, store)
			must.Equal(t, testutil.ToFloat64(d.metrics.loads), 1, "loads")
		}
		if n := int64(len(events)); n < changesMade/2 {
			t.Errorf("only %d events", n)
		}
		t.Logf("figure: %d writers made %d events in %v while %d gateways started; no row differs", writers,
			len(events), took.Round(time.Millisecond), late)
	})
}

// writer makes random changes.
type writer struct {
	store   *keystore.Store
	random  *rand.Rand
	name    string
	tenants []id.Tenant
	keys    []id.Key
	count   int
}

func (w *writer) change() error {
	ctx := context.Background()
	w.count++
	if len(w.keys) == 0 {
		return w.create(ctx)
	}
	tenant := w.tenants[w.random.IntN(len(w.tenants))]
	key := w.keys[w.random.IntN(len(w.keys))]
	limits := plan.Limits{Minute: 1 + w.random.Int64N(1000), Day: 1000 + w.random.Int64N(1000)}
	hence := instant.Of(time.Now().Add(time.Hour)) + instant.Millis(w.random.Int64N(1000))
	failed := func(_ any, _ keystore.Change, err error) error { return err }
	unlessConflict := func(err error) error {
		if errors.Is(err, keystore.ErrConflict) {
			return nil
		}
		return err
	}
	switch w.random.IntN(14) {
	case 0, 1:
		return w.create(ctx)
	case 2:
		return failed(w.store.RevokeKey(ctx, key))
	case 3:
		fresh, _, _, err := w.store.RotateKey(ctx, key, hence)
		if err == nil {
			w.keys = append(w.keys, fresh.ID)
		}
		return unlessConflict(err)
	case 4:
		return failed(
			w.store.SetTerms(ctx, tenant, []string{"free", "pro", "business"}[w.random.IntN(3)], plan.Limits{}))
	case 5:
		return failed(w.store.SetQuota(ctx, tenant, limits, 0))
	case 6:
		return failed(w.store.SetQuota(ctx, tenant, plan.NoLimits, 0))
	case 7:
		return failed(w.store.Suspend(ctx, tenant))
	case 8:
		return failed(w.store.Resume(ctx, tenant))
	case 9:
		return failed(w.store.AddBan(ctx, keystore.Ban{Key: key, Until: hence}))
	case 10:
		_, err := w.store.LiftBan(ctx, key)
		return err
	case 11:
		return failed(w.store.UpdatePlan(ctx, "pro", limits, plan.Limits{}))
	case 12:
		made := keystore.Plan{Name: fmt.Sprint(w.name, w.count), Limits: limits}
		return cmp.Or(failed(w.store.CreatePlan(ctx, made)),
			failed(w.store.SetTerms(ctx, tenant, made.Name, plan.Limits{})))
	}
	return unlessConflict(failed(w.store.UpdateKey(ctx, key, func(k *keystore.Key) {
		k.Name = fmt.Sprint("name ", w.random.IntN(3))
		k.ExpiresAt = hence
		k.Scopes = []apikey.Scopes{"pets:read", "read write", "orders:read pets:read usage:read"}[w.random.IntN(3)]
		k.Allow = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(w.random.IntN(4))}), 16)}
	})))
}

func (w *writer) create(ctx context.Context) error {
	if len(w.tenants) == 0 || w.random.IntN(4) == 0 {
		tenant, _, err := w.store.CreateTenant(ctx, keystore.TenantSpec{Name: fmt.Sprint(w.name, w.count), Plan: "pro"})
		if err != nil {
			return err
		}
		w.tenants = append(w.tenants, tenant.ID)
	}
	spec := keystore.KeySpec{Tenant: w.tenants[len(w.tenants)-1], Environment: apikey.Test, Scopes: "pets:read"}
	if w.random.IntN(2) == 0 {
		spec.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	}
	key, _, _, err := w.store.CreateKey(ctx, spec)
	w.keys = append(w.keys, key.ID)
	return err
}
