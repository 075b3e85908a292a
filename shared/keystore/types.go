package keystore

import (
	"cmp"
	"database/sql/driver"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
)

// Change is the ID of an event. A write returns the ID of its event or, if nothing had to change,
// of the last event. The write is in force at every gateway that has applied this event. IDs become
// visible in order.
type Change int64

// A field of a record whose tag audit is:
//
//   - "words" has this name in the audit log, in place of its JSON name
//   - "-" repeats another column, or says nothing about a change
//   - ",free" can have any text. It is quoted: it could look like a part of the sentence
//   - ",word" is quoted unless it is a plain word

// Tenant owns keys and has one plan.
type Tenant struct {
	ID       id.Tenant   `db:"id" json:"id" audit:"-"`
	Name     string      `db:"name" json:"name" audit:",free"`
	Plan     string      `db:"plan" json:"plan"`
	Override plan.Limits `db:"override" json:"override" audit:"own limit"` // zero: the plan's limit applies
	// MonthStarts is the day of the UTC month on which the tenant's month begins: 1 to 28; 0: the
	// first.
	MonthStarts uint8          `db:"month_starts" json:"monthStarts,omitempty" audit:"month begins on day"`
	Suspended   bool           `db:"suspended" json:"suspended"`
	CreatedAt   instant.Millis `db:"created_at" json:"createdAt" audit:"-"` // ms
}

// Plan is a named set of limits.
type Plan struct {
	Name      string         `db:"name" json:"name" audit:",free"`
	Limits    plan.Limits    `db:"limits" json:"limits" audit:"limit"`                 // zero: each tenant of the plan needs an override
	Test      plan.Limits    `db:"test" json:"test,omitzero" audit:"test keys' limit"` // of test keys, where set, in place of Limits and overrides; only Minute
	CreatedAt instant.Millis `db:"created_at" json:"createdAt" audit:"-"`
}

// InForce returns the limits of a tenant of this plan that has the given overrides, in an
// environment.
func (p *Plan) InForce(override plan.Limits, in apikey.Environment) plan.Limits {
	limits := plan.Effective(p.Limits, override)
	if in == apikey.Test {
		limits = plan.Effective(limits, p.Test)
	}
	return limits
}

// Key is an API key's record. It contains neither the token nor its hash. A time of 0 means never.
type Key struct {
	ID          id.Key             `db:"id" json:"id" audit:"-"`
	Tenant      id.Tenant          `db:"tenant_id" json:"tenantId" audit:"-"`
	Name        string             `db:"name" json:"name" audit:",free"`
	Hint        string             `db:"hint" json:"hint"` // the token's last characters
	Environment apikey.Environment `db:"environment" json:"environment"`
	Scopes      apikey.Scopes      `db:"scopes" json:"scopes"`
	Allow       Prefixes           `db:"allow_list" json:"allow,omitempty" audit:"allowed from"`
	CreatedAt   instant.Millis     `db:"created_at" json:"createdAt" audit:"-"`
	ExpiresAt   instant.Millis     `db:"expires_at" json:"expiresAt,omitempty" audit:"expires"`
	RevokedAt   instant.Millis     `db:"revoked_at" json:"revokedAt,omitempty" audit:"revoked at"`
	DisabledAt  instant.Millis     `db:"disabled_at" json:"disabledAt,omitempty" audit:"disabled at"`            // 0 once it is revoked
	GraceEndsAt instant.Millis     `db:"grace_ends_at" json:"graceEndsAt,omitempty" audit:"old key works until"` // after a rotation: refused from this instant on
	ReplacedBy  id.Key             `db:"replaced_by" json:"replacedBy,omitzero" audit:"replaced by"`             // after a rotation: the new key
	LastUsedAt  instant.Millis     `db:"last_used_at" json:"lastUsedAt,omitempty" audit:"-"`                     // up to a minute late
	RefusedAt   instant.Millis     `db:"last_refused_at" json:"-"`                                               // the last call that was refused before it was charged; up to a minute late
	Limits      plan.Limits        `db:"limits" json:"limits,omitzero" audit:"limit"`                            // the key's own, within its tenant's; never Month; zero: none
}

// Prefixes are the networks from which a key may be used; none: all. A database has them as CIDRs
// separated by spaces.
type Prefixes []netip.Prefix

// Value writes the list for the database.
func (p Prefixes) Value() (driver.Value, error) {
	texts := make([]string, len(p))
	for i, prefix := range p {
		texts[i] = prefix.String()
	}
	return strings.Join(texts, " "), nil
}

// Scan reads what Value wrote.
func (p *Prefixes) Scan(column any) error {
	text, isText := column.(string)
	if !isText {
		return fmt.Errorf("an allow-list is a text column, not %T", column)
	}
	*p = nil
	for _, cidr := range strings.Fields(text) {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return err
		}
		*p = append(*p, prefix)
	}
	return nil
}

// Access returns the key as package access needs it, banned until the given time (0: it is not
// banned).
func (k Key) Access(bannedUntil instant.Millis) access.Key {
	return access.Key{
		Environment: k.Environment,
		RevokedAt:   k.RevokedAt,
		DisabledAt:  k.DisabledAt,
		ExpiresAt:   k.ExpiresAt,
		GraceEndsAt: k.GraceEndsAt,
		BannedUntil: bannedUntil,
		Allow:       k.Allow,
	}
}

// InUse reports whether the key can still be used and changed: see access.InUse.
func (k Key) InUse(now instant.Millis) bool { return access.InUse(k.Access(0), now) }

// IsEnabled reports whether the key is neither revoked nor disabled.
func (k Key) IsEnabled() bool { return k.RevokedAt == 0 && k.DisabledAt == 0 }

// Enabled returns the key as it is when it is not disabled.
func (k Key) Enabled() Key {
	k.DisabledAt = 0
	return k
}

// Revoked returns the key as it is after a revocation at the given time. An earlier revocation
// counts. A revoked key cannot be enabled, so it is not disabled.
func (k Key) Revoked(at instant.Millis) Key {
	k.RevokedAt = cmp.Or(k.RevokedAt, at)
	k.DisabledAt = 0
	return k
}

// TenantSpec describes a new tenant.
type TenantSpec struct {
	Name     string
	Plan     string
	Override plan.Limits
	// MonthStarts is as in Tenant.
	MonthStarts uint8
}

// KeySpec describes a new key. No scopes means all of Store.Scopes; no environment means live.
type KeySpec struct {
	Tenant      id.Tenant
	Name        string
	Environment apikey.Environment
	Scopes      apikey.Scopes
	Allow       []netip.Prefix
	ExpiresAt   instant.Millis // 0: never
	Limits      plan.Limits    // the key's own; zero: none
	Prefix      string         // of the token; empty: that of the gateway that registered last
}

// Ban refuses a key until an instant. It is identified by key, actor and the instant at which it
// was imposed. Adding it again, as after a lost reply, changes nothing, even if it was lifted in
// between.
type Ban struct {
	Key       id.Key         `db:"key_id" json:"keyId" audit:"-"`
	Tenant    id.Tenant      `db:"tenant_id" json:"tenantId" audit:"-"`          // set by the store
	Until     instant.Millis `db:"until" json:"until"`                           // ms
	Automatic bool           `db:"automatic" json:"automatic"`                   // a gateway imposed it, because the key did not wait
	Notice    string         `db:"notice" json:"notice,omitempty" audit:",free"` // the operator's words for the tenant; empty: none
	Reason    string         `db:"reason" json:"reason" audit:",free"`           // for operators only
	By        string         `db:"imposed_by" json:"by" audit:"imposed by,word"` // a gateway's ID or an operator; empty: the actor of the store
	ImposedAt instant.Millis `db:"imposed_at" json:"imposedAt" audit:"-"`        // ms; 0: now
}

// Event is one change with its actor and the records before and after it. It contains no token and
// no hash.
type Event struct {
	ID     Change         `db:"id"`
	UUID   string         `db:"uuid"` // random: after a fail-over, another event may have the same ID
	At     instant.Millis `db:"at"`   // ms
	Actor  string         `db:"actor"`
	Kind   string         `db:"kind"`
	Tenant id.Tenant      `db:"tenant_id"`
	Key    id.Key         `db:"key_id"`
	Plan   string         `db:"plan"`
	Before string         `db:"before_json"` // the record before the change, as JSON; empty: there was none
	After  string         `db:"after_json"`
}

// ConsoleActor begins the actor of somebody whom an identity proxy has signed in.
const ConsoleActor = "console:"

// The kinds of events.
const (
	TenantCreated   = "tenant.created"
	TenantRenamed   = "tenant.renamed"
	TenantPlanSet   = "tenant.plan-set"
	TenantQuotaSet  = "tenant.quota-set"
	TenantSuspended = "tenant.suspended"
	TenantResumed   = "tenant.resumed"
	TenantDeleted   = "tenant.deleted"
	PlanCreated     = "plan.created"
	PlanUpdated     = "plan.updated"
	PlanDeleted     = "plan.deleted"
	KeyCreated      = "key.created"
	KeyUpdated      = "key.updated"
	KeyDisabled     = "key.disabled"
	KeyEnabled      = "key.enabled"
	KeyRevoked      = "key.revoked"
	KeyRotated      = "key.rotated"
	BanAdded        = "ban.added"
	BanLifted       = "ban.lifted"
	QuotaReset      = "quota.reset"
	GatewayForgot   = "gateway.forgotten"
	RefusalLost     = "refusal.lost"
	RefusalDropped  = "refusal.dropped"
	ConsoleInvited  = "console.invited"
	ConsoleOpened   = "console.opened"
	ConsoleEnded    = "console.ended"
	OperatorCreated = "operator.created"
	OperatorRevoked = "operator.revoked"
	Restored        = "database.restored"
)

// EventKinds lists the kinds of events.
var EventKinds = []string{
	TenantCreated, TenantRenamed, TenantPlanSet, TenantQuotaSet, TenantSuspended, TenantResumed, TenantDeleted, PlanCreated, PlanUpdated,
	PlanDeleted, KeyCreated, KeyUpdated, KeyDisabled, KeyEnabled, KeyRevoked, KeyRotated, BanAdded, BanLifted, QuotaReset, GatewayForgot, RefusalLost, RefusalDropped,
	ConsoleInvited, ConsoleOpened, ConsoleEnded, OperatorCreated, OperatorRevoked, Restored,
}

// EventKindsAndGroups returns what EventFilter.Kind can be: the kinds of events, and the parts
// before their dots. It is sorted.
func EventKindsAndGroups() []string {
	all := slices.Clone(EventKinds)
	for _, kind := range EventKinds {
		group, _, _ := strings.Cut(kind, ".")
		all = append(all, group)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
