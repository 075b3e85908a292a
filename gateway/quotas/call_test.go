package quotas

import (
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// A refusal is remembered for what was asked: the key with its own limits, and the cost. Other requests of the tenant are still decided.
// Test keys have counts of their own.
func TestRefusalsAreOfACall(t *testing.T) {
	local := openQuotas(t, Config{})
	shared := newFake(t, Config{}, newMemory(quota.Product, time.Now).Decide)
	for name, l := range map[string]Quotas{"local": local, "shared": shared} {
		t.Run(name, func(t *testing.T) {
			own, whole := asking(1, 10), asking(1, 10)
			own.Key, own.Cap = id.Key{1}, plan.Limits{Minute: 4, Day: 50}
			other := own
			other.Key = id.Key{2}
			f := func(a Request, cost, granted, used, usedOwn int64, binds quota.Policy) {
				t.Helper()
				a.Cost = cost
				v := mustTake(t, l, a)
				if v.Granted != granted || v.Usages[quota.Minute].Used != used || v.Usages[quota.KeyMinute].Used != usedOwn || v.Violated() != binds {
					t.Errorf("%+v, it binds %v; want %d granted, %d used, %d by the key, %v", v, v.Violated(), granted, used, usedOwn, binds)
				}
				v.Granted = 0
				if known := l.Known(a); known.Violated() != binds || known.Usages[quota.KeyMinute].Limit != a.Cap.Minute {
					t.Errorf("then %+v is known", known)
				}
				if now, err := l.Current(a); err != nil || now.Usages[quota.Minute].Used != used || now.Usages[quota.KeyMinute].Used != usedOwn {
					t.Errorf("then %+v is current: %v", now, err)
				}
			}
			f(own, 3, 1, 3, 3, quota.KeyMinute) // another one of this cost does not fit
			f(own, 3, 0, 3, 3, quota.KeyMinute)
			f(own, 1, 1, 4, 4, quota.KeyMinute)
			f(own, 1, 0, 4, 4, quota.KeyMinute)
			f(other, 1, 1, 5, 1, quota.None)
			f(whole, 6, 0, 5, 0, quota.Minute)
			f(whole, 5, 1, 10, 0, quota.Minute)
			f(other, 1, 0, 10, 1, quota.Minute)
			test := whole
			test.Test = true
			f(test, 1, 1, 1, 0, quota.None)
		})
	}
}
