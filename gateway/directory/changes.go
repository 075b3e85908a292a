package directory

import "petgate/shared/keystore"

// changes are the rows of one tail. They are applied when all of them have been read.
type changes struct {
	plans   []keystore.Plan
	tenants []keystore.TenantRow
	keys    []keystore.KeyRow
	bans    []keystore.BanRow
}

func (c *changes) rows() keystore.Rows {
	return keystore.Rows{
		Plan:   func(p keystore.Plan) { c.plans = append(c.plans, p) },
		Tenant: func(t *keystore.TenantRow) { c.tenants = append(c.tenants, *t) },
		Key:    func(k *keystore.KeyRow) { c.keys = append(c.keys, *k) },
		Ban:    func(b keystore.BanRow) { c.bans = append(c.bans, b) },
	}
}

// pass passes the rows to the functions in to, plans first: rows can be newer than their events, so
// the tenant of an earlier event may have the plan of a later one.
func (c *changes) pass(to keystore.Rows) {
	for _, p := range c.plans {
		to.Plan(p)
	}
	for i := range c.tenants {
		to.Tenant(&c.tenants[i])
	}
	for i := range c.keys {
		to.Key(&c.keys[i])
	}
	for _, b := range c.bans {
		to.Ban(b)
	}
}
