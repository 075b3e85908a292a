package keystore

import (
	"encoding/json"
	"net/netip"

	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
)

// Change is the ID of an event. What a write asked for holds at every gateway that has applied its Change: the event that the
// write made or, when nothing had to change, the last event there was. IDs become visible in their order.
type Change int64

// Tenant is a paying customer.
type Tenant struct {
	ID        id.Tenant   `json:"id"`
	Name      string      `json:"name"`
	Plan      string      `json:"plan"`
	Override  plan.Limits `json:"override"` // zero where the plan's limit holds
	Suspended bool        `json:"suspended"`
	CreatedAt int64       `json:"createdAt"` // ms
}

// Plan is a named pair of limits.
type Plan struct {
	Name      string      `json:"name"`
	Limits    plan.Limits `json:"limits"` // zero: the plan has none of its own
	CreatedAt int64       `json:"createdAt"`
}

// Key is an API key's record. It holds neither the token nor its hash. Times are in ms; 0 is never.
type Key struct {
	ID          id.Key
	Tenant      id.Tenant
	Name        string
	Hint        string // the token's last characters
	Environment apikey.Environment
	Scopes      apikey.Scopes
	Allow       []netip.Prefix // empty: from everywhere
	CreatedAt   int64
	ExpiresAt   int64
	RevokedAt   int64
	GraceEndsAt int64  // rotated: from then on refused
	ReplacedBy  id.Key // rotated: the key that took its place
	LastUsedAt  int64  // up to a minute late
}

// Access returns what decides about a call with the key, while it is banned until the given time (0: it is not banned).
func (k Key) Access(bannedUntil int64) access.Key {
	return access.Key{
		Environment: k.Environment, RevokedAt: k.RevokedAt, ExpiresAt: k.ExpiresAt, GraceEndsAt: k.GraceEndsAt,
		BannedUntil: bannedUntil, Allow: k.Allow,
	}
}

// MarshalJSON writes scopes and environment by their names and leaves out what is not set.
func (k Key) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ID          id.Key         `json:"id"`
		Tenant      id.Tenant      `json:"tenantId"`
		Name        string         `json:"name"`
		Hint        string         `json:"hint"`
		Environment string         `json:"environment"`
		Scopes      []string       `json:"scopes"`
		Allow       []netip.Prefix `json:"allow,omitempty"`
		CreatedAt   int64          `json:"createdAt"`
		ExpiresAt   int64          `json:"expiresAt,omitempty"`
		RevokedAt   int64          `json:"revokedAt,omitempty"`
		GraceEndsAt int64          `json:"graceEndsAt,omitempty"`
		ReplacedBy  id.Key         `json:"replacedBy,omitzero"`
		LastUsedAt  int64          `json:"lastUsedAt,omitempty"`
	}{
		k.ID, k.Tenant, k.Name, k.Hint, k.Environment.String(), k.Scopes.Names(), k.Allow,
		k.CreatedAt, k.ExpiresAt, k.RevokedAt, k.GraceEndsAt, k.ReplacedBy, k.LastUsedAt,
	})
}

// TenantSpec is what a new tenant is made from.
type TenantSpec struct {
	Name     string
	Plan     string
	Override plan.Limits
}

// KeySpec is what a new key is made from. No scopes means all of them; no environment means live.
type KeySpec struct {
	Tenant      id.Tenant
	Name        string
	Environment apikey.Environment
	Scopes      apikey.Scopes
	Allow       []netip.Prefix
	ExpiresAt   int64 // ms; 0 = never
}

// Ban keeps a key out until an instant. Its identity is key, imposer and the instant of imposing: to add it again, as after a
// commit whose answer was lost, changes nothing, even when it was lifted meanwhile.
type Ban struct {
	Key       id.Key    `json:"keyId"`
	Tenant    id.Tenant `json:"tenantId"` // filled in by the store
	Until     int64     `json:"until"`    // ms
	Reason    string    `json:"reason"`
	By        string    `json:"by"`        // a gateway's ID or an operator; empty: the store's actor
	ImposedAt int64     `json:"imposedAt"` // ms; 0: now
}

// Event is one change: who did what to whom, and what it looked like before and after. It holds no token and no hash.
type Event struct {
	ID     Change          `json:"id"`
	UUID   string          `json:"uuid"` // tells two events of one ID apart after a fail-over has rewound the IDs
	At     int64           `json:"at"`   // ms
	Actor  string          `json:"actor"`
	Kind   string          `json:"kind"`
	Tenant id.Tenant       `json:"tenantId,omitzero"`
	Key    id.Key          `json:"keyId,omitzero"`
	Plan   string          `json:"plan,omitempty"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// The kinds of events.
const (
	TenantCreated   = "tenant.created"
	TenantPlanSet   = "tenant.plan-set"
	TenantQuotaSet  = "tenant.quota-set"
	TenantSuspended = "tenant.suspended"
	TenantResumed   = "tenant.resumed"
	PlanCreated     = "plan.created"
	PlanUpdated     = "plan.updated"
	KeyCreated      = "key.created"
	KeyRevoked      = "key.revoked"
	KeyRotated      = "key.rotated"
	BanAdded        = "ban.added"
	BanLifted       = "ban.lifted"
	QuotaReset      = "quota.reset"
	GatewayForgot   = "gateway.forgotten"
)

// Gateway is a registered gateway. It counts for confirmation until it signs off or is forgotten.
type Gateway struct {
	ID           string `json:"id"`
	AdminAddress string `json:"adminAddress"`
	Applied      Change `json:"applied"`          // the last event that it has applied; 0: it is still starting
	RegisteredAt int64  `json:"registeredAt"`     // ms, the database's clock
	SeenAt       int64  `json:"seenAt"`           // ms, the database's clock: its last heartbeat
	Age          int64  `json:"age"`              // ms since SeenAt by the database's clock, at reading
	MaxAge       int64  `json:"maxAge,omitempty"` // ms; it refuses everything when its directory is older; 0: it never does
}

// fenceMargin covers the rounding between a heartbeat and the read of which it tells.
const fenceMargin = 1000

// Fenced reports whether g, if it still runs, has begun to refuse everything, so that it can accept no key any more.
func (g Gateway) Fenced() bool { return g.MaxAge > 0 && g.Age > g.MaxAge+fenceMargin }

// Confirms reports whether g has applied c, or can no longer act against it.
func (g Gateway) Confirms(c Change) bool { return g.Applied >= c || g.Fenced() }

// UsageRow is the number of requests of one key with one outcome in one hour.
type UsageRow struct {
	Tenant   id.Tenant `json:"tenantId"`
	Key      id.Key    `json:"keyId,omitzero"`
	Outcome  string    `json:"outcome"`
	Hour     int64     `json:"hour"` // ms, the hour's begin
	Requests int64     `json:"requests"`
	LastAt   int64     `json:"lastAt,omitempty"` // ms: the latest of them; only in batches
}

// QuotaRecord is one tenant's use as the gateway encodes it. It is stored so that in-process quotas survive a restart.
type QuotaRecord struct {
	Tenant id.Tenant
	Record []byte
}
