package directory

import (
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

// changes are the rows of one tail. They are applied when all of them have been read.
type changes struct {
	plans   []keystore.Plan
	tenants []keystore.TenantRow
	keys    []keystore.KeyRow
	bans    []banRow
}

type banRow struct {
	key   id.Key
	until instant.Millis
}

func (c *changes) rows() keystore.Rows {
	return keystore.Rows{
		Plan:   func(p keystore.Plan) { c.plans = append(c.plans, p) },
		Tenant: func(t *keystore.TenantRow) { c.tenants = append(c.tenants, *t) },
		Key:    func(k *keystore.KeyRow) { c.keys = append(c.keys, *k) },
		Ban:    func(k id.Key, until instant.Millis) { c.bans = append(c.bans, banRow{k, until}) },
	}
}

func (c *changes) apply(s *state, ban func(id.Key, instant.Millis)) {
	for _, p := range c.plans {
		s.setPlan(p)
	}
	for i := range c.tenants {
		s.setTenant(&c.tenants[i])
	}
	for i := range c.keys {
		s.setKey(&c.keys[i])
	}
	for _, b := range c.bans {
		ban(b.key, b.until)
	}
}
