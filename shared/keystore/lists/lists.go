// Package lists reads what operators look through, page by page or as streams: tenants, keys, bans
// and events.
package lists

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

// Store reads lists.
type Store struct{ *keystore.Store }

// Of returns the lists of a store's database.
func Of(s *keystore.Store) Store { return Store{s} }

// Keys lists the keys of one tenant, or all keys if tenant is zero, the oldest first.
func (s Store) Keys(ctx context.Context, tenant id.Tenant) iter.Seq2[keystore.Key, error] {
	if tenant.IsZero() {
		return keystore.Stream[keystore.Key](ctx, s.Store, "list keys", keysByAge)
	}
	return keystore.Stream[keystore.Key](ctx, s.Store, "list keys", keysOfTenant, tenant)
}

// likeText escapes the characters that have a meaning in a pattern of LIKE.
var likeText = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// lower writes a letter of ASCII in lower case, as LOWER does in both databases.
func lower(letter rune) rune {
	if letter < utf8.RuneSelf {
		return unicode.ToLower(letter)
	}
	return letter
}

// TenantFilter selects tenants, and says in which order they come.
type TenantFilter struct {
	Text          string // a part of their names, in lower or upper case, or the ID of one tenant; empty: all
	Plan          string // empty: all
	State         string // active or suspended; empty: all
	IsNewestFirst bool   // otherwise by name
}

// pattern returns the pattern of the names; empty: all names.
func (f TenantFilter) pattern() string {
	if f.Text == "" {
		return ""
	}
	return "%" + likeText.Replace(strings.Map(lower, f.Text)) + "%"
}

// FindTenants lists at most n tenants. after is the last one of the page before: its name or, with
// the newest first, its ID. In the text, letters outside of ASCII must have the case of the name.
func (s Store) FindTenants(ctx context.Context, f TenantFilter, after string, n int) ([]keystore.Tenant, error) {
	const op = "find tenants"
	if tenant, err := id.ParseTenant(f.Text); err == nil { // no name looks like an ID
		return keystore.List[keystore.Tenant](ctx, s.Store, op, tenantFound, after, tenant)
	}
	switch {
	case f.IsNewestFirst:
		last := keystore.Tenant{CreatedAt: math.MaxInt64} // before the first page
		if after != "" {
			var err error
			last, err = s.Tenant(ctx, after)
			if err != nil {
				return nil, err
			}
		}
		return planned[keystore.Tenant](ctx, s, op, tenantsNewest,
			f.pattern(), f.Plan, f.State, last.CreatedAt, last.ID, n)
	case f.Plan == "" && f.State == "":
		return keystore.List[keystore.Tenant](ctx, s.Store, op, tenantsFound, after, cmp.Or(f.pattern(), "%"), n)
	}
	return planned[keystore.Tenant](ctx, s, op, tenantsSelected, f.pattern(), f.Plan, f.State, after, n)
}

// planned is keystore.List for a statement whose execution plan should depend on its arguments.
func planned[T any](ctx context.Context, s Store, op, query string, args ...any) ([]T, error) {
	all := []T{}
	q := s.DB().Inline(s.SQL(query), args...)
	err := s.DB().SelectContext(ctx, &all, q.Query, q.Args...)
	return all, keystore.Fail(op, err)
}

// CountTenants returns how many tenants a filter selects.
func (s Store) CountTenants(ctx context.Context, f TenantFilter) (n int, err error) {
	const op = "count tenants"
	var counts []int
	if f.Text == "" && f.Plan == "" && f.State == "" { // no row has to be read
		counts, err = keystore.List[int](ctx, s.Store, op, countTenants)
	} else {
		only := ""
		if _, bad := id.ParseTenant(f.Text); bad == nil {
			only, f.Text = f.Text, ""
		}
		counts, err = planned[int](ctx, s, op, countSelected, f.pattern(), f.Plan, f.State, only)
	}
	if err != nil {
		return 0, err
	}
	return counts[0], nil
}

// TenantsByPlan returns how many tenants each plan has. Plans without tenants are left out.
func (s Store) TenantsByPlan(ctx context.Context) (map[string]int, error) {
	var rows []struct {
		Plan    string `db:"plan"`
		Tenants int    `db:"tenants"`
	}
	err := s.DB().SelectContext(ctx, &rows, tenantsByPlan)
	counts := make(map[string]int, len(rows))
	for _, r := range rows {
		counts[r.Plan] = r.Tenants
	}
	return counts, keystore.Fail("count tenants", err)
}

// FindKeys lists at most n keys of a tenant, or of all if tenant is zero, the newest first. after
// is the last key of the page before. Errors: ErrNotFound if that key does not exist.
func (s Store) FindKeys(ctx context.Context, tenant id.Tenant, after id.Key, n int) ([]keystore.Key, error) {
	last := keystore.Key{CreatedAt: math.MaxInt64} // before the first page
	if !after.IsZero() {
		var err error
		last, err = s.Key(ctx, after)
		if err != nil {
			return nil, keystore.Fail("find keys", err)
		}
	}
	query, args := keysFound, []any{last.CreatedAt, last.ID, n}
	if !tenant.IsZero() {
		query, args = keysFoundOfTenant, append(args, tenant)
	}
	return keystore.List[keystore.Key](ctx, s.Store, "find keys", query, args...)
}

// KeysExpiring lists at most n valid keys that expire within a time, the first to expire first. It
// reads all keys.
func (s Store) KeysExpiring(ctx context.Context, within time.Duration, n int) iter.Seq2[keystore.Key, error] {
	const op = "list the keys that expire"
	now := s.Now()
	return keystore.Stream[keystore.Key](ctx, s.Store, op, keysExpiring, now, now.Add(within), n)
}

// TenantsOf returns tenants by their IDs. Those that do not exist are left out.
func (s Store) TenantsOf(ctx context.Context, tenants []id.Tenant) (map[id.Tenant]keystore.Tenant, error) {
	rows := keystore.RowsText("tenantId", tenants)
	found, err := keystore.List[keystore.Tenant](ctx, s.Store, "find tenants", tenantsOf, rows)
	byID := make(map[id.Tenant]keystore.Tenant, len(found))
	for _, t := range found {
		byID[t.ID] = t
	}
	return byID, err
}

// NamedBan is a ban with the names of its key and its tenant.
type NamedBan struct {
	keystore.Ban
	KeyName    string `db:"key_name"`
	TenantName string `db:"tenant_name"`
}

// Cursor names the place of a ban in the order of FindBans: its end and its key.
func (b NamedBan) Cursor() string { return fmt.Sprintf("%d.%s", b.Until, b.Key) }

// parseCursor reads what Cursor wrote. An empty cursor is before all bans.
func parseCursor(cursor string) (until instant.Millis, key id.Key, err error) {
	if cursor == "" {
		return 0, id.Key{}, nil
	}
	end, name, _ := strings.Cut(cursor, ".")
	ms, err := strconv.ParseInt(end, 10, 64)
	if err == nil {
		key, err = id.ParseKey(name)
	}
	if err != nil {
		return 0, id.Key{}, fmt.Errorf("%w: the list has no page after %q", keystore.ErrNotFound, cursor)
	}
	return instant.Millis(ms), key, nil
}

// FindBans lists at most n current bans, of one tenant or of all if tenant is zero, ordered by
// their end and their key. It begins after the cursor after or, if that is empty, with the first
// ban. Errors: ErrNotFound if after is not a cursor.
func (s Store) FindBans(ctx context.Context, tenant id.Tenant, after string, n int) ([]NamedBan, error) {
	const op = "find bans"
	until, key, err := parseCursor(after)
	if err != nil {
		return nil, keystore.Fail(op, err)
	}
	query, args := bansFound, []any{s.Now(), until, key, n}
	if !tenant.IsZero() {
		query, args = bansOfTenant, append(args, tenant)
	}
	return keystore.List[NamedBan](ctx, s.Store, op, query, args...)
}

// CountBans returns how many keys are banned.
func (s Store) CountBans(ctx context.Context) (n int, err error) {
	err = s.DB().GetContext(ctx, &n, countBans, s.Now())
	return n, keystore.Fail("count bans", err)
}

// BansOf returns the current bans of some keys.
func (s Store) BansOf(ctx context.Context, keys []id.Key) (map[id.Key]keystore.Ban, error) {
	rows := keystore.RowsText("keyId", keys)
	found, err := keystore.List[keystore.Ban](ctx, s.Store, "bans of keys", bansOfKeys, rows, s.Now())
	bans := make(map[id.Key]keystore.Ban, len(found))
	for _, b := range found {
		bans[b.Key] = b
	}
	return bans, err
}
