package backup

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/sessions"
)

// decided are the tables of what operators decide, parents before children. In a live database, a
// restore replaces only these: usage, quotas and the list of gateways say what has happened.
var decided = []string{"plans", "tenants", "tenant_keys", "bans", "events"}

func isDecided(table string) bool { return slices.Contains(decided, table) }

// ErrChanged means that the live database has changed since the restore was prepared. Nothing was
// restored.
var ErrChanged = errors.New("the database has changed meanwhile")

// NewerBan is the kind of a newer refusal that is a ban. The other kinds are those of lost
// refusals.
const NewerBan = "banned"

// NewerRefusal is a refusal that the live database has and the backup does not have.
type NewerRefusal struct {
	Kind       string    `db:"kind"`
	Tenant     id.Tenant `db:"tenant_id"`
	TenantName string    `db:"tenant_name"`
	Key        id.Key    `db:"key_id"` // none: the tenant is suspended
	KeyName    string    `db:"key_name"`

	// When the key was revoked or disabled, or when its grace period or its ban ends. 0: the tenant
	// is suspended.
	At instant.Millis `db:"at"`

	ReplacedBy id.Key `db:"replaced_by"` // the key that replaced a rotated one; it is kept

	RevokedAt   instant.Millis `db:"revoked_at"` // these three as in Key
	DisabledAt  instant.Millis `db:"disabled_at"`
	GraceEndsAt instant.Millis `db:"grace_ends_at"`

	ban keystore.Ban
}

// LostChanges is the number of changes of one kind that the live database has and the backup does
// not have.
type LostChanges struct {
	Kind   string `db:"kind" json:"kind"`
	Number int64  `db:"number" json:"number"`
}

// difference is what the database has and the backup does not have.
type difference struct {
	Live  bool           // the database has tenants or events, which the backup replaces
	Newer []NewerRefusal // none if the database is not live
	Lost  []LostChanges  // all changes since the backup, those of Newer included
}

// Restore is a restore that is prepared, and not carried out yet. Close it. One goroutine uses it.
type Restore struct {
	difference
	Foreign bool // the database is live, and has no change in common with the backup

	store  *keystore.Store
	conn   *sqlx.Conn // has the rows of the backup in temporary tables
	backup File

	carried []id.Key // that are not in the backup: they replaced keys of it
}

// Prepare reads the backup into temporary tables of the database and compares it with what is
// there. It changes nothing. The store's database was opened by OpenPatient, because this may take
// long.
func Prepare(ctx context.Context, s *keystore.Store, b File) (*Restore, error) {
	r := &Restore{store: s, backup: b}
	if err := r.prepare(ctx); err != nil {
		r.Close()
		return nil, keystore.Fail("prepare the restore", err)
	}
	return r, nil
}

func (r *Restore) prepare(ctx context.Context) (err error) {
	if err := r.backup.CheckSchema(ctx, r.store.DB()); err != nil {
		return err
	}
	if err := r.backup.fits(ctx, r.store.DB()); err != nil {
		return err
	}
	r.conn, err = r.store.DB().Connx(ctx)
	if err != nil {
		return err
	}
	tables, rows := r.backup.tables(isDecided)
	for _, t := range tables {
		const create = "CREATE TEMPORARY TABLE restored_%[1]s AS SELECT %[2]s FROM %[1]s WHERE false"
		if _, err := r.conn.ExecContext(ctx, fmt.Sprintf(create, t.Name, t.Names())); err != nil {
			return err
		}
	}
	if err := r.store.DB().Insert(ctx, r.conn, "restored_", rows); err != nil {
		return err
	}
	for _, statement := range indexRestored {
		if _, err := r.conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	preview, err := r.conn.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer preview.Rollback() // the keys that it carries may have changed until Commit
	if err := r.carry(ctx, preview); err != nil {
		return err
	}
	found, err := r.compare(ctx, preview)
	if err != nil {
		return err
	}
	r.difference = found
	if !r.Live {
		return nil
	}
	var related bool
	err = preview.GetContext(ctx, &related, isRelated)
	r.Foreign = !related
	return err
}

// compare finds what the database has and the backup does not have.
func (r *Restore) compare(ctx context.Context, q sqlx.QueryerContext) (d difference, err error) {
	if err := sqlx.GetContext(ctx, q, &d.Live, isLive); err != nil || !d.Live {
		return d, err
	}
	now := r.store.Now()
	if err := sqlx.SelectContext(ctx, q, &d.Newer, newerRefusals, now); err != nil {
		return d, err
	}
	var bans []lists.NamedBan
	if err := sqlx.SelectContext(ctx, q, &bans, newerBans, now); err != nil {
		return d, err
	}
	for _, b := range bans {
		d.Newer = append(d.Newer, NewerRefusal{
			Kind:       NewerBan,
			Tenant:     b.Tenant,
			TenantName: b.TenantName,
			Key:        b.Key,
			KeyName:    b.KeyName,
			At:         b.Until,
			ban:        b.Ban,
		})
	}
	err = sqlx.SelectContext(ctx, q, &d.Lost, newerEvents)
	return d, err
}

// restoredRecord is what the event of a restore says.
type restoredRecord struct {
	TakenAt   instant.Millis `json:"takenAt"`
	Reapplied int            `json:"reapplied"` // newer refusals
}

// Commit carries out the restore in one transaction. Unless loseNewer is true, it makes the newer
// refusals again, and keeps the keys that replaced rotated ones. All sessions of the console end.
// asked means that an operator has seen what Prepare found. Then Commit fails with ErrChanged if
// the database has changed since.
//
// The first event after the restore has a larger ID than every event before, so no gateway has
// confirmed it. A gateway that has applied an event that the backup does not have loads everything
// again, and keeps what it refuses: see keystore.LostRefusal.
func (r *Restore) Commit(ctx context.Context, loseNewer, asked bool) (keystore.Change, error) {
	const op = "restore"
	return r.store.WriteOn(ctx, op, r.conn, func(t *keystore.Tx) error {
		// Adding usage updates rows of keys in another order: the two could deadlock.
		if err := t.LockUsage(); err != nil {
			return err
		}
		r.carried = nil
		if !loseNewer {
			if err := r.carry(ctx, t); err != nil {
				return err
			}
		}
		found, err := r.compare(ctx, t)
		if err != nil {
			return err
		}
		if found.Live != r.Live || asked && !slices.Equal(found.Lost, r.Lost) {
			return ErrChanged
		}
		if loseNewer {
			found.Newer = nil
		}
		last, _, err := r.store.LastEventOf(ctx, t)
		if err != nil {
			return err
		}
		if err := r.replace(t); err != nil {
			return err
		}
		if !found.Live {
			if err := r.fill(ctx, t); err != nil {
				return err
			}
		}
		if err := t.Exec(sessions.DeleteAll); err != nil {
			return err
		}
		t.Event(keystore.Restored, keystore.Subject{}, nil, restoredRecord{r.backup.TakenAt, len(found.Newer)})
		if err := t.Put(last); err != nil {
			return err
		}
		for _, key := range r.carried {
			k, err := t.Key(key)
			if err != nil {
				return err
			}
			t.Event(keystore.KeyCreated, keystore.Subject{Tenant: k.Tenant, Key: k.ID}, nil, k)
		}
		for _, n := range found.Newer {
			if err := reapply(t, n); err != nil {
				return err
			}
		}
		r.difference = found
		return nil
	})
}

// carry adds to the rows of the backup the keys that have replaced its keys since then.
func (r *Restore) carry(ctx context.Context, q sqlx.QueryerContext) error {
	return sqlx.SelectContext(ctx, q, &r.carried, fmt.Sprintf(carryReplacements, r.columns("tenant_keys")))
}

func (r *Restore) columns(table string) string {
	at := slices.IndexFunc(r.backup.Tables, func(t Table) bool { return t.Name == table })
	return r.backup.Tables[at].Names()
}

// replace replaces the decided tables by the rows of the backup.
func (r *Restore) replace(t *keystore.Tx) error {
	if err := t.Exec(keepLastUse); err != nil {
		return err
	}
	// Not TRUNCATE: a gateway that loads at this moment would read empty tables.
	for _, name := range slices.Backward(decided) {
		if err := t.Exec("DELETE FROM " + name); err != nil {
			return err
		}
	}
	for _, name := range decided {
		const insert = "INSERT INTO %[1]s (%[2]s) SELECT %[2]s FROM restored_%[1]s"
		if err := t.Exec(fmt.Sprintf(insert, name, r.columns(name))); err != nil {
			return err
		}
	}
	return nil
}

// fill writes the tables that a restore leaves as they are in a live database.
func (r *Restore) fill(ctx context.Context, t *keystore.Tx) error {
	const registry = "gateway_registry"
	tables, rows := r.backup.tables(func(name string) bool { return !isDecided(name) && name != registry })
	if err := r.store.DB().Replace(ctx, t, tables, rows); err != nil {
		return err
	}
	if err := t.Exec(skipSeals, t.At); err != nil {
		return err
	}
	// A gateway may be registered already, so the generation must not go back.
	_, rows = r.backup.tables(func(name string) bool { return name == registry })
	return rows(func(_ database.Table, line []byte) error {
		var row [1]int64
		if err := json.Unmarshal(line, &row); err != nil {
			return fmt.Errorf("%w: the row of %s: %w", ErrNoBackup, registry, err)
		}
		_, err := t.Grow(row[0])
		return err
	})
}

// reapply makes a refusal again.
func reapply(t *keystore.Tx, n NewerRefusal) error {
	switch n.Kind {
	case NewerBan:
		_, err := t.Ban(nil, n.ban)
		return err
	case keystore.LostSuspension:
		before, err := t.Tenant(n.Tenant)
		if err != nil {
			return err
		}
		after := before
		after.Suspended = true
		return t.EditTenant(keystore.Edit[keystore.Tenant]{Before: &before, After: after})
	}
	before, err := t.Key(n.Key)
	if err != nil {
		return err
	}
	after := before
	after.RevokedAt = n.RevokedAt
	after.DisabledAt = n.DisabledAt
	if ends := n.GraceEndsAt; ends != 0 && (after.GraceEndsAt == 0 || ends < after.GraceEndsAt) {
		after.GraceEndsAt = ends
	}
	after.ReplacedBy = cmp.Or(n.ReplacedBy, after.ReplacedBy)
	return t.EditKey(keystore.Edit[keystore.Key]{Before: &before, After: after})
}

// Close removes the temporary tables.
func (r *Restore) Close() {
	if r.conn != nil {
		// The connection is not used again, so the tables end with it.
		_ = r.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}
