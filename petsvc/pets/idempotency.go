package pets

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"petgate/shared/api"
	"petgate/shared/database"
	"petgate/shared/trace"
)

const (
	replayedHeader = "Idempotent-Replayed"

	// tenantHeader names the tenant whose keys a request uses. The gateway sets it and removes the client's own. A client that
	// calls the service without a gateway may send any name or none, as it may send any pet.
	tenantHeader = "X-Tenant-Id"

	keyBytesMax = 255
	keptFor     = 24 * time.Hour
)

// Expected errors of requests with an Idempotency-Key.
var (
	errKeyReused  = errors.New("the Idempotency-Key was sent before with another pet")
	errInProgress = errors.New("a request with the same Idempotency-Key is in progress")
)

// request is a logical request: all requests of a tenant with the same Idempotency-Key. It has hashes only: their size does
// not depend on the client, and a client's key is not kept.
type request struct {
	id          [sha256.Size]byte // of the tenant and its key
	fingerprint [sha256.Size]byte // of the pet
}

// newRequest returns the logical request of a tenant's key and a pet. The fingerprint is that of the decoded pet, not of the
// bytes: a client may write the members in another order when it repeats a request. The response depends on nothing else.
func newRequest(tenant, key []byte, p NewPet) request {
	text := binary.AppendUvarint(nil, uint64(len(tenant))) // so that the two parts cannot be read in another way
	text = append(append(text, tenant...), key...)
	return request{id: sha256.Sum256(text), fingerprint: sha256.Sum256(Pet{NewPet: p}.AppendJSON(nil))}
}

// lock returns the number under which Postgres locks the request.
func (r *request) lock() int64 { return int64(binary.BigEndian.Uint64(r.id[:])) }

// parseKey reads the lines of the header Idempotency-Key. The IETF draft (draft-ietf-httpapi-idempotency-key-header-07,
// section 2.1) defines its value as a string of structured fields (RFC 9651, section 3.3.3). Many clients leave out the
// quotes, so parseKey also reads a value without quotes. Both forms of a text are the same key.
func parseKey(lines [][]byte) (key []byte, _ *fault) {
	ok := false
	if len(lines) == 1 {
		key, ok = unquote(lines[0])
	}
	if !ok || len(key) == 0 || len(key) > keyBytesMax {
		return nil, &fault{"parameter", api.KeyHeader, fmt.Sprintf(
			"must be sent once, as 1 to %d ASCII characters in double quotes, as in \"8e03978e-40d5\"; "+
				"without the quotes, it may have no space, comma, semicolon, quote or backslash", keyBytesMax)}
	}
	return key, nil
}

// unquote returns the characters of a string of structured fields, or of a value without quotes.
func unquote(value []byte) (text []byte, ok bool) {
	isQuoted := len(value) > 0 && value[0] == '"'
	if isQuoted {
		if len(value) < 2 || value[len(value)-1] != '"' {
			return nil, false
		}
		value = value[1 : len(value)-1]
	}
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c < ' ' || c > '~':
			return nil, false
		case !isQuoted && (c == ' ' || c == ',' || c == ';' || c == '"' || c == '\\'):
			return nil, false
		case c == '"':
			return nil, false
		case c == '\\':
			if i++; i == len(value) || value[i] != '"' && value[i] != '\\' {
				return nil, false
			}
			c = value[i]
		}
		text = append(text, c)
	}
	return text, true
}

// running has the logical requests that this process serves at the moment.
type running struct {
	sync.Mutex
	ids map[[sha256.Size]byte]struct{}
}

// begin adds a request. It returns false if it is there already.
func (r *running) begin(id [sha256.Size]byte) bool {
	r.Lock()
	defer r.Unlock()
	if _, found := r.ids[id]; found {
		return false
	}
	r.ids[id] = struct{}{}
	return true
}

func (r *running) end(id [sha256.Size]byte) {
	r.Lock()
	defer r.Unlock()
	delete(r.ids, id)
}

// addOnce stores a pet, unless the same logical request has stored it in the last 24 hours. It then returns that pet and
// isReplay. The pet and the request are stored in one transaction.
//
// Two attempts of a request never run at the same time. In this process, the field running ensures it. Between processes, a
// lock of Postgres ensures it, even while the server still works for a connection that has broken. SQLite has one writer at a
// time. If all of these failed, the primary key would still refuse the second row.
func (s *store) addOnce(span *trace.Span, p NewPet, r request) (stored Pet, isReplay bool, _ error) {
	if !s.running.begin(r.id) {
		return Pet{}, false, errInProgress
	}
	defer s.running.end(r.id)
	if err := s.enter(); err != nil {
		return Pet{}, false, err
	}
	defer s.leave()
	tx, err := s.begin(span)
	if err != nil {
		return Pet{}, false, fmt.Errorf("pets: add once: %w", s.failed(err))
	}
	defer s.rollback(span, tx)
	stored = Pet{NewPet: p}
	if stored.ID, err = s.earlier(span, tx, r); err != nil || stored.ID != 0 {
		return stored, err == nil, err
	}
	if stored.ID, err = s.insertInto(span, tx, p); err == nil {
		err = s.remember(span, tx, r, stored.ID)
	}
	if err != nil {
		return Pet{}, false, fmt.Errorf("pets: add once: %w", s.failed(err))
	}
	return stored, false, s.commit(span, tx)
}

// earlier returns the id of the pet that an earlier attempt of r has stored, or 0.
func (s *store) earlier(span *trace.Span, tx *sqlx.Tx, r request) (petID int64, err error) {
	if s.db.Dialect() == database.Postgres {
		isLocked := false
		call := s.call(span, "SELECT pg_try_advisory_xact_lock", lockRequestQuery)
		err := tx.Stmtx(s.prepared.Load().lock).QueryRow(r.lock()).Scan(&isLocked)
		done(call, err)
		if err != nil {
			return 0, fmt.Errorf("pets: lock a request: %w", s.failed(err))
		}
		if !isLocked {
			return 0, errInProgress
		}
	}
	var fingerprint []byte
	call := s.call(span, "SELECT pet_requests", requestQuery)
	err = tx.Stmtx(s.prepared.Load().request).QueryRow(r.id[:], keptFor.Milliseconds()).Scan(&petID, &fingerprint)
	done(call, err)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("pets: find a request: %w", s.failed(err))
	case !bytes.Equal(fingerprint, r.fingerprint[:]):
		return 0, errKeyReused
	}
	return petID, nil
}

func (s *store) remember(span *trace.Span, tx *sqlx.Tx, r request, petID int64) error {
	call := s.call(span, "INSERT pet_requests", rememberQuery)
	result, err := tx.Stmtx(s.prepared.Load().remember).Exec(r.id[:], r.fingerprint[:], petID, keptFor.Milliseconds())
	done(call, err)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(errInProgress, err)
	}
	return nil
}

// Rows of old requests are removed in steps, because a long statement would delay requests: SQLite has one writer at a time.
const (
	forgetInterval = time.Minute
	forgetPause    = 100 * time.Millisecond // between steps, while there are more rows
	forgetRows     = 1000                   // of a step
)

// forget removes the rows of requests that are older than keptFor, until ctx ends. A step enters the store like a request, so
// it never uses the connection of the watch.
func (s *store) forget(ctx context.Context) {
	select {
	case <-s.looked:
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		pause := time.NewTimer(forgetInterval)
		if s.forgetSome() {
			pause.Reset(forgetPause)
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// forgetSome makes one step. It reports whether there may be more rows to remove.
func (s *store) forgetSome() (more bool) {
	removed, err := s.forgetOldest()
	if err != nil {
		s.log.Warn("old Idempotency-Keys could not be removed", "error", err.Error())
	}
	return removed >= forgetRows
}

func (s *store) forgetOldest() (removed int64, err error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	var until int64
	err = s.db.Get(&until, inDialect(s.db.Dialect(), oldestQuery), keptFor.Milliseconds(), forgetRows)
	if err != nil {
		return 0, s.failed(err)
	}
	if until == 0 { // usually there is nothing to remove, and a write would lock all of SQLite
		return 0, nil
	}
	result, err := s.db.Exec(forgetQuery, until)
	if err != nil {
		return 0, s.failed(err)
	}
	return result.RowsAffected()
}
