package keystore

import (
	"context"
	"database/sql"
	"time"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore/schema"
)

// Tx is one transaction. A change of what operators decide goes like this:
//
//  1. change begins the transaction with a lock. SQLite has one: its write lock. PostgreSQL's
//     writers' lock is taken alone by a change that reads many records, and shared by a change of
//     one record, which locks the record's row instead. See hold.
//  2. A request that was carried out before changes nothing: ErrRepeated. See Once.
//  3. f reads what it is about, decides, and adds rows and events to the transaction. They wait:
//     nothing is written yet, except by Exec.
//  4. commit sends everything in one round trip: the turn, the rows, the events, the request and
//     COMMIT. A transaction that has the turn is the only one that draws IDs of events. So IDs
//     become visible in order, and the turn never lasts longer than the database needs.
//  5. Without an answer to COMMIT, it is unknown whether the change was made. settle waits until
//     the transaction has ended, and looks for its event.
//
// A transaction that f has added nothing to is not committed: it changes nothing.
type Tx struct {
	*sqlx.Conn
	At instant.Millis // when it began, by the store's clock

	ctx      context.Context
	store    *Store
	waiting  writes
	drawn    Change   // the largest ID of its events
	last     eventRow // the event with this ID
	hasEnded bool
}

// lock is the statement with which a change takes PostgreSQL's writers' lock.
type lock string

// Write makes a change while no other transaction changes anything. It returns the change's event,
// or the last event if f has changed nothing.
func (s *Store) Write(ctx context.Context, op string, f func(*Tx) error) (Change, error) {
	return s.change(ctx, op, alonePostgres, f)
}

// change makes a change, as the comment of Tx says. With the lock shared, f reads what it changes
// by hold, and only that.
func (s *Store) change(ctx context.Context, op string, with lock, f func(*Tx) error) (Change, error) {
	made, err := s.changeOnce(ctx, op, with, f)
	if s.request != nil && database.IsUnique(err) { // perhaps the same request was carried out meanwhile
		made, err = s.changeOnce(ctx, op, with, f)
	}
	return made, err
}

func (s *Store) changeOnce(ctx context.Context, op string, with lock, f func(*Tx) error) (Change, error) {
	on, err := s.db.BeginWith(ctx, s.beginning(with))
	if err != nil {
		return 0, Fail(op, s.explain(ctx, err))
	}
	defer on.Close()
	return s.finish(ctx, op, on, f)
}

// WriteOn is Write on a connection of the caller.
func (s *Store) WriteOn(ctx context.Context, op string, on *sqlx.Conn, f func(*Tx) error) (Change, error) {
	if _, err := on.ExecContext(ctx, s.beginning(alonePostgres)); err != nil {
		return 0, Fail(op, s.explain(ctx, err))
	}
	return s.finish(ctx, op, on, f)
}

// finish carries out a change whose transaction has begun.
func (s *Store) finish(ctx context.Context, op string, on *sqlx.Conn, f func(*Tx) error) (Change, error) {
	t := &Tx{Conn: on, At: s.Now(), ctx: ctx, store: s}
	defer t.rollback()
	if err := t.unlessRepeated(f); err != nil {
		return 0, Fail(op, s.explain(ctx, err))
	}
	if t.isIdle() {
		last, _, err := s.LastEventOf(ctx, t)
		return last, Fail(op, err)
	}
	isUnknown, err := t.commit()
	if isUnknown {
		t.rollback()
		return t.settle(op, Fail(op, err))
	}
	if err != nil {
		return 0, Fail(op, s.explain(ctx, err))
	}
	return t.drawn, nil
}

// Transact runs f in a transaction that makes no event, and commits it unless f fails.
func (s *Store) Transact(ctx context.Context, op string, f func(*Tx) error) error {
	on, err := s.db.BeginWith(ctx, s.beginning(""))
	if err != nil {
		return Fail(op, s.explain(ctx, err))
	}
	defer on.Close()
	t := &Tx{Conn: on, At: s.Now(), ctx: ctx, store: s}
	defer t.rollback()
	if err := f(t); err != nil {
		return Fail(op, err)
	}
	_, err = t.commit()
	return Fail(op, err)
}

// beginning is the statement that begins a transaction.
func (s *Store) beginning(with lock) string {
	if s.db.Dialect() == database.SQLite {
		return "BEGIN IMMEDIATE" // takes SQLite's write lock
	}
	return "BEGIN; " + string(with)
}

// isIdle reports whether the transaction has changed nothing.
func (t *Tx) isIdle() bool { return t.drawn == 0 && len(t.waiting.events) == 0 }

// unlessRepeated runs f unless the request was carried out before. The same request may have been
// carried out while this one waited for its record. Then f fails or finds nothing to do.
func (t *Tx) unlessRepeated(f func(*Tx) error) error {
	if err := t.checkRequest(); err != nil {
		return err
	}
	err := f(t)
	if err == nil && !t.isIdle() {
		return nil
	}
	again := t.checkRequest()
	if err == nil || isRepeated(again) {
		return again
	}
	return err
}

// commit writes what waits, and commits. isUnknown: it failed, and the transaction may have been
// committed.
func (t *Tx) commit() (isUnknown bool, err error) {
	statements := append(t.takeWaiting(0), database.Statement{Query: "COMMIT"})
	if t.store.db.Dialect() == database.SQLite { // the outcome is unknown only if COMMIT itself fails
		before := statements[:len(statements)-1]
		if err := t.send(before...); err != nil {
			return false, err
		}
		statements = statements[len(before):]
	}
	err = t.send(statements...)
	if err == nil {
		t.hasEnded = true
		return false, nil
	}
	return !database.IsAnswer(err), err
}

// rollback undoes what was not committed.
func (t *Tx) rollback() {
	if !t.hasEnded {
		t.hasEnded = true
		database.Rollback(t.Conn)
	}
}

// seekEvery is the pause between two looks for an event.
const seekEvery = 50 * time.Millisecond

// settle returns the outcome of a transaction whose COMMIT has failed. The transaction had the
// writers' lock, or a share of it: once another transaction has the lock alone, it sees how the
// first one ended.
func (t *Tx) settle(op string, failed error) (Change, error) {
	if !t.store.seeks {
		return 0, failed
	}
	look := t.store.As(t.store.actor)   // without the request, which would be refused as repeated
	ctx := context.WithoutCancel(t.ctx) // also if the caller has gone: its change must be known
	for deadline := time.Now().Add(t.store.seekFor); ; time.Sleep(seekEvery) {
		var made Change
		_, err := look.Write(ctx, op, func(now *Tx) error {
			return now.GetContext(ctx, &made, eventByUUID, t.At, t.last.UUID)
		})
		switch {
		case err == nil && made > 0:
			return made, nil
		case err == nil:
			return 0, failed
		case time.Now().After(deadline) || t.ctx.Err() != nil:
			return 0, &UnknownError{t.last.Kind, t.last.Tenant, t.last.Key, err}
		}
	}
}

// hold reads records and locks them: no other transaction changes them until this one ends. A
// transaction that shares the writers' lock writes nothing before its turn. Otherwise the
// transaction that has the turn could wait for it, for example because both write the same name.
type hold struct{ *Tx }

func (h hold) QueryRowxContext(ctx context.Context, query string, args ...any) *sqlx.Row {
	if h.store.db.Dialect() == database.Postgres {
		query += " FOR NO KEY UPDATE" // new rows may refer to it
	}
	return h.Tx.QueryRowxContext(ctx, query, args...)
}

// Put writes what waits. The IDs of its events are larger than after.
func (t *Tx) Put(after Change) error { return t.send(t.takeWaiting(after)...) }

// takeWaiting returns the statements that write what waits, and empties the list of what waits.
func (t *Tx) takeWaiting(after Change) (all []database.Statement) {
	w := t.waiting
	t.waiting = writes{refersTo: w.refersTo}
	if len(w.events) == 0 {
		return nil
	}
	add := func(query string, args ...any) {
		all = append(all, database.Statement{Query: t.store.SQL(query), Args: args})
	}
	if t.store.db.Dialect() == database.Postgres {
		add(turnPostgres)
	}
	for _, query := range changeStatements {
		if records := w.byStatement[query]; len(records) > 0 {
			add(query, JSON(records))
		}
	}
	add(insertEvents, JSON(w.events), t.At, t.store.actor, after)
	t.last = w.events[len(w.events)-1]
	if r := t.store.request; r != nil {
		add(pruneRequests, t.At.Add(-requestsKept))
		add(insertRequest, r.ID, r.Body, r.Salt, t.At)
	}
	return all
}

// send runs statements. On PostgreSQL, they are one round trip.
func (t *Tx) send(all ...database.Statement) error {
	largest, err := t.store.db.Run(t.ctx, t, all...)
	t.drawn = max(t.drawn, Change(largest))
	return t.waiting.explain(err)
}

// Exec runs a statement.
func (t *Tx) Exec(query string, args ...any) error {
	_, err := t.Affects(query, args...)
	return err
}

// Affects runs a statement and reports whether it has changed a row.
func (t *Tx) Affects(query string, args ...any) (bool, error) {
	return Affected(t.ExecContext(t.ctx, t.store.SQL(query), args...))
}

// call runs a function that returns the ID of the event that it has added, or NULL.
func (t *Tx) call(query string, args ...any) error {
	var c sql.NullInt64
	err := t.GetContext(t.ctx, &c, query, args...)
	t.drawn = max(t.drawn, Change(c.Int64))
	return err
}

// LockUsage waits until no other transaction adds or seals usage. SQLite has one writer at a time
// anyway. Adding usage updates rows of keys in another order than a change of many keys: without
// this lock, the two could deadlock.
func (t *Tx) LockUsage() error {
	if t.store.db.Dialect() != database.Postgres {
		return nil
	}
	return t.Exec(lockUsagePostgres)
}

// Grow makes the registry's generation larger than before and larger than least.
func (t *Tx) Grow(least int64) (generation int64, err error) {
	err = t.GetContext(t.ctx, &generation, t.store.SQL(schema.GrowGeneration), least)
	return generation, err
}

// Tenant reads a tenant.
func (t *Tx) Tenant(tenant id.Tenant) (Tenant, error) {
	return findTenant(t.ctx, t, tenantByID, tenant.String())
}

// Key reads a key.
func (t *Tx) Key(key id.Key) (Key, error) { return findKey(t.ctx, t, key) }
