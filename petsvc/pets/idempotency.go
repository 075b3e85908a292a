package pets

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"golang.org/x/time/rate"

	"petgate/shared/api"
	"petgate/shared/api/code"
	"petgate/shared/database"
)

const (
	keyBytesMax = 255
	keptFor     = 24 * time.Hour
)

// The refusals of requests with an Idempotency-Key.
var (
	errKeyReused = newRefusal(code.IdempotencyKeyReused,
		"this Idempotency-Key was sent with another pet in the last 24 hours: use a new key for a new pet")
	errInProgress = newRefusal(code.RequestInProgress,
		"a request with this Idempotency-Key is in progress: send it again to get its response")
)

// Both databases understand these statements, if dated has replaced {now}.
const (
	// The pet that a request has stored, and its fingerprint. $1: the request, $2: its age in
	// milliseconds must be less than this.
	earlierQuery = `SELECT pet_id, fingerprint FROM pet_requests WHERE id = $1 AND created_at > {now} - $2`

	// Records which pet a request has stored. If the request has a row already, it is replaced only
	// if it is old enough. While another transaction writes the row, Postgres waits for its end.
	// $1: the request, $2: fingerprint, $3: pet, $4: a row of this age in milliseconds is replaced.
	rememberQuery = `INSERT INTO pet_requests (id, fingerprint, pet_id, created_at) VALUES ($1, $2, $3, {now})
		ON CONFLICT (id) DO UPDATE
		SET fingerprint = excluded.fingerprint, pet_id = excluded.pet_id, created_at = excluded.created_at
		WHERE pet_requests.created_at <= excluded.created_at - $4`

	// Removes the oldest requests. $1: only requests of this age in milliseconds, $2: about how
	// many at most. Not `id IN (SELECT …)`: that would also remove a row that rememberQuery
	// replaces meanwhile.
	forgetQuery = `DELETE FROM pet_requests WHERE created_at <= (SELECT max(created_at) FROM
		(SELECT created_at FROM pet_requests WHERE created_at <= {now} - $1 ORDER BY created_at LIMIT $2) AS oldest)`
)

// dated returns a statement with the database's clock for {now}, in Unix milliseconds. In Postgres,
// this is when the transaction began. The age of a request is measured by this clock alone, because
// the clocks of several pet services may differ.
func (s *store) dated(query string) string {
	now := `CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT)`
	if s.db.Dialect() == database.SQLite {
		now = `CAST(unixepoch('subsec') * 1000 AS BIGINT)`
	}
	return strings.ReplaceAll(query, "{now}", now)
}

// request is a logical request: all requests of a tenant with the same Idempotency-Key. It has
// hashes only: their size does not depend on the client, and a client's key is not kept.
//
// The pet and the request are stored in one transaction. The primary key refuses a second row of a
// request: from another process too, and while the server still works for a broken connection.
// store.running refuses a second attempt in this process before it has to wait.
type request struct {
	id          [sha256.Size]byte // of the tenant and its key
	fingerprint [sha256.Size]byte // of the pet
}

// newRequest returns the logical request of a tenant's key and a pet. The fingerprint is that of
// the decoded pet, not of the bytes: a client may write the members in another order when it
// repeats a request. The response depends on nothing else.
func newRequest(tenant []byte, key string, p NewPet) *request {
	text := binary.AppendUvarint(nil, uint64(len(tenant))) // so that the two parts cannot be read in another way
	text = append(append(text, tenant...), key...)
	return &request{id: sha256.Sum256(text), fingerprint: sha256.Sum256(encode(Pet{NewPet: p}))}
}

// keyForm matches a string of structured fields, and a value without quotes.
var keyForm = regexp.MustCompile(`^(?:"((?:[ !#-\[\]-~]|\\["\\])*)"|([!#-+\--:<-\[\]-~]+))$`)

var unescape = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// parseKey reads the lines of the header Idempotency-Key. The IETF draft
// (draft-ietf-httpapi-idempotency-key-header-07, section 2.1) defines its value as a string of
// structured fields (RFC 9651, section 3.3.3). Many clients leave out the quotes, so parseKey also
// reads a value without quotes. Both forms of a text are the same key.
func parseKey(lines [][]byte) (key string, _ error) {
	if len(lines) == 1 {
		if parts := keyForm.FindStringSubmatch(string(lines[0])); parts != nil {
			key = unescape.Replace(parts[1]) + parts[2]
		}
	}
	if len(key) == 0 || len(key) > keyBytesMax {
		return "", invalidParameter(
			api.KeyHeader,
			fmt.Sprintf("must be sent once, as 1 to %d ASCII characters in double quotes, as in \"8e03978e-40d5\"; "+
				"without the quotes, it may have no space, comma, semicolon, quote or backslash", keyBytesMax),
		)
	}
	return key, nil
}

// earlier returns the id of the pet that an earlier attempt of r has stored, or 0.
func (s *store) earlier(tx *sqlx.Tx, r *request) (petID int64, err error) {
	var fingerprint []byte
	err = tx.Stmtx(s.statements.earlier).QueryRow(r.id[:], keptFor.Milliseconds()).Scan(&petID, &fingerprint)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("find the request: %w", err)
	case !bytes.Equal(fingerprint, r.fingerprint[:]):
		return 0, errKeyReused
	}
	return petID, nil
}

func (s *store) remember(tx *sqlx.Tx, r *request, petID int64) error {
	result, err := tx.Stmtx(s.statements.remember).Exec(r.id[:], r.fingerprint[:], petID, keptFor.Milliseconds())
	if err != nil {
		return err
	}
	if n, _ := result.RowsAffected(); n == 0 {
		return errInProgress
	}
	return nil
}

// forgetRows are few, because a long statement would delay requests: SQLite has one writer.
const forgetRows = 5000 // or a few more that were stored in the same millisecond

// forget removes the rows of requests that are older than keptFor. It enters the store like a
// request, so it never uses the connection of the watch.
func (s *store) forget() {
	complain := rate.Sometimes{Interval: time.Minute}
	for ; s.life.Err() == nil; time.Sleep(time.Second) {
		if s.enter() != nil {
			continue
		}
		_, err := s.db.Exec(s.dated(forgetQuery), keptFor.Milliseconds(), forgetRows)
		s.leave()
		if err != nil && s.life.Err() == nil {
			complain.Do(func() {
				s.log.Warn("old Idempotency-Keys could not be removed", "error", database.Explain(err).Error())
			})
		}
	}
}
