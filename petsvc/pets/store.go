package pets

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"petgate/shared/database"
	"petgate/shared/trace"
)

const (
	watchInterval = time.Second
	retryInterval = 250 * time.Millisecond // while the database is unavailable

	// A database that does not respond within this time is treated as unavailable: requests are refused, not held.
	signOfLife = time.Second

	// A request that waits longer than this for a connection is refused.
	patience = time.Second
)

// Expected errors of the store. Any other error is a bug or a failure that should be logged.
var (
	errNotFound    = errors.New("no such pet")
	errOverloaded  = errors.New("every connection to the database is busy")
	errUnavailable = errors.New("the database is unavailable")
	errReadOnly    = errors.New("the database is read-only")
	errUncertain   = errors.New("the connection to the database broke while the pet was being stored")
)

// store keeps pets in the database. Only as many requests use the database at a time as there are connections; a bounded
// number waits. While the database is unavailable, requests are refused at once.
type store struct {
	db         *database.DB
	log        *slog.Logger
	metrics    *metrics
	prepared   atomic.Pointer[statements] // nil until the first preparation
	away       atomic.Pointer[error]      // why requests are refused; nil: they are not
	fault      atomic.Pointer[error]      // of the last statement that failed; nil: a pet was stored since
	slots      chan struct{}              // one for each connection that requests may use
	waiting    atomic.Int64
	waitingMax int64
	running    running
	suspect    chan struct{} // wakes the watch
	looked     chan struct{} // closed when the state of the database is known, or after signOfLife
	stop       context.CancelFunc
	done       chan struct{}
}

// statements are prepared statements. An unprepared statement takes lib/pq two round trips.
type statements struct {
	insert, request, remember *sqlx.Stmt
	lock                      *sqlx.Stmt // Postgres only
}

func openStore(ctx context.Context, db *database.DB, waitingMax int, log *slog.Logger, m *metrics) *store {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &store{
		db: db, log: log, metrics: m, waitingMax: int64(waitingMax), running: running{ids: map[[sha256.Size]byte]struct{}{}},
		suspect: make(chan struct{}, 1), looked: make(chan struct{}), stop: stop, done: make(chan struct{}),
		// The watch has a connection of its own, so that it never waits for requests.
		slots: make(chan struct{}, max(1, db.Stats().MaxOpenConnections-1)),
	}
	starting := errors.New("the database has not been reached yet")
	s.away.Store(&starting)
	var background sync.WaitGroup
	background.Go(func() { s.watch(ctx) })
	background.Go(func() { s.forget(ctx) })
	go func() {
		background.Wait()
		close(s.done)
	}()
	return s
}

// close ends the work in the background. It waits for a database that does not respond, at most until ctx ends.
func (s *store) close(ctx context.Context) {
	s.stop()
	select {
	case <-s.done:
	case <-ctx.Done():
	}
}

// watch migrates the database, prepares statements, and then keeps the field away current.
func (s *store) watch(ctx context.Context) {
	sound := false // migrated and prepared since the last failure
	look := sync.OnceFunc(func() { close(s.looked) })
	for ctx.Err() == nil {
		result := make(chan error, 1)
		go func() { result <- s.check(ctx, sound) }()
		var err error
		late := time.NewTimer(signOfLife)
		select {
		case err = <-result:
		case <-late.C:
			s.setAway(fmt.Errorf("no response within %v", signOfLife))
			look()
			err = <-result
		}
		late.Stop()
		if s.setAway(err); ctx.Err() == nil {
			look()
		}
		sound = err == nil
		pause := time.NewTimer(retryInterval)
		if sound {
			pause.Reset(watchInterval)
		}
		select {
		case <-pause.C:
		case <-s.suspect:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

func (s *store) check(ctx context.Context, sound bool) error {
	if !sound {
		err := s.migrate(ctx)
		if err == nil && s.prepared.Load() == nil {
			err = s.prepare()
		}
		if err != nil {
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
	case have > want && s.prepared.Load() == nil:
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

// prepare prepares the statements of transactions. database/sql repeats it on every connection.
func (s *store) prepare() (err error) {
	var all statements
	prepare := func(query string) *sqlx.Stmt {
		if err != nil {
			return nil
		}
		var one *sqlx.Stmt
		if one, err = s.db.Preparex(inDialect(s.db.Dialect(), query)); err != nil {
			err = fmt.Errorf("pets: prepare %q: %w", query, err)
		}
		return one
	}
	all.insert, all.request, all.remember = prepare(insertQuery), prepare(requestQuery), prepare(rememberQuery)
	if s.db.Dialect() == database.Postgres {
		all.lock = prepare(lockRequestQuery)
	}
	if err == nil {
		s.prepared.Store(&all)
	}
	return err
}

func (s *store) setAway(err error) {
	err = database.Explain(err)
	if err == nil {
		if s.away.Swap(nil) != nil {
			s.metrics.databaseUp.Set(1)
			s.log.Info("the database is available")
		}
		return
	}
	if before := s.away.Swap(&err); before == nil || (*before).Error() != err.Error() {
		s.metrics.databaseUp.Set(0)
		s.log.Warn("the database is unavailable", "error", err.Error())
	}
}

// ready returns nil if requests may use the database, and otherwise the reason why not.
func (s *store) ready() error {
	if away := s.away.Load(); away != nil {
		return *away
	}
	return nil
}

// failing returns the last error of a statement that an operator has to mend, if nothing was stored since. The watch does not
// notice a full disk or a damaged page.
func (s *store) failing() error {
	if fault := s.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// enter waits for a free connection; leave gives it back. A request that cannot be served soon is refused. In a longer
// queue every request waits longer, until clients give up on requests that are still being served.
func (s *store) enter() error {
	if s.away.Load() != nil {
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

// failed classifies an error of a statement, and remembers it for failing. It wakes the watch if the database may be unavailable.
func (s *store) failed(err error) error {
	if database.NeedsOperator(err) {
		fault := fmt.Errorf("a statement failed at %s: %w", time.Now().UTC().Format(time.RFC3339), database.Explain(err))
		if s.fault.Swap(&fault) == nil {
			s.log.Error("statements fail", "error", fault.Error())
		}
	}
	switch {
	case database.IsReadOnly(err):
		return fmt.Errorf("%w: %w", errReadOnly, err)
	case database.IsUnavailable(err):
		select {
		case s.suspect <- struct{}{}:
		default: // it is already awake
		}
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return err
}

// list fills page with the pets of q.
func (s *store) list(span *trace.Span, q query, page *page) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	page.limit = q.limit
	page.body = append(page.body, '[')
	var err error
	if q.status == "" {
		call := s.call(span, "SELECT pets", listQuery)
		err = s.db.Each(context.Background(), page.encode, listQuery, q.after, q.limit+1)
		done(call, err)
	} else {
		call := s.call(span, "SELECT pets", listByStatusQuery)
		err = s.db.Each(context.Background(), page.encode, listByStatusQuery, q.after, q.limit+1, string(q.status))
		done(call, err)
	}
	if err != nil {
		return fmt.Errorf("pets: list: %w", s.failed(err))
	}
	page.body = append(page.body, ']')
	return nil
}

// get fills page with one pet.
func (s *store) get(span *trace.Span, id int64, page *page) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	page.limit = 1
	call := s.call(span, "SELECT pets", getQuery)
	err := s.db.Each(context.Background(), page.encode, getQuery, id)
	done(call, err)
	if err != nil {
		return fmt.Errorf("pets: get: %w", s.failed(err))
	}
	if page.count == 0 {
		return errNotFound
	}
	return nil
}

// add stores a pet once or not at all. It needs a transaction: outside of one, database/sql repeats a statement after a
// broken connection, although the statement may have been executed.
func (s *store) add(span *trace.Span, p NewPet) (Pet, error) {
	if err := s.enter(); err != nil {
		return Pet{}, err
	}
	defer s.leave()
	stored := Pet{NewPet: p}
	tx, err := s.begin(span)
	if err == nil {
		if stored.ID, err = s.insertInto(span, tx, p); err != nil {
			s.rollback(span, tx)
		}
	}
	if err != nil {
		return Pet{}, fmt.Errorf("pets: add: %w", s.failed(err))
	}
	return stored, s.commit(span, tx)
}

// begin begins a transaction.
func (s *store) begin(span *trace.Span) (*sqlx.Tx, error) {
	call := s.call(span, "BEGIN", "BEGIN")
	tx, err := s.db.Beginx()
	done(call, err)
	return tx, err
}

// rollback ends a transaction. It does nothing after a commit.
func (s *store) rollback(span *trace.Span, tx *sqlx.Tx) {
	call := s.call(span, "ROLLBACK", "ROLLBACK")
	if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
		done(call, err)
	}
}

// insertInto stores a pet in a transaction and returns its id.
func (s *store) insertInto(span *trace.Span, tx *sqlx.Tx, p NewPet) (id int64, err error) {
	call := s.call(span, "INSERT pets", insertQuery)
	err = tx.Stmtx(s.prepared.Load().insert).QueryRow(p.Name, p.CategoryID, string(p.Status)).Scan(&id)
	done(call, err)
	return id, err
}

// commit ends a transaction that has stored a pet.
func (s *store) commit(span *trace.Span, tx *sqlx.Tx) error {
	call := s.call(span, "COMMIT", "COMMIT")
	err := tx.Commit()
	done(call, err)
	if err == nil {
		if s.fault.Load() != nil {
			s.fault.Store(nil)
		}
		return nil
	}
	if err = s.failed(err); errors.Is(err, errUnavailable) {
		err = fmt.Errorf("%w: %w", errUncertain, err)
	}
	return fmt.Errorf("pets: add: %w", err)
}

// page is the body of a response. Rows are encoded into it as they come from the driver.
type page struct {
	body  []byte
	limit int64
	count int64
	last  int64 // the id of the last row
	more  bool  // there are more rows than limit
}

func newPage() any { return new(page) }

func (p *page) reset() { p.body, p.count, p.more = p.body[:0], 0, false }

// encode appends a row, unless the page is full.
func (p *page) encode(row []driver.Value) error {
	if p.more = p.count == p.limit; p.more {
		return nil
	}
	id, isID := row[0].(int64)
	name, isName := row[1].(string)
	category, isCategory := row[2].(int64)
	status, isStatus := row[3].(string)
	if !isID || !isName || !isCategory || !isStatus {
		return fmt.Errorf("pets: a row of %T, %T, %T, %T", row[0], row[1], row[2], row[3])
	}
	if p.count > 0 {
		p.body = append(p.body, ',')
	}
	p.body = Pet{ID: id, NewPet: NewPet{Name: name, CategoryID: category, Status: Status(status)}}.AppendJSON(p.body)
	p.count++
	p.last = id
	return nil
}
