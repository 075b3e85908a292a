package pets

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"petgate/shared/api/code"
	"petgate/shared/database"
)

//go:embed migrations
var files embed.FS

// Migrations create the tables of the pets.
var Migrations = database.Migrations{FS: files, Table: "pets_schema"}

// Both databases understand these statements.
const (
	// A page of all pets. $1: it begins after this id, $2: number of rows.
	listQuery = `SELECT id, name, category_id, status FROM pets WHERE id > $1 ORDER BY id LIMIT $2`

	// A page of the pets with one status. $1: it begins after this id, $2: number of rows, $3: the
	// status.
	listByStatusQuery = `SELECT id, name, category_id, status FROM pets
		WHERE id > $1 AND status = $3 ORDER BY id LIMIT $2`

	// One pet. $1: its id.
	getQuery = `SELECT id, name, category_id, status FROM pets WHERE id = $1`

	// Stores a pet and returns its id. $1: name, $2: category, $3: status.
	insertQuery = `INSERT INTO pets (name, category_id, status) VALUES ($1, $2, $3) RETURNING id`
)

const (
	// A database that does not respond within this time is treated as unavailable: requests are
	// refused, not held.
	signOfLife = time.Second

	// A request that waits longer than this for a connection is refused.
	patience = time.Second
)

// The refusals of the store. Any other error is a bug or a failure that should be logged.
var (
	errNotFound    = newRefusal(code.PetNotFound, "no pet has this id")
	errOverloaded  = newRefusal(code.Overloaded, "too many requests are waiting; nothing was stored, try again")
	errUnavailable = newRefusal(code.DatabaseUnavailable,
		"the database is unavailable at the moment; nothing was stored, try again")
	errReadOnly = newRefusal(code.DatabaseUnavailable,
		"the database is read-only at the moment; nothing was stored, try again later")
	errFull = newRefusal(
		code.DatabaseFull,
		"the database has no room; nothing was stored, and sending it again helps only after its operator "+
			"has made room",
	)
	errUncertain = newRefusal(
		code.OutcomeUnknown,
		"the connection to the database broke while the pet was being stored: "+
			"with an Idempotency-Key, send it again; without one, list the pets before you do",
	)
)

// store keeps pets in the database. Only as many requests use the database at a time as there are
// connections; a bounded number waits. While the database is unavailable, requests are refused at
// once.
type store struct {
	db         *database.DB
	log        *slog.Logger
	statements statements            // prepared before the first request is let in
	fault      atomic.Pointer[error] // why the database is unavailable; nil: it is available
	complain   rate.Sometimes        // about statements that fail
	usable     int                   // the connections that requests may use
	free       *semaphore.Weighted   // those of them that no request uses
	busy       atomic.Int64          // those that one uses
	queue      int                   // how many requests may wait for one
	waiting    atomic.Int64          // how many do
	running    sync.Map              // the logical requests that this process serves at the moment
	life       context.Context       // of the work in the background
	stop       context.CancelFunc
}

// statements are those of requests. They are parsed and planned once; database/sql prepares them
// again on every connection.
type statements struct{ list, listByStatus, get, insert, earlier, remember *sqlx.Stmt }

// openStore returns when the state of the database is known, or after signOfLife: a gateway sends
// requests as soon as it can connect, and would get a 503 for each.
func openStore(ctx context.Context, db *database.DB, queue int, log *slog.Logger) *store {
	// The watch has a connection of its own, so that it never waits for requests.
	usable := max(1, db.Stats().MaxOpenConnections-1)
	s := &store{
		db: db, log: log, queue: queue, usable: usable, free: semaphore.NewWeighted(int64(usable)),
		complain: rate.Sometimes{Interval: time.Minute},
	}
	s.fault.Store(new(errors.New("the database has not been reached yet")))
	s.life, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	known := make(chan struct{})
	go s.watch(sync.OnceFunc(func() { close(known) }))
	<-known
	go s.forget()
	return s
}

// watch makes the database ready for requests. Then it looks again and again whether the database
// is available. It calls known after each report.
func (s *store) watch(known func()) {
	look := s.begin
	for ; s.life.Err() == nil; time.Sleep(500 * time.Millisecond) {
		result := make(chan error, 1)
		go func() { result <- look() }()
		var err error
		select {
		case err = <-result:
		case <-time.After(signOfLife):
			s.report(fmt.Errorf("no response within %v", signOfLife))
			known()
			err = <-result
		}
		s.report(err)
		known()
		if err == nil {
			look = s.db.Check
		}
	}
}

// begin migrates the database and prepares the statements. It can be repeated until it succeeds.
func (s *store) begin() error {
	if err := s.migrate(); err != nil {
		return err
	}
	if err := s.prepare(); err != nil {
		return err
	}
	return s.db.Check()
}

// migrate brings the tables to the version of this program. It creates no tables in the database of
// another application, and refuses tables of a later version. A petsvc that runs already continues
// with those, so that programs can be replaced one after the other.
func (s *store) migrate() error {
	have, want, err := s.db.Schema(s.life, Migrations)
	switch {
	case err != nil:
		return err
	case have > want:
		return fmt.Errorf("the tables of pets have version %d, this program knows only %d: upgrade petsvc", have, want)
	case have == want:
		return nil
	}
	if err := s.db.CheckForeign(s.life); err != nil {
		return err
	}
	return s.db.Migrate(s.life, Migrations)
}

// prepare prepares the statements that are not prepared yet.
func (s *store) prepare() error {
	for _, one := range []struct {
		query    string
		prepared **sqlx.Stmt
	}{
		{listQuery, &s.statements.list},
		{listByStatusQuery, &s.statements.listByStatus},
		{getQuery, &s.statements.get},
		{insertQuery, &s.statements.insert},
		{earlierQuery, &s.statements.earlier},
		{rememberQuery, &s.statements.remember},
	} {
		if *one.prepared != nil {
			continue
		}
		statement, err := s.db.Preparex(s.dated(one.query))
		if err != nil {
			return fmt.Errorf("pets: prepare %q: %w", one.query, err)
		}
		*one.prepared = statement
	}
	return nil
}

// report keeps the result of a check.
func (s *store) report(err error) {
	switch {
	case s.life.Err() != nil: // its database may be closed
	case err != nil:
		err = database.Explain(err)
		if before := s.fault.Swap(&err); before == nil || (*before).Error() != err.Error() {
			s.log.Warn("the database is unavailable", "error", err.Error())
		}
	case s.fault.Swap(nil) != nil:
		s.log.Info("the database is available")
	}
}

// enter waits for a free connection; leave gives it back. A request that cannot be served soon is
// refused. In a longer queue every request waits longer, until clients give up on requests that are
// still being served.
func (s *store) enter() error {
	if s.fault.Load() != nil {
		return errUnavailable
	}
	if !s.free.TryAcquire(1) {
		if err := s.wait(); err != nil {
			return err
		}
	}
	s.busy.Add(1)
	return nil
}

// wait takes a connection when it is this request's turn.
func (s *store) wait() error {
	defer s.waiting.Add(-1)
	if s.waiting.Add(1) > int64(s.queue) {
		return errOverloaded
	}
	ctx, cancel := context.WithTimeout(s.life, patience)
	defer cancel()
	if s.free.Acquire(ctx, 1) != nil {
		return errOverloaded
	}
	return nil
}

func (s *store) leave() {
	s.busy.Add(-1)
	s.free.Release(1)
}

// failed says for what an error is refused; nil stays nil. It logs what an operator has to mend: a
// working connection does not show a full disk or a damaged page.
func (s *store) failed(doing string, err error) error {
	if database.NeedsOperator(err) {
		s.complain.Do(func() { s.log.Error("statements fail", "error", database.Explain(err).Error()) })
	}
	switch {
	case err == nil:
		return nil
	case database.IsFull(err): // also at a COMMIT: it was refused
		return errFull
	case database.IsReadOnly(err):
		return errReadOnly
	case database.IsUnavailable(err):
		return errUnavailable
	}
	return fmt.Errorf("pets: %s: %w", doing, err)
}

// list returns the pets of q, and one more if there is a next page.
func (s *store) list(q query) ([]Pet, error) {
	if q.status != "" {
		return s.find(&s.statements.listByStatus, q.after, q.limit+1, string(q.status))
	}
	return s.find(&s.statements.list, q.after, q.limit+1)
}

// get returns the pet with an id, or errNotFound.
func (s *store) get(id int64) (Pet, error) {
	found, err := s.find(&s.statements.get, id)
	switch {
	case err != nil:
		return Pet{}, err
	case len(found) == 0:
		return Pet{}, errNotFound
	}
	return found[0], nil
}

// find returns the pets of a statement, which it reads after enter: before, it may not be prepared.
func (s *store) find(statement **sqlx.Stmt, args ...any) (found []Pet, err error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	err = (*statement).Select(&found, args...)
	return found, s.failed("find", err)
}

// add stores a pet once or not at all, and returns its id. If the logical request r was carried out
// before, it is the id of that time. Without an Idempotency-Key, r is nil.
//
// add needs a transaction: outside of one, database/sql repeats a statement after a broken
// connection, although the statement may have been executed.
func (s *store) add(p NewPet, r *request) (id int64, isReplay bool, err error) {
	if r != nil {
		if _, found := s.running.LoadOrStore(r.id, nil); found {
			return 0, false, errInProgress
		}
		defer s.running.Delete(r.id)
	}
	if err := s.enter(); err != nil {
		return 0, false, err
	}
	defer s.leave()
	tx, err := s.db.Beginx()
	if err != nil {
		return 0, false, s.failed("add", err)
	}
	defer tx.Rollback() // does nothing after a commit
	id, isReplay, err = s.insert(tx, p, r)
	if err != nil || isReplay {
		return id, isReplay, s.failed("add", err)
	}
	err = s.failed("add", tx.Commit())
	if err == errUnavailable {
		err = errUncertain
	}
	return id, false, err
}

// insert stores a pet in a transaction, unless r was carried out before.
func (s *store) insert(tx *sqlx.Tx, p NewPet, r *request) (id int64, isReplay bool, err error) {
	if r != nil {
		id, err = s.earlier(tx, r)
		if err != nil || id != 0 {
			return id, err == nil, err
		}
	}
	err = tx.Stmtx(s.statements.insert).Get(&id, p.Name, p.CategoryID, string(p.Status))
	if err == nil && r != nil {
		err = s.remember(tx, r, id)
	}
	return id, false, err
}
