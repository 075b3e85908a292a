package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type exportCommand struct{}

func (exportCommand) Run(ctx context.Context, a *app, operator operate.Operator) error {
	if a.asData() {
		return usageErrorf("export writes YAML: leave out --output")
	}
	return a.buffered(func(w io.Writer) error {
		d := documentWriter{to: w, now: a.now()}
		err := operator.Store.PassState(ctx, keystore.StateRows{Plans: d.plans, Tenant: d.tenant, Key: d.key})
		return cmp.Or(err, d.end())
	})
}

// pruning is the flag of commands that compare a file with the database.
type pruning struct {
	Prune bool `help:"Suspend tenants that the file does not name. If a tenant in the file has the member keys, revoke its other keys."`
}

type diffCommand struct {
	File string `arg:"" help:"The YAML document; - is standard input."`
	pruning
}

func (c *diffCommand) Run(ctx context.Context, a *app) error {
	_, changes, err := a.compareFile(ctx, c.File, c.Prune)
	if err != nil {
		return err
	}
	return a.printChanges(changes)
}

type applyCommand struct {
	File   string `arg:"" help:"The YAML document; - is standard input."`
	DryRun bool   `help:"Only list the changes, like diff."`
	pruning
	asking
	waiting
}

func (c *applyCommand) Run(ctx context.Context, a *app) error {
	d, shown, err := a.compareFile(ctx, c.File, c.Prune)
	if err != nil {
		return err
	}
	unseen := c.Yes && !c.DryRun // another writer may be faster, so the changes are printed when they are made
	if !unseen {
		if err := a.printChanges(shown); err != nil || c.DryRun {
			return err
		}
	}
	op, made := operate.Operation{Laggard: "may not know these changes yet"}, shown
	if shown.lessens {
		op.Question = "Apply " + operate.Plural(
			shown.edits.Len(), "change",
		) + "? Some lower a limit, suspend a tenant, or end or disable a key."
	}
	op.Change = func(ctx context.Context) (r operate.Outcome, err error) {
		r.Change, err = a.operator.Store.Apply(ctx, func(now keystore.State) (keystore.Edits, error) {
			var err error
			if made, err = a.compare(d, c.File, now, c.Prune); err != nil {
				return keystore.Edits{}, err
			}
			if !c.Yes && !slices.Equal(made.views, shown.views) {
				return keystore.Edits{}, errors.New(
					"the database has changed since the changes were listed. Nothing was changed: repeat the command",
				)
			}
			return made.edits, nil
		})
		if err == nil && unseen {
			err = a.printChanges(made)
		}
		r.Done = operate.Either(made.edits.Len() > 0, "Applied "+operate.Plural(made.edits.Len(), "change")+".", "")
		return r, err
	}
	return a.carryOut(ctx, op, c.asking, c.waiting)
}

// compareFile reads a document, opens the database, and finds what the document changes in it.
func (a *app) compareFile(ctx context.Context, path string, prune bool) (d document, c changes, err error) {
	if d, err = a.readFile(path); err != nil {
		return d, c, err
	}
	if err := a.open(ctx); err != nil {
		return d, c, err
	}
	state, err := a.operator.Store.State(ctx)
	if err != nil {
		return d, c, err
	}
	if a.costs, err = a.operator.Costs(ctx); err != nil {
		return d, c, err
	}
	c, err = a.compare(d, path, state, prune)
	return d, c, err
}

// readFile reads a document from a file or, for -, from standard input.
func (a *app) readFile(path string) (document, error) {
	if path == "-" {
		text, err := io.ReadAll(a.In)
		if err != nil {
			return document{}, fmt.Errorf("read standard input: %w", err)
		}
		return readDocument("standard input", text)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return document{}, fmt.Errorf("read the document: %w", err)
	}
	return readDocument(path, text)
}

// changeView is a change as JSON; scripts rely on its fields.
type changeView struct {
	Action string `json:"action"` // create or change
	Kind   string `json:"kind"`   // plan, tenant or key
	Name   string `json:"name"`   // of the plan or of the tenant
	KeyID  string `json:"keyId,omitempty"`
	Change string `json:"change"`
}

// changes are the differences between a document and a state.
type changes struct {
	edits keystore.Edits
	views []changeView
	left  []string // keys that the document names, but that cannot be changed

	lessens bool // a limit in force, or what a key or a tenant may do at all
}

// printChanges lists changes on standard output and what is left out on standard error.
func (a *app) printChanges(c changes) error {
	t := table{
		head:  []string{"ACTION", "KIND", "NAME", "KEY", "CHANGE"},
		spare: []string{"KIND"},
		none:  "There is nothing to change.",
	}
	err := printViews(a, c.views, t, func(v changeView) []string {
		return []string{v.Action, v.Kind, v.Name, operate.OrDash(v.KeyID), v.Change}
	})
	if err != nil {
		return err
	}
	if len(c.left) > 0 {
		a.note(
			"Left out: %s. A key that does not exist cannot be created without its token, and a key that has ended cannot be changed. "+
				"A new one: keyadmin key create TENANT",
			operate.Plural(len(c.left), "key"),
		)
		for _, key := range c.left[:min(len(c.left), problemsMax)] {
			a.note("  %s", key)
		}
	}
	return nil
}

// compare finds what a document changes in a state. Its error names everything in the document that
// does not fit the state.
func (a *app) compare(d document, file string, state keystore.State, prune bool) (changes, error) {
	c := comparison{
		now: a.now(), problems: problems{file: file}, plansBefore: operate.Plans{}, plans: operate.Plans{}, tenants: map[string]bool{},
		costs: a.costs,
	}
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
		if prune && t.Keys != nil && exists {
			c.pruneKeys(t, keysOf[is.ID])
		}
	}
	if prune {
		c.pruneTenants(state)
	}
	return c.changes, c.err()
}

// comparison collects changes.
type comparison struct {
	changes
	problems
	now         instant.Millis
	plansBefore operate.Plans
	plans       operate.Plans   // as they will be
	tenants     map[string]bool // that the document names
	costs       operate.Costs
}

// show adds a change to what is listed.
func (c *comparison) show(isNew bool, kind, name, key, change string) {
	c.views = append(c.views, changeView{operate.Either(isNew, "create", "change"), kind, name, key, change})
}

func (c *comparison) comparePlans(d document, state keystore.State) {
	for _, p := range state.Plans {
		c.plansBefore[p.Name], c.plans[p.Name] = p, p
	}
	for _, p := range d.Plans {
		before, exists := c.plansBefore[string(p.Name)]
		after := before
		after.Name, after.Limits, after.Test = string(p.Name), p.NewLimits.Limits(), plan.Limits{
			Minute: int64(p.TestMinute),
		}
		c.plans[after.Name] = after
		if after.Limits != before.Limits || after.Test != before.Test {
			c.checkLimits(p.At, after.Limits, after.InForce(plan.Limits{}, apikey.Test))
		}
		edit := keystore.Edit[keystore.Plan]{Before: &before, After: after}
		switch {
		case after == before:
			continue
		case !exists:
			edit.Before = nil
		case slices.ContainsFunc(state.Tenants, func(t keystore.Tenant) bool { return t.Plan == after.Name }):
			c.lessens = c.lessens || operate.LowersPlan(before, after)
		}
		c.edits.Plans = append(c.edits.Plans, edit)
		c.show(!exists, "plan", after.Name, "", operate.Moved(edit.Before, after))
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

func (c *comparison) compareTenant(t documentTenant, was keystore.Tenant, exists bool) {
	c.tenants[string(t.Name)] = true
	if _, known := c.plans[string(t.Plan)]; !known {
		c.add(t.At, "there is no plan %q: use %s", t.Plan, listed(sortedKeys(c.plans)))
		return
	}
	is := was
	is.Name, is.Plan, is.Override, is.Suspended = string(t.Name), string(t.Plan), t.NewLimits.Limits(), t.Suspended
	if is.MonthStarts = uint8(t.MonthStarts); max(1, is.MonthStarts) == max(1, was.MonthStarts) {
		is.MonthStarts = was.MonthStarts
	}
	inForce := c.plans.Owner(is).Limits
	if is.Override != was.Override {
		c.checkLimits(t.At, is.Override)
	}
	if err := c.costs.Admit(inForce, c.plans.Owner(is).TestLimits); err != nil && exists && is.Plan != was.Plan {
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
		after, before := c.plans.Owner(is), c.plansBefore.Owner(was)
		c.lessens = c.lessens || after.IsLess(before) || is.Suspended && !was.Suspended
		if moved := operate.MovedLimits(before.Limits, inForce); moved != "" &&
			moved != operate.MovedLimits(was.Override, is.Override) {
			text += ", in force: " + moved
		}
	}
	if !inForce.IsSet() {
		text += "; it will have no quota, so all its requests are refused"
	}
	c.edits.Tenants = append(c.edits.Tenants, edit)
	c.show(!exists, "tenant", is.Name, "", text)
}

func (c *comparison) compareKey(t documentTenant, k documentKey, of keystore.Tenant, keys map[id.Key]keystore.Key) {
	was, exists := keys[k.ID.Key]
	if !exists || !was.Enabled().InUse(c.now) {
		c.left = append(c.left, fmt.Sprintf("%s %q of tenant %s (line %d)", k.ID, k.Name, t.Name, k.At.line))
		return
	}
	environment := k.Environment.Environment
	if environment == 0 {
		environment = apikey.Live
	}
	switch {
	case was.Tenant != of.ID:
		c.add(k.At, "%s belongs to another tenant", k.ID)
		return
	case was.Environment != environment:
		c.add(k.At, "%s is a %s key. The environment of a key cannot be changed", k.ID, was.Environment)
		return
	}
	is := was
	scopes, err := operate.ScopesOf(k.Scopes)
	if scopes == "" && was.Scopes != "" { // a key of an API without scopes has none
		err = errors.New("a key needs a scope")
	}
	if err != nil {
		c.add(k.At, "%v", err)
		return
	}
	is.Name, is.Scopes, is.Allow, is.Limits = string(k.Name), scopes, operate.Prefixes(k.Allow), operate.NewLimits{
		Minute: k.Minute,
		Day:    k.Day,
	}.Limits()
	if is.Limits != was.Limits {
		c.checkLimits(k.At, is.Limits)
	}
	if expires := instant.Millis(k.Expires); expires.String() != was.ExpiresAt.String() { // a document has whole seconds
		is.ExpiresAt = expires
		if expires != 0 && expires <= c.now {
			c.add(k.At, "%s cannot expire in the past, at %s", k.ID, expires)
			return
		}
	}
	text := operate.Moved(was.Enabled(), is.Enabled())
	if is = is.Enabled(); k.Disabled {
		is.RevokedAt = cmp.Or(was.RevokedAt, -c.now)
	}
	c.lessens = c.lessens || is.RevokedAt < was.RevokedAt || is.Limits.Narrows(was.Limits)
	if is.RevokedAt != was.RevokedAt {
		text = strings.TrimPrefix(text+operate.Either(k.Disabled, ", disabled", ", enabled"), ", ")
	}
	if text != "" {
		c.edits.Keys = append(c.edits.Keys, keystore.Edit[keystore.Key]{Before: &was, After: is})
		c.show(false, "key", string(t.Name), k.ID.String(), text)
	}
}

func (c *comparison) pruneKeys(t documentTenant, keys []keystore.Key) {
	for _, k := range keys {
		named := slices.ContainsFunc(t.Keys, func(d documentKey) bool { return d.ID.Key == k.ID })
		if named || !k.Enabled().InUse(c.now) {
			continue
		}
		is := k
		is.RevokedAt, c.lessens = c.now, true
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
		is.Suspended, c.lessens = true, true
		c.edits.Tenants = append(c.edits.Tenants, keystore.Edit[keystore.Tenant]{Before: &t, After: is})
		c.show(false, "tenant", t.Name, "", "suspended, because the file does not name it")
	}
}
