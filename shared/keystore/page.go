package keystore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

// rows yields the rows of a query as they are at one instant. It keeps none of them, so a list may
// have any length. A loop that ends early still waits until PostgreSQL has sent the other rows:
// give its query a limit.
func rows[T any](ctx context.Context, s *Store, op, query string, args ...any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := s.snapshot(ctx, func(q sqlx.QueryerContext) error {
			return each(ctx, q, func(row T) error {
				if !yield(row, nil) {
					return errEnough
				}
				return nil
			}, query, args...)
		})
		if err != nil && err != errEnough {
			var none T
			yield(none, fail(op, err))
		}
	}
}

// errEnough ends a query whose other rows nobody wants.
var errEnough = errors.New("enough rows")

// each calls f for every row.
func each[T any](ctx context.Context, q sqlx.QueryerContext, f func(T) error, query string, args ...any) error {
	rows, err := q.QueryxContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var row T
		if err := rows.StructScan(&row); err != nil {
			return err
		}
		if err := f(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Collect returns the rows of a list that is known to be short.
func Collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	all := []T{}
	for row, err := range list {
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, nil
}

// Keys lists the keys of one tenant, or all keys if tenant is zero, the oldest first.
func (s *Store) Keys(ctx context.Context, tenant id.Tenant) iter.Seq2[Key, error] {
	if tenant.IsZero() {
		return rows[Key](ctx, s, "list keys", keysByAge)
	}
	return rows[Key](ctx, s, "list keys", keysOfTenant, tenant)
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
func (s *Store) FindTenants(ctx context.Context, f TenantFilter, after string, n int) ([]Tenant, error) {
	const op = "find tenants"
	if tenant, err := id.ParseTenant(f.Text); err == nil { // no name looks like an ID
		return list[Tenant](ctx, s, op, tenantFound, after, tenant)
	}
	switch last := (Tenant{CreatedAt: math.MaxInt64}); {
	case f.IsNewestFirst:
		if after != "" {
			var err error
			if last, err = s.Tenant(ctx, after); err != nil {
				return nil, err
			}
		}
		return planned[Tenant](ctx, s, op, tenantsNewest, f.pattern(), f.Plan, f.State, last.CreatedAt, last.ID, n)
	case f.Plan == "" && f.State == "":
		return list[Tenant](ctx, s, op, tenantsFound, after, cmp.Or(f.pattern(), "%"), n)
	}
	return planned[Tenant](ctx, s, op, tenantsSelected, f.pattern(), f.Plan, f.State, after, n)
}

// planned is list for a statement whose plan depends on its arguments.
func planned[T any](ctx context.Context, s *Store, op, query string, args ...any) ([]T, error) {
	all := []T{}
	q := s.db.Inline(s.expand.Replace(query), args...)
	err := s.db.SelectContext(ctx, &all, q.Query, q.Args...)
	return all, fail(op, err)
}

// CountTenants returns how many tenants a filter selects.
func (s *Store) CountTenants(ctx context.Context, f TenantFilter) (n int, err error) {
	const op = "count tenants"
	var counts []int
	if f.Text == "" && f.Plan == "" && f.State == "" { // no row has to be read
		counts, err = list[int](ctx, s, op, countTenants)
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

// FindKeys lists at most n keys of a tenant, or of all if tenant is zero, the newest first. after
// is the last key of the page before. Errors: ErrNotFound if that key does not exist.
func (s *Store) FindKeys(ctx context.Context, tenant id.Tenant, after id.Key, n int) ([]Key, error) {
	last := Key{CreatedAt: math.MaxInt64}
	if !after.IsZero() {
		var err error
		if last, err = findKey(ctx, s.db, after); err != nil {
			return nil, fail("find keys", err)
		}
	}
	query, args := keysFound, []any{last.CreatedAt, last.ID, n}
	if !tenant.IsZero() {
		query, args = keysFoundOfTenant, append(args, tenant)
	}
	return list[Key](ctx, s, "find keys", query, args...)
}

// KeysExpiring lists at most n valid keys that expire within a time, the first to expire first. It
// reads all keys.
func (s *Store) KeysExpiring(ctx context.Context, within time.Duration, n int) iter.Seq2[Key, error] {
	return rows[Key](ctx, s, "list the keys that expire", keysExpiring, s.now(), s.now().Add(within), n)
}

// rowsText returns rows with one member, for statements that read {rows}. The values are IDs or
// names.
func rowsText[T any](member string, values []T) string {
	rows := make([]map[string]T, len(values))
	for i, v := range values {
		rows[i] = map[string]T{member: v}
	}
	return jsonText(rows)
}

// TenantsOf returns tenants by their IDs. Those that do not exist are left out.
func (s *Store) TenantsOf(ctx context.Context, tenants []id.Tenant) (map[id.Tenant]Tenant, error) {
	found, err := list[Tenant](ctx, s, "find tenants", tenantsOf, rowsText("tenantId", tenants))
	byID := make(map[id.Tenant]Tenant, len(found))
	for _, t := range found {
		byID[t.ID] = t
	}
	return byID, err
}

// NamedBan is a ban with the names of its key and its tenant.
type NamedBan struct {
	Ban
	KeyName    string `db:"key_name"`
	TenantName string `db:"tenant_name"`
}

// Cursor names the place of a ban in the order of FindBans: its end and its key.
func (b NamedBan) Cursor() string { return fmt.Sprintf("%d.%s", b.Until, b.Key) }

// FindBans lists at most n current bans, of one tenant or of all if tenant is zero, ordered by
// their end and their key. It begins after the cursor after; empty: with the first. Errors:
// ErrNotFound if that is no cursor.
func (s *Store) FindBans(ctx context.Context, tenant id.Tenant, after string, n int) ([]NamedBan, error) {
	var until instant.Millis
	var key id.Key
	if after != "" {
		end, name, _ := strings.Cut(after, ".")
		ms, err := strconv.ParseInt(end, 10, 64)
		if until = instant.Millis(ms); err == nil {
			key, err = id.ParseKey(name)
		}
		if err != nil {
			return nil, fail("find bans", fmt.Errorf("%w: the list has no page after %q", ErrNotFound, after))
		}
	}
	query, args := bansFound, []any{s.now(), until, key, n}
	if !tenant.IsZero() {
		query, args = bansOfTenant, append(args, tenant)
	}
	return list[NamedBan](ctx, s, "find bans", query, args...)
}

// BansOf returns the current bans of some keys.
func (s *Store) BansOf(ctx context.Context, keys []id.Key) (map[id.Key]Ban, error) {
	found, err := list[Ban](ctx, s, "bans of keys", bansOfKeys, rowsText("keyId", keys), s.now())
	bans := make(map[id.Key]Ban, len(found))
	for _, b := range found {
		bans[b.Key] = b
	}
	return bans, err
}

// TenantOutcome is how many requests of a tenant had one outcome.
type TenantOutcome struct {
	Tenant   id.Tenant `db:"tenant_id"`
	Outcome  string    `db:"outcome"`
	Requests int64     `db:"requests"`
}
