package pets

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"petgate/shared/api/code"
	"petgate/shared/database"
	"petgate/shared/trace"
)

//go:embed migrations
var files embed.FS

// Migrations create the tables of the pets.
var Migrations = database.Migrations{FS: files, Table: "pets_schema"}

// Both databases understand these statements.
const (
	// A page of all pets. $1: it begins after this id, $2: number of rows.
	listQuery = `SELECT id, name, category_id, status FROM pets WHERE id > $1 ORDER BY id LIMIT $2`

	// A page of the pets with one status. $1: it begins after this id, $2: number of rows, $3: the status.
	listByStatusQuery = `SELECT id, name, category_id, status FROM pets WHERE id > $1 AND status = $3 ORDER BY id LIMIT $2`

	// One pet. $1: its id.
	getQuery = `SELECT id, name, category_id, status FROM pets WHERE id = $1`

	// Stores a pet and returns its id. $1: name, $2: category, $3: status.
	insertQuery = `INSERT INTO pets (name, category_id, status) VALUES ($1, $2, $3) RETURNING id`
)

const (
	watchInterval = 500 * time.Millisecond

	// A database that does not respond within this time is treated as unavailable: requests are refused, not held.
	signOfLife = time.Second

	// A request that waits longer than this for a connection is refused.
	patience = time.Second
)

// The refusals of the store. Any other error is a bug or a failure that should be logged.
var (
	errNotFound    = newRefusal(code.PetNotFound, "no pet has this id")
	errOverloaded  = newRefusal(code.Overloaded, "too many requests are waiting; nothing was stored, try again")
	errUnavailable = newRefusal(code.DatabaseUnavailable, "the database is unavailable at the moment; nothing was stored, try again")
	errReadOnly    = newRefusal(code.DatabaseUnavailable, "the database is read-only at the moment; nothing was stored, try again later")
	errFull        = newRefusal(code.DatabaseFull, "the database has no room; nothing was stored, and sending it again helps only after its operator "+
		"has made room")
	errUncertain = newRefusal(code.OutcomeUnknown, "the connection to the database broke while the pet was being stored: "+
		"with an Idempotency-Key, send it again; without one, list the pets before you do")
)

// store keeps pets in the database. Only as many requests use the database at a time as there are connections; a bounded
// number waits. While the database is unavailable, requests are refused at once.
type store struct {
	db         *database.DB
	log        *slog.Logger
	metrics    *metrics
	statements map[string]*sqlx.Stmt // by their text; complete before the first request is let in
	trouble    atomic.Pointer[trouble]
	slots      chan struct{} // one for each connection that requests may use
	waiting    atomic.Int64
	waitingMax int64
	running    sync.Map        // the logical requests that this process serves at the moment
	looked     chan struct{}   // closed when the state of the database is known, or after signOfLife
	look       func()          // closes looked
	life       context.Context // ends with close
	stop       context.CancelFunc
	background sync.WaitGroup
}

// trouble is why the database does not serve all requests; nil: it does.
type trouble struct {
	cause error

	// Only some statements fail, so requests are let in. The watch does not notice a full disk or a damaged page, so this trouble ends
	// when a pet is stored.
	serving bool
}

func openStore(ctx context.Context, db *database.DB, waitingMax int, log *slog.Logger, m *metrics) *store {
	s := &store{
		db: db, log: log, metrics: m, waitingMax: int64(waitingMax), statements: map[string]*sqlx.Stmt{},
		looked: make(chan struct{}),
		// The watch has a connection of its own, so that it never waits for requests.
		slots: make(chan struct{}, max(1, db.Stats().MaxOpenConnections-1)),
	}
	s.look = sync.OnceFunc(func() { close(s.looked) })
	s.trouble.Store(&trouble{cause: errors.New("the database has not been reached yet")})
	s.life, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.background.Go(s.watch)
	s.background.Go(s.forget)
	return s
}

// close ends the work in the background. It waits for a database that does not respond, at most until ctx ends.
func (s *store) close(ctx context.Context) {
	s.stop()
	done := make(chan struct{})
	go func() {
		s.background.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// watch migrates the database, prepares statements, and then checks whether the database is available.
func (s *store) watch() {
	defer s.look()
	for sound := false; s.life.Err() == nil; { // sound: migrated and prepared since the last failure
		late := time.AfterFunc(signOfLife, func() { s.report(fmt.Errorf("no response within %v", signOfLife)) })
		err := s.check(s.life, sound)
		late.Stop()
		s.report(err)
		sound = err == nil
		select {
		case <-time.After(watchInterval):
		case <-s.life.Done():
		}
	}
}

func (s *store) check(ctx context.Context, sound bool) error {
	if !sound {
		if err := s.migrate(ctx); err != nil {
			return err
		}
		if err := s.prepare(); err != nil {
			return err
		}
	}
	return s.db.Check()
}

// migrate brings the tables to the version of this program. It creates none in the database of another application. When it runs
// for the first time, it also refuses tables of a later version. A running petsvc continues with them, so that programs can be
// replaced one after the other.
func (s *store) migrate(ctx context.Context) error {
	have, want, err := s.db.Schema(ctx, Migrations)
	switch {
	case err != nil:
		return err
	case have > want && len(s.statements) == 0:
		return fmt.Errorf("the tables of pets have version %d, this program knows only %d: upgrade petsvc", have, want)
	case have >= want:
		return nil
	}
	tables, err := s.db.Foreign(ctx)
	if err != nil {
		return err
	}
	if len(tables) > 0 {
		return fmt.Errorf("the database has tables such as %s, and none of Petgate's: correct DATABASE_URL, or create Petgate's tables "+
			"beside them with `keyadmin migrate`", strings.Join(tables, ", "))
	}
	return s.db.Migrate(ctx, Migrations)
}

// prepare prepares the statements of requests: an unprepared statement takes lib/pq two round trips. database/sql repeats it on every
// connection.
func (s *store) prepare() error {
	for _, query := range []string{listQuery, listByStatusQuery, getQuery, insertQuery, earlierQuery, rememberQuery} {
		if s.statements[query] != nil {
			continue
		}
		statement, err := s.db.Preparex(inDialect(s.db.Dialect(), query))
		if err != nil {
			return fmt.Errorf("pets: prepare %q: %w", query, err)
		}
		s.statements[query] = statement
	}
	return nil
}

// report keeps the result of a check.
func (s *store) report(err error) {
	defer s.look()
	before := s.trouble.Load()
	wasAway := before != nil && !before.serving
	if err == nil {
		if wasAway && s.trouble.CompareAndSwap(before, nil) {
			s.metrics.databaseUp.Set(1)
			s.log.Info("the database is available")
		}
		return
	}
	err = database.Explain(err)
	s.trouble.Store(&trouble{cause: err})
	if !wasAway || before.cause.Error() != err.Error() {
		s.metrics.databaseUp.Set(0)
		s.log.Warn("the database is unavailable", "error", err.Error())
	}
}

// enter waits for a free connection; leave gives it back. A request that cannot be served soon is refused. In a longer
// queue every request waits longer, until clients give up on requests that are still being served.
//
// At the start, enter waits until the database's state is known: a gateway sends requests as soon as it can connect, and would get a
// 503 for each.
func (s *store) enter() error {
	<-s.looked
	if t := s.trouble.Load(); t != nil && !t.serving {
		return errUnavailable
	}
	select {
	case s.slots <- struct{}{}:
		return nil
	default:
	}
	defer s.waiting.Add(-1)
	if s.waiting.Add(1) > s.waitingMax {
		return errOverloaded
	}
	impatience := time.NewTimer(patience)
	defer impatience.Stop()
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-impatience.C:
		return errOverloaded
	}
}

func (s *store) leave() { <-s.slots }

// failed says for what an error is refused; nil stays nil. If an operator has to mend its cause, failed keeps it as the trouble.
func (s *store) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	if database.NeedsOperator(err) {
		some := &trouble{fmt.Errorf("a statement failed at %s: %w", time.Now().UTC().Format(time.RFC3339), database.Explain(err)), true}
		before := s.trouble.Load()
		if (before == nil || before.serving) && s.trouble.CompareAndSwap(before, some) && before == nil {
			s.log.Error("statements fail", "error", some.cause.Error())
		}
	}
	switch {
	case database.IsFull(err): // also at a COMMIT: it was refused
		err = fmt.Errorf("%w: %w", errFull, err)
	case database.IsReadOnly(err):
		err = fmt.Errorf("%w: %w", errReadOnly, err)
	case database.IsUnavailable(err):
		err = fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return fmt.Errorf("pets: %s: %w", doing, err)
}

// list returns the pets of q, and one more if there is a next page.
func (s *store) list(span *trace.Span, q query) (found []Pet, err error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	text, args := listQuery, []any{q.after, q.limit + 1}
	if q.status != "" {
		text, args = listByStatusQuery, append(args, string(q.status))
	}
	found = make([]Pet, 0, q.limit+1)
	err = s.call(span, "SELECT pets", text, func() error {
		rows, err := s.statements[text].Queryx(args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() { // not sqlx's Select, which allocates for each row
			var p Pet
			if err := rows.Scan(&p.ID, &p.Name, &p.CategoryID, (*string)(&p.Status)); err != nil {
				return err
			}
			found = append(found, p)
		}
		return rows.Err()
	})
	return found, s.failed("list", err)
}

func (s *store) get(span *trace.Span, id int64) (p Pet, err error) {
	if err := s.enter(); err != nil {
		return p, err
	}
	defer s.leave()
	err = s.call(span, "SELECT pets", getQuery, func() error { return s.statements[getQuery].Get(&p, id) })
	if errors.Is(err, sql.ErrNoRows) {
		return p, errNotFound
	}
	return p, s.failed("get", err)
}

// add stores a pet once or not at all. If the logical request r was carried out before, add returns the pet of that time and isReplay.
// Without an Idempotency-Key, r is nil.
//
// add needs a transaction: outside of one, database/sql repeats a statement after a broken connection, although the statement may have
// been executed.
func (s *store) add(span *trace.Span, p NewPet, r *request) (stored Pet, isReplay bool, err error) {
	if r != nil {
		if _, found := s.running.LoadOrStore(r.id, nil); found {
			return stored, false, errInProgress
		}
		defer s.running.Delete(r.id)
	}
	if err := s.enter(); err != nil {
		return stored, false, err
	}
	defer s.leave()
	var tx *sqlx.Tx
	err = s.call(span, "BEGIN", "BEGIN", func() (err error) {
		tx, err = s.db.Beginx()
		return err
	})
	if err != nil {
		return stored, false, s.failed("add", err)
	}
	defer tx.Rollback() // after a panic; otherwise the transaction has ended
	stored.NewPet = p
	stored.ID, isReplay, err = s.insert(span, tx, p, r)
	if err != nil || isReplay {
		_ = s.call(span, "ROLLBACK", "ROLLBACK", tx.Rollback)
		return stored, isReplay, s.failed("add", err)
	}
	err = s.failed("add", s.call(span, "COMMIT", "COMMIT", tx.Commit))
	switch t := s.trouble.Load(); {
	case errors.Is(err, errUnavailable):
		err = fmt.Errorf("%w: %w", errUncertain, err)
	case err == nil && t != nil && t.serving:
		s.trouble.CompareAndSwap(t, nil)
	}
	return stored, false, err
}

// insert stores a pet in a transaction, unless r was carried out before.
func (s *store) insert(span *trace.Span, tx *sqlx.Tx, p NewPet, r *request) (id int64, isReplay bool, err error) {
	if r != nil {
		if id, err = s.earlier(span, tx, r); err != nil || id != 0 {
			return id, err == nil, err
		}
	}
	err = s.call(span, "INSERT pets", insertQuery, func() error {
		return tx.Stmtx(s.statements[insertQuery]).Get(&id, p.Name, p.CategoryID, string(p.Status))
	})
	if err == nil && r != nil {
		err = s.remember(span, tx, r, id)
	}
	return id, false, err
}
