package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// subject is a tenant and its key, which a test brings into a state. past is a store whose clock is an hour late.
type subject struct {
	*testing.T
	now, past *keystore.Store
	tenant    id.Tenant
	key       id.Key
	token     string
}

func (s subject) done(_ any, _ keystore.Change, err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// state is a reason to refuse a key's calls.
type state struct {
	name   string
	code   string // of the gateway and of usage explain
	show   string // how the status of key show begins
	rotate string // why key rotate refuses; empty: it rotates
	create func(*keystore.KeySpec)
	enter  func(subject)
}

// keyStates are the states in the order in which the gateway checks them.
var keyStates = []state{
	{
		name: "revoked", code: "invalid_api_key", show: "revoked", rotate: "was revoked",
		enter: func(s subject) { s.done(s.now.RevokeKey(s.Context(), s.key)) },
	},
	{
		name: "expired", code: "invalid_api_key", show: "expired", rotate: "expired at",
		create: func(k *keystore.KeySpec) { k.ExpiresAt = instant.Of(time.Now().Add(-10 * time.Minute)) },
	},
	{
		name: "rotated", code: "invalid_api_key", show: "rotated", rotate: "ended at",
		enter: func(s subject) {
			_, _, _, err := s.past.RotateKey(s.Context(), s.key, instant.Of(time.Now().Add(-20*time.Minute)))
			s.done(nil, 0, err)
		},
	},
	{
		name: "banned", code: "key_banned", show: "banned until",
		enter: func(s subject) {
			s.done(s.now.AddBan(s.Context(), keystore.Ban{Key: s.key, Until: instant.Of(time.Now().Add(time.Hour))}))
		},
	},
	{
		name: "address not allowed", code: "address_not_allowed", show: "active",
		create: func(k *keystore.KeySpec) { k.Allow = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} },
	},
	{
		name: "tenant suspended", code: "tenant_suspended", show: "tenant suspended",
		enter: func(s subject) { s.done(s.now.Suspend(s.Context(), s.tenant)) },
	},
	{
		name: "no quota", code: "quota_not_set", show: "no quota",
		enter: func(s subject) {
			s.done(s.now.SetQuota(s.Context(), s.tenant, plan.NoLimits, 0))
			s.done(s.now.SetTerms(s.Context(), s.tenant, "enterprise", plan.Limits{}))
		},
	},
	{name: "over quota", code: "day_quota_exceeded", show: "active"},
}

// pair is a key in two states, or in one state twice.
type pair struct {
	subject
	spender       string // the token of another key of the tenant
	first, second state
}

func newPair(t *testing.T, now, past *keystore.Store, first, second state) pair {
	t.Helper()
	name := strings.ReplaceAll(first.name+" "+second.name, " ", "-")
	tenant, _, err := past.CreateTenant(t.Context(), keystore.TenantSpec{
		Name: name, Plan: "free", Override: plan.Limits{Day: 1},
	})
	must.Do(t, err)
	spec := keystore.KeySpec{Tenant: tenant.ID}
	_, spender, _, err := past.CreateKey(t.Context(), spec)
	must.Do(t, err)
	for _, s := range []state{first, second} {
		if s.create != nil {
			s.create(&spec)
		}
	}
	key, token, _, err := past.CreateKey(t.Context(), spec)
	must.Do(t, err)
	return pair{subject{t, now, past, tenant.ID, key.ID, token}, spender, first, second}
}

// enterStates enters the second state before the first: a key cannot be rotated after it was revoked.
func (p pair) enterStates() {
	if p.second.enter != nil && p.second.name != p.first.name {
		p.second.enter(p.subject)
	}
	if p.first.enter != nil {
		p.first.enter(p.subject)
	}
}

// In every pair of states, the gateway refuses because of the first one, and keyadmin reports the same for the key.
func TestEveryPairOfKeyStates(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{Database: testkit.SQLite(t), Gateways: 1, Upstreams: fleet.FixedUpstream(t)})
	gateway, db := f.Gateways[0], openDatabase(t, f)
	now := keystore.New(db, time.Now, rand.Reader, "anna")
	past := keystore.New(db, func() time.Time { return time.Now().Add(-time.Hour) }, rand.Reader, "anna")
	var pairs []pair
	for i, first := range keyStates {
		for _, second := range keyStates[i:] {
			pairs = append(pairs, newPair(t, now, past, first, second))
		}
	}
	const overQuota = "over quota"
	f.MustKeyadmin("tenant", "create", "first-marker") // done when the gateway has all keys
	for _, p := range pairs {
		if p.second.name == overQuota {
			gateway.Want(t, p.spender, 200, "")
		}
		p.enterStates()
	}
	f.MustKeyadmin("tenant", "create", "second-marker") // done when the gateway knows all states
	for _, p := range pairs {
		names := p.first.name + " and " + p.second.name
		if got := gateway.MustAsk(t, p.token).Code(); got != p.first.code {
			t.Errorf("%s: the gateway answers %q, want %q", names, got, p.first.code)
		}
		// keyadmin does not know where a call comes from: it ignores the address, so the second state decides.
		seen := p.first
		if p.first.name == "address not allowed" {
			seen = p.second
		}
		var explained struct {
			Code  string
			Allow []string
		}
		result := f.KeyadminWith(p.token, "usage", "explain", "-o", "json")
		if err := json.Unmarshal([]byte(result.Stdout), &explained); err != nil {
			t.Errorf("%s: usage explain: %v: %s", names, err, result.Stderr)
		}
		if explained.Code != seen.code && seen.name != "address not allowed" {
			t.Errorf("%s: usage explain says %q, want %q", names, explained.Code, seen.code)
		}
		if p.first.name == "address not allowed" && len(explained.Allow) == 0 {
			t.Errorf("%s: usage explain does not show the allow-list", names)
		}
		if got := show[keyShown](t, f, "key", "show", p.key.String()).Status; !strings.HasPrefix(got, seen.show) {
			t.Errorf("%s: key show says %q, want %q", names, got, seen.show)
		}
		rotated := f.Keyadmin("key", "rotate", p.key.String(), "--yes", "--wait", "0")
		if (rotated.Code == 1) != (p.first.rotate != "") || !strings.Contains(rotated.Stderr, p.first.rotate) {
			t.Errorf("%s: key rotate exits %d: %s", names, rotated.Code, rotated.Stderr)
		}
	}
	t.Logf("figure: in %d pairs of key states the gateway, usage explain, key show and key rotate agree", len(pairs))
}
