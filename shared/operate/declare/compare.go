package declare

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// compare finds what the document changes in a state. Its error names everything in the document
// that does not fit the state.
func (d Document) compare(
	o operate.Operator, state keystore.State, costs operate.Costs, p Pruning,
) (Difference, error) {
	c := comparison{
		Difference:  Difference{costs: costs},
		problems:    problems{source: d.source},
		now:         o.Now(),
		plansBefore: operate.Plans{},
		plans:       operate.Plans{},
		tenants:     map[string]bool{},
	}
	c.Changes, c.LeftOut = []ChangeView{}, []string{} // in JSON, lists
	c.comparePlans(d, state)
	tenants := make(map[string]keystore.Tenant, len(state.Tenants))
	for _, t := range state.Tenants {
		tenants[t.Name] = t
	}
	keys := make(map[id.Key]keystore.Key, len(state.Keys))
	keysOf := map[id.Tenant][]keystore.Key{}
	for _, k := range state.Keys {
		keys[k.ID] = k
		keysOf[k.Tenant] = append(keysOf[k.Tenant], k)
	}
	for _, t := range d.Tenants {
		is, exists := tenants[string(t.Name)]
		c.compareTenant(t, is, exists)
		for _, k := range t.Keys {
			c.compareKey(t, k, is, keys)
		}
		if p.Prune && t.Keys != nil && exists {
			c.pruneKeys(t, keysOf[is.ID])
		}
	}
	if p.Prune {
		c.pruneTenants(state)
	}
	return c.Difference, c.err()
}

// comparison collects changes.
type comparison struct {
	Difference
	problems
	now         instant.Millis
	plansBefore operate.Plans
	plans       operate.Plans   // as they will be
	tenants     map[string]bool // that the document names
}

// show adds a change to what is listed.
func (c *comparison) show(isNew bool, kind, name, key, change string) {
	action := operate.Either(isNew, "create", "change")
	c.Changes = append(c.Changes, ChangeView{action, kind, name, key, change})
}

func (c *comparison) comparePlans(d Document, state keystore.State) {
	for _, p := range state.Plans {
		c.plansBefore[p.Name] = p
		c.plans[p.Name] = p
	}
	for _, p := range d.Plans {
		was, exists := c.plansBefore[string(p.Name)]
		is := p.applyTo(was)
		c.plans[is.Name] = is
		if is.Limits != was.Limits || is.Test != was.Test {
			c.checkLimits(p.At, is.Limits, is.InForce(plan.Limits{}, apikey.Test))
		}
		if is == was {
			continue
		}
		edit := keystore.Edit[keystore.Plan]{After: is}
		if exists {
			edit.Before = &was
			isUsed := slices.ContainsFunc(state.Tenants, func(t keystore.Tenant) bool { return t.Plan == is.Name })
			c.lessens = c.lessens || isUsed && operate.LowersPlan(was, is)
		}
		c.edits.Plans = append(c.edits.Plans, edit)
		c.show(!exists, "plan", is.Name, "", operate.Moved(edit.Before, is))
	}
}

// checkLimits adds the first problem of some limits.
func (c *comparison) checkLimits(at place, all ...plan.Limits) {
	for _, limits := range all {
		if err := cmp.Or(limits.Check(), c.costs.Admit(limits)); err != nil {
			c.add(at, "%v", err)
			return
		}
	}
}

func (c *comparison) compareTenant(t Tenant, was keystore.Tenant, exists bool) {
	c.tenants[string(t.Name)] = true
	if _, known := c.plans[string(t.Plan)]; !known {
		c.add(t.At, "there is no plan %q: use %s", t.Plan, operate.Listed(slices.Sorted(maps.Keys(c.plans))))
		return
	}
	is := t.applyTo(was)
	will := c.plans.Owner(is)
	if is.Override != was.Override {
		c.checkLimits(t.At, is.Override)
	}
	if err := c.costs.Admit(will.Limits, will.TestLimits); err != nil && exists && is.Plan != was.Plan {
		c.add(t.At, "%v", err)
	}
	if exists && is == was {
		return
	}
	edit := keystore.Edit[keystore.Tenant]{After: is}
	if exists {
		edit.Before = &was
	}
	text := operate.Moved(edit.Before, is)
	if exists {
		before := c.plansBefore.Owner(was)
		c.lessens = c.lessens || will.IsLess(before) || is.Suspended && !was.Suspended
		moved := operate.MovedLimits(before.Limits, will.Limits)
		if moved != "" && moved != operate.MovedLimits(was.Override, is.Override) {
			text += ", in force: " + moved
		}
	}
	if !will.Limits.IsSet() {
		text += "; it will have no quota, so all its requests are refused"
	}
	c.edits.Tenants = append(c.edits.Tenants, edit)
	c.show(!exists, "tenant", is.Name, "", text)
}

func (c *comparison) compareKey(t Tenant, k Key, of keystore.Tenant, keys map[id.Key]keystore.Key) {
	was, exists := keys[k.ID.Key]
	if !exists || !was.Enabled().InUse(c.now) {
		c.LeftOut = append(c.LeftOut, fmt.Sprintf("%s %q of tenant %s (line %d)", k.ID, k.Name, t.Name, k.At.line))
		return
	}
	switch declared := cmp.Or(k.Environment.Environment, apikey.Live); {
	case was.Tenant != of.ID:
		c.add(k.At, "%s belongs to another tenant", k.ID)
		return
	case was.Environment != declared:
		c.add(k.At, "%s is a %s key. The environment of a key cannot be changed", k.ID, was.Environment)
		return
	}
	scopes, err := operate.ScopesOf(k.Scopes)
	if scopes == "" && was.Scopes != "" { // a key of an API without scopes has none
		err = errors.New("a key needs a scope")
	}
	if err != nil {
		c.add(k.At, "%v", err)
		return
	}
	is := k.applyTo(was, scopes, c.now)
	if is.Limits != was.Limits {
		c.checkLimits(k.At, is.Limits)
	}
	if is.ExpiresAt != was.ExpiresAt && is.ExpiresAt != 0 && is.ExpiresAt <= c.now {
		c.add(k.At, "%s cannot expire in the past, at %s", k.ID, is.ExpiresAt)
		return
	}
	text := operate.Moved(was.Enabled(), is.Enabled())
	c.lessens = c.lessens || is.DisabledAt > was.DisabledAt || is.Limits.Narrows(was.Limits)
	if is.DisabledAt != was.DisabledAt {
		text = strings.TrimPrefix(text+operate.Either(k.Disabled, ", disabled", ", enabled"), ", ")
	}
	if text != "" {
		c.edits.Keys = append(c.edits.Keys, keystore.Edit[keystore.Key]{Before: &was, After: is})
		c.show(false, "key", string(t.Name), k.ID.String(), text)
	}
}

func (c *comparison) pruneKeys(t Tenant, keys []keystore.Key) {
	for _, k := range keys {
		named := slices.ContainsFunc(t.Keys, func(d Key) bool { return d.ID.Key == k.ID })
		if named || !k.Enabled().InUse(c.now) {
			continue
		}
		is := k.Revoked(c.now)
		c.lessens = true
		c.edits.Keys = append(c.edits.Keys, keystore.Edit[keystore.Key]{Before: &k, After: is})
		c.show(false, "key", string(t.Name), k.ID.String(), "revoked, because the file does not name it")
	}
}

func (c *comparison) pruneTenants(state keystore.State) {
	for _, t := range state.Tenants {
		if c.tenants[t.Name] || t.Suspended {
			continue
		}
		is := t
		is.Suspended = true
		c.lessens = true
		c.edits.Tenants = append(c.edits.Tenants, keystore.Edit[keystore.Tenant]{Before: &t, After: is})
		c.show(false, "tenant", t.Name, "", "suspended, because the file does not name it")
	}
}
