package operate_test

import (
	"strings"
	"testing"
	"time"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// What is asked before a change, what is said after it, and what is said when it is made again.
func TestOperations(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), testkit.Open(t, testkit.SQLite(t), keystore.Migrations)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	o := operate.Operator{Store: keystore.New(db, clock, nil, "ada"), Clock: clock}
	_, err := o.CreateTenant(keystore.TenantSpec{Name: "acme", Plan: "free"}, false).Change(ctx)
	must.Do(t, err)
	tenant := func() keystore.Tenant {
		found, err := o.Store.Tenant(ctx, "acme")
		must.Do(t, err)
		return found
	}
	k, _, _, err := o.Store.CreateKey(ctx, keystore.KeySpec{Tenant: tenant().ID, Name: "ci"})
	must.Do(t, err)
	owner, err := o.OwnerOf(ctx, k)
	must.Do(t, err)
	plain := func(prepare func() operate.Operation) func() (operate.Operation, error) {
		return func() (operate.Operation, error) { return prepare(), nil }
	}
	rotate := func() (operate.Operation, error) {
		now, err := o.Store.Key(ctx, k.ID)
		return o.RotateKey(owner, now, operate.Grace{Given: true, Length: time.Hour}), err
	}
	for _, c := range []struct {
		name                  string
		prepare               func() (operate.Operation, error)
		question, done, again string
	}{
		{
			"create a tenant", plain(func() operate.Operation {
				return o.CreateTenant(keystore.TenantSpec{Name: "globex", Plan: "pro"}, true)
			}),
			"", "Created tenant globex on plan pro.", "Tenant globex already exists. It was not changed.",
		},
		{
			"suspend", plain(func() operate.Operation { return o.SuspendTenant(tenant()) }),
			"Suspend tenant acme? All its keys will be refused.", "Suspended tenant acme.", "Tenant acme was already suspended.",
		},
		{
			"resume", plain(func() operate.Operation { return o.ResumeTenant(tenant()) }),
			"", "Resumed tenant acme.", "Tenant acme was not suspended.",
		},
		{
			"ban", plain(func() operate.Operation { return o.AddBan(owner, k, time.Hour, "scraping", "") }),
			"Ban key KEY of tenant acme until 2026-03-01T13:00:00Z?", "Banned key KEY of tenant acme until 2026-03-01T13:00:00Z.", "Banned key KEY",
		},
		{
			"a shorter ban", plain(func() operate.Operation { return o.AddBan(owner, k, time.Minute, "scraping", "") }),
			"Ban key KEY", "Key KEY of tenant acme is already banned for longer, by ada until 2026-03-01T13:00:00Z.", "Key KEY of tenant acme is already banned",
		},
		{
			"lift", func() (operate.Operation, error) { return o.LiftBan(ctx, owner, k) },
			"", "Lifted the ban of key KEY of tenant acme.", "Key KEY of tenant acme is not banned.",
		},
		{
			"a plan without limits", func() (operate.Operation, error) {
				return o.MoveTenant(ctx, tenant(), "enterprise", plan.Limits{}, "the cure")
			},
			"Move tenant acme to plan enterprise, which has no limits? Without limits of its own (the cure)", "Tenant acme moved from plan free to enterprise", "Tenant acme was already on plan enterprise.",
		},
		{
			"its own limits", func() (operate.Operation, error) {
				return o.SetQuota(ctx, tenant(), plan.Limits{Minute: 200, Day: 5000}, 0)
			},
			"", "Changed the limits of tenant acme", "Tenant acme already had these limits.",
		},
		{"rotate", rotate, "Rotate key KEY of tenant acme?", "Rotated key KEY of tenant acme", "Key KEY was already rotated"},
		{"rotate until the same end", rotate, "", "Key KEY was already rotated", "Key KEY was already rotated"},
	} {
		for _, done := range []string{c.done, c.again} {
			op, err := c.prepare()
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			r, err := op.Change(ctx)
			text := func(s string) string { return strings.ReplaceAll(s, "KEY", operate.Describe(k)) }
			if err != nil || !strings.HasPrefix(r.Done, text(done)) || done == c.done && (c.question == "") != (op.Question == "") ||
				done == c.done && !strings.HasPrefix(op.Question, text(c.question)) {
				t.Errorf("%s: asks %q, says %q; want %q, %q; %v", c.name, op.Question, r.Done, text(c.question), text(done), err)
			}
		}
	}
}
