package access_test

import (
	"net/netip"
	"strings"
	"testing"

	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/testkit/must"
)

const now = 1_800_000_000_000

// states are the states that refuse a call, in the order in which they are checked. The first five
// are of the key.
var states = []struct {
	reason access.Reason
	enter  func(*access.Key, *access.Tenant)
}{
	{access.OtherEnvironment, func(k *access.Key, _ *access.Tenant) { k.Environment = apikey.Test }},
	{access.Revoked, func(k *access.Key, _ *access.Tenant) { k.RevokedAt = now }},
	{access.Disabled, func(k *access.Key, _ *access.Tenant) { k.DisabledAt = now }},
	{access.Expired, func(k *access.Key, _ *access.Tenant) { k.ExpiresAt = now }},
	{access.Replaced, func(k *access.Key, _ *access.Tenant) { k.GraceEndsAt = now }},
	{access.Banned, func(k *access.Key, _ *access.Tenant) { k.BannedUntil = now + 1 }},
	{access.AddressNotAllowed, func(k *access.Key, _ *access.Tenant) {
		k.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	}},
	{access.TenantSuspended, func(_ *access.Key, t *access.Tenant) { t.Suspended = true }},
	{access.QuotaNotSet, func(_ *access.Key, t *access.Tenant) { t.Limits = plan.Limits{} }},
}

// sound is a key that may call, its tenant, and a call with it.
func sound() (access.Key, access.Tenant, access.Call) {
	return access.Key{Environment: apikey.Live}, access.Tenant{Limits: plan.Limits{Minute: 60, Day: 1000}},
		access.Call{Environment: apikey.Live, Client: netip.MustParseAddr("192.0.2.7"), Now: now}
}

func TestDecideEveryPairOfStates(t *testing.T) {
	if k, tenant, call := sound(); access.Decide(k, tenant, call) != access.Allowed || access.Allowed.IsOfKey() {
		t.Error("a sound key is refused")
	}
	names := access.Allowed.String()
	for i, first := range states {
		names += ", " + first.reason.String()
		must.Equal(t, first.reason.IsOfKey(), i < 5, "%s: of the key", first.reason)
		for _, second := range states[i:] {
			k, tenant, call := sound()
			first.enter(&k, &tenant)
			second.enter(&k, &tenant)
			must.Equal(t, access.Decide(k, tenant, call), first.reason, "%s and %s", first.reason, second.reason)
		}
	}
	if names != "allowed, other environment, revoked, disabled, expired, replaced, banned, address not allowed, "+
		"tenant suspended, quota not set" {
		t.Errorf("the reasons are called %s", names)
	}
}

// A state that begins or ends at an instant is judged to the millisecond.
func TestDecideAtTheInstant(t *testing.T) {
	for _, test := range []struct {
		name   string
		key    access.Key
		before access.Reason // one millisecond before now
		at     access.Reason
	}{
		{"expiry", access.Key{ExpiresAt: now}, access.Allowed, access.Expired},
		{"end of grace", access.Key{GraceEndsAt: now}, access.Allowed, access.Replaced},
		{"end of a ban", access.Key{BannedUntil: now}, access.Banned, access.Allowed},
		{"a revocation that another clock dates later", access.Key{RevokedAt: now + 5000}, access.Revoked, access.Revoked},
	} {
		_, tenant, call := sound()
		test.key.Environment = call.Environment
		call.Now = now - 1
		before := access.Decide(test.key, tenant, call)
		call.Now = now
		if at := access.Decide(test.key, tenant, call); before != test.before || at != test.at {
			t.Errorf("%s: %s, then %s; want %s, then %s", test.name, before, at, test.before, test.at)
		}
		for at, reason := range map[instant.Millis]access.Reason{now - 1: test.before, now: test.at} {
			if want := test.key.GraceEndsAt == 0 && !reason.IsOfKey(); access.InUse(test.key, at) != want {
				t.Errorf("%s: a key that is %s is in use: %t", test.name, reason, !want)
			}
		}
	}
}

// A prefix of IPv4 addresses mapped into IPv6 means the IPv4 addresses.
func TestContains(t *testing.T) {
	f := func(prefixes, addr string, want bool) {
		t.Helper()
		var list []netip.Prefix
		for _, p := range strings.Fields(prefixes) {
			list = append(list, netip.MustParsePrefix(p))
		}
		client, _ := netip.ParseAddr(addr) // none: a client whose address is not known
		must.Equal(t, access.Contains(list, client), want, "%s in %s", addr, prefixes)
	}
	const list = "192.0.2.0/24 2001:db8::/32"
	f("", "198.51.100.1", true)
	f("", "", true)
	f(list, "", false)
	f("::/0", "", false)
	f(list, "192.0.2.255", true)
	f(list, "2001:db8:1::7", true)
	f(list, "192.0.3.0", false)
	f("127.0.0.0/8", "127.0.0.1", true)
	f("::ffff:127.0.0.0/104", "127.0.0.1", true)
	f("::ffff:127.0.0.0/104", "128.0.0.1", false)
	f("::ffff:0:0/96", "192.0.2.1", true)
	f("::ffff:0:0/80", "::1", true) // not only mapped addresses
	f("::/0", "192.0.2.1", false)
	f("2001:db8::/112", "2001:db9::1", false)
}
