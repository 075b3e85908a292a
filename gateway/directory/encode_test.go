package directory

import (
	"net/netip"
	"testing"

	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

func FuzzRecords(f *testing.F) {
	var c changes
	rows := c.rows()
	rows.Plan(keystore.Plan{Name: "pro", Limits: plan.Limits{Minute: 300, Day: 10_000}})
	rows.Tenant(&keystore.TenantRow{ID: id.Tenant{1}, Plan: "pro", Suspended: true})
	rows.Key(&keystore.KeyRow{ID: id.Key{2}, Tenant: id.Tenant{1}, Name: "ci", ReplacedBy: id.Key{3}, Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	rows.Ban(keystore.BanRow{Key: id.Key{2}, Until: -1, Automatic: true})
	rows.Ban(keystore.BanRow{Key: id.Key{3}, Until: 1, Notice: "unpaid"})
	f.Add(append(appendHead(c.appendTo(nil), head{gateway: "gw-1", seen: 5, gateways: 2}), tagEnd))
	f.Fuzz(func(t *testing.T, records []byte) {
		// Records that can be read are the same after they were written and read again.
		var first, second changes
		again := first.read(records)
		if written := first.appendTo(nil); again && !second.read(written) {
			t.Errorf("what was read from %q cannot be read from %q", records, written)
		}
		if a, b := first.appendTo(nil), second.appendTo(nil); again && string(a) != string(b) {
			t.Errorf("%q and %q differ", a, b)
		}
	})
}

// read reports whether all records could be read.
func (c *changes) read(records []byte) bool {
	var h head
	var end bool
	d := decoder{left: records}
	for len(d.left) > 0 {
		if err := d.record(c.rows(), &h, &end); err != nil {
			return false
		}
	}
	return true
}
