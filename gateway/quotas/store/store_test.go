package store_test

import (
	"slices"
	"testing"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/gateway/quotas/store/storetest"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// memory is a Memory that implements storetest.Store.
type memory struct{ *store.Memory }

func (m memory) Has(t id.Tenant) bool {
	records, _ := m.Dump(0)
	return slices.ContainsFunc(records, func(r store.Saved) bool { return r.Tenant == t })
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(rule quota.Rule, now func() instant.Millis) storetest.Store {
		clock := time.Now
		if now != nil {
			clock = func() time.Time { return now().Time() }
		}
		return memory{store.NewMemory(rule, clock)}
	})
}
