package snapshot

import (
	"net/netip"
	"testing"

	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// Records that can be read are the same after they were written and read again.
func FuzzRecords(f *testing.F) {
	var sample []byte
	rows := appendRows(&sample, func() {})
	rows.Plan(keystore.Plan{Name: "pro", Limits: plan.Limits{Minute: 300, Day: 10_000, Month: 1 << 30}, Test: plan.Limits{Minute: 30}})
	rows.Tenant(&keystore.TenantRow{ID: id.Tenant{1}, Plan: "pro", MonthStarts: 28, Suspended: true})
	rows.Key(&keystore.KeyRow{ID: id.Key{2}, Tenant: id.Tenant{1}, Name: "ci", ReplacedBy: id.Key{3}, Limits: plan.Limits{Minute: 5, Day: 50}, Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	rows.Ban(keystore.BanRow{Key: id.Key{2}, Until: -1, Automatic: true})
	rows.Ban(keystore.BanRow{Key: id.Key{3}, Until: 1, Notice: "unpaid"})
	f.Add(append(appendHead(sample, "gw-1", Head{Seen: 5, Gateways: 2}), tagEnd))
	f.Fuzz(func(t *testing.T, records []byte) {
		first, isValid := again(records)
		second, isSame := again(first)
		if isValid && (!isSame || string(first) != string(second)) {
			t.Errorf("what was read from %q is written as %q, and that as %q", records, first, second)
		}
	})
}

// again reads records and writes their rows. It reports whether all could be read.
func again(records []byte) (written []byte, isValid bool) {
	d := decoder{to: appendRows(&written, func() {}), left: records}
	for len(d.left) > 0 {
		if err := d.record(); err != nil {
			return nil, false
		}
	}
	return written, true
}
