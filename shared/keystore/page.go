package keystore

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

// likeText escapes the characters that have a meaning in a pattern of LIKE.
var likeText = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// FindTenants lists at most n tenants by name, from the one after the name after on. The text is a part of their names, in lower or
// upper case, or the ID of one tenant; empty: all tenants. Letters outside of ASCII must have the case of the name, unless the database
// knows their cases: SQLite does not.
func (s *Store) FindTenants(ctx context.Context, text, after string, n int) ([]Tenant, error) {
	query, args := tenantsFound, []any{after, "%" + likeText.Replace(text) + "%", n}
	if tenant, err := id.ParseTenant(text); err == nil { // no name looks like an ID
		query, args = tenantFound, []any{after, tenant}
	}
	tenants := []Tenant{}
	err := s.db.SelectContext(ctx, &tenants, query, args...)
	return tenants, fail("find tenants", err)
}

// TenantsByPlan returns how many tenants each plan has. Plans without tenants are left out.
func (s *Store) TenantsByPlan(ctx context.Context) (map[string]int, error) {
	var rows []struct {
		Plan    string `db:"plan"`
		Tenants int    `db:"tenants"`
	}
	err := s.db.SelectContext(ctx, &rows, tenantsByPlan)
	counts := make(map[string]int, len(rows))
	for _, r := range rows {
		counts[r.Plan] = r.Tenants
	}
	return counts, fail("count tenants", err)
}

// FindKeys lists at most n keys of a tenant, the newest first, from the one after the key after on. Errors: ErrNotFound if there is no
// key after.
func (s *Store) FindKeys(ctx context.Context, tenant id.Tenant, after id.Key, n int) ([]Key, error) {
	last := Key{CreatedAt: math.MaxInt64}
	if !after.IsZero() {
		var err error
		if last, err = findKey(ctx, s.db, after); err != nil {
			return nil, fail("find keys", err)
		}
	}
	keys := []Key{}
	err := s.db.SelectContext(ctx, &keys, keysFound, tenant, last.CreatedAt, last.ID, n)
	return keys, fail("find keys", err)
}

// rowsText returns rows with one member, for statements that read {rows}. The values are IDs or names.
func rowsText[T any](member string, values []T) string {
	rows := make([]map[string]T, len(values))
	for i, v := range values {
		rows[i] = map[string]T{member: v}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		panic("bug: rows that are no JSON: " + err.Error())
	}
	return string(text)
}

// TenantNames returns the names of tenants. Those that do not exist are left out.
func (s *Store) TenantNames(ctx context.Context, tenants []id.Tenant) (map[id.Tenant]string, error) {
	var rows []struct {
		ID   id.Tenant `db:"id"`
		Name string    `db:"name"`
	}
	err := s.db.SelectContext(ctx, &rows, s.expand.Replace(tenantNames), rowsText("tenantId", tenants))
	names := make(map[id.Tenant]string, len(rows))
	for _, r := range rows {
		names[r.ID] = r.Name
	}
	return names, fail("names of tenants", err)
}

// NamedBan is a ban with the names of its key and its tenant.
type NamedBan struct {
	Ban
	KeyName    string `db:"key_name"`
	TenantName string `db:"tenant_name"`
}

// FindBans lists at most n current bans, of one tenant or of all if tenant is zero, ordered by their end and their key. It begins after
// the ban of that end and that key.
func (s *Store) FindBans(ctx context.Context, tenant id.Tenant, until instant.Millis, key id.Key, n int) ([]NamedBan, error) {
	query, args := bansFound, []any{s.now(), until, key, n}
	if !tenant.IsZero() {
		query, args = bansOfTenant, append(args, tenant)
	}
	bans := []NamedBan{}
	err := s.db.SelectContext(ctx, &bans, query, args...)
	return bans, fail("find bans", err)
}

// BansOf returns the current bans of some keys.
func (s *Store) BansOf(ctx context.Context, keys []id.Key) (map[id.Key]Ban, error) {
	var found []Ban
	if err := s.db.SelectContext(ctx, &found, s.expand.Replace(bansOfKeys), rowsText("keyId", keys), s.now()); err != nil {
		return nil, fail("bans of keys", err)
	}
	bans := make(map[id.Key]Ban, len(found))
	for _, b := range found {
		bans[b.Key] = b
	}
	return bans, nil
}

// TenantOutcome is how many requests of a tenant had one outcome.
type TenantOutcome struct {
	Tenant   id.Tenant `db:"tenant_id"`
	Outcome  string    `db:"outcome"`
	Requests int64     `db:"requests"`
}

// TenantOutcomes adds up the requests of tenants by outcome, beginning with the hour of since.
func (s *Store) TenantOutcomes(ctx context.Context, tenants []id.Tenant, since instant.Millis) ([]TenantOutcome, error) {
	outcomes := []TenantOutcome{}
	err := s.db.SelectContext(ctx, &outcomes, s.expand.Replace(outcomesOfTenants), rowsText("tenantId", tenants), since.Truncate(time.Hour))
	return outcomes, fail("outcomes of tenants", err)
}
