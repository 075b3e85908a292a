package keystore

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore/schema"
)

// Gateways lists all registered gateway processes by ID, those of one ID in the order of their
// registration.
func (s *Store) Gateways(ctx context.Context) ([]Gateway, error) {
	return List[Gateway](ctx, s, "list gateways", gatewaysByID)
}

// ForgetGateway removes a gateway process that will not come back, so that changes no longer wait
// for it. If several processes have this ID, it removes the one that registered first. A process
// that still runs registers again, unless it was replaced.
func (s *Store) ForgetGateway(ctx context.Context, gateway string) (Change, error) {
	return s.Write(ctx, "forget gateway", func(t *Tx) error {
		var processes []Gateway
		err := t.SelectContext(ctx, &processes, s.SQL(gatewayByID), gateway)
		if err == nil && len(processes) == 0 {
			err = fmt.Errorf("%w: no gateway %q is registered", ErrNotFound, gateway)
		}
		if err != nil {
			return err
		}
		first := processes[0]
		t.Event(GatewayForgot, Subject{}, first, nil)
		if _, err := t.Grow(0); err != nil {
			return err
		}
		_, err = t.end(Registration{ID: first.ID, Incarnation: first.Incarnation}, GapForgotten, schema.DeleteProcess)
		return err
	})
}

// Registration is one gateway process. After a restart the ID is the same, but the incarnation is
// new.
type Registration struct {
	ID           string
	Incarnation  string // random
	Generation   int64  // of its last registration; 0: not registered yet
	AdminAddress string
	MaxAge       time.Duration
	UsageThrough instant.Millis // every request that it decided on before is stored in the usage
	Unreported   string         // requests that SignOff leaves to the other gateways; "": none
}

// ErrDisplaced means that another process has registered later with the same gateway ID.
var ErrDisplaced = errors.New(
	"another process has registered with this gateway ID: give each gateway its own GATEWAY_ID",
)

// ErrRewound means that the last event that a gateway applied is missing: the database is an older
// copy.
var ErrRewound = errors.New("the last event is missing: the database is an older copy")

// Register adds a process that has applied nothing yet, and returns its generation, which is larger
// than all earlier ones. Changes still wait for an earlier process with the same gateway ID until
// it signs off, unless its incarnation is one of the dead ones.
func (s *Store) Register(ctx context.Context, r Registration, dead []string) (generation int64, err error) {
	err = s.Transact(ctx, "register gateway", func(t *Tx) error {
		generation, err = t.Grow(r.Generation)
		if err != nil {
			return err
		}
		for _, incarnation := range dead {
			process := Registration{ID: r.ID, Incarnation: incarnation}
			if _, err := t.end(process, GapKilled, schema.DeleteProcess); err != nil {
				return err
			}
		}
		err := t.Exec(schema.Register, r.ID, r.Incarnation, generation,
			r.AdminAddress, r.MaxAge.Milliseconds(), r.UsageThrough)
		if err != nil {
			return err
		}
		return t.Exec(schema.CloseGap, r.ID, r.Incarnation)
	})
	return generation, err
}

// Beat is the database's response to a heartbeat.
type Beat struct {
	Registry int64          // the registry's generation: it grows when the list of gateways changes
	Now      instant.Millis // by the database's clock
}

// Heartbeat reports that the process lives, has applied all events up to c, whose UUID it gives,
// and has stored its usage up to r.UsageThrough.
//
// ErrNotFound: the process has to register again, because it was forgotten or the database is a
// copy from before its registration. ErrDisplaced: another process registered later. ErrRewound:
// the database is a copy from before c.
func (s *Store) Heartbeat(ctx context.Context, r Registration, c Change, uuid string) (b Beat, err error) {
	const op = "heartbeat"
	known := false
	rows, err := s.db.Prepared(ctx, s.SQL(schema.Heartbeat), r.ID, r.Incarnation, r.Generation, c, uuid,
		r.UsageThrough)
	if err == nil {
		err = database.EachRow(rows, func(row []any) error {
			c := columns{row: row}
			if !c.has(2) {
				return nil
			}
			b = Beat{Registry: c.integer(), Now: instant.Millis(c.integer())}
			known = c.err == nil
			return c.err
		})
	}
	if err != nil || known {
		return b, Fail(op, err)
	}
	if err := s.CheckRegistration(ctx, s.db, r); err != nil {
		return b, Fail(op, err)
	}
	return b, Fail(op, ErrRewound)
}

// CheckRegistration returns why the database does not have the registration of a process. Only a
// larger generation displaces it. If the generation is smaller or equal, the database is a copy
// from before this registration.
func (s *Store) CheckRegistration(ctx context.Context, q sqlx.QueryerContext, r Registration) error {
	var processes []Gateway
	if err := sqlx.SelectContext(ctx, q, &processes, s.SQL(gatewayByID), r.ID); err != nil {
		return err
	}
	registered := false
	for _, p := range processes {
		if p.Generation > r.Generation && p.Incarnation != r.Incarnation {
			return ErrDisplaced
		}
		registered = registered || p.Generation == r.Generation && p.Incarnation == r.Incarnation
	}
	if !registered {
		return fmt.Errorf("%w: this gateway is not registered", ErrNotFound)
	}
	return nil
}

// SignOff ends the registration of a process that has stored all its usage. From then on the
// process must not accept any key.
func (s *Store) SignOff(ctx context.Context, r Registration) error {
	_, err := s.remove(ctx, "sign off", r, "", schema.DeleteProcess)
	return err
}

// SignOffWithGap is SignOff for a process that could not store all its usage.
func (s *Store) SignOffWithGap(ctx context.Context, r Registration) error {
	_, err := s.remove(ctx, "sign off", r, GapUnwritten, schema.DeleteProcess)
	return err
}

// RemoveFenced removes a process that a Watch calls fenced. It reports whether the process was
// still registered and had sent no heartbeat since g was read. If the process still runs, it
// refuses everything until it has registered again.
func (s *Store) RemoveFenced(ctx context.Context, g Gateway) (bool, error) {
	process := Registration{ID: g.ID, Incarnation: g.Incarnation}
	return s.remove(ctx, "remove fenced gateway", process, GapFenced, schema.DeleteSilent, g.SeenAt, g.MaxAge)
}

// errNoProcess ends a removal that finds no such process.
var errNoProcess = errors.New("no such process")

// remove ends a process with a statement, and reports whether it was registered. If it was not, and
// leaves no unreported requests, nothing is committed. more are the parameters of the statement
// after the ID and the incarnation.
func (s *Store) remove(
	ctx context.Context, op string, r Registration, cause, query string, more ...any,
) (removed bool, err error) {
	err = s.Transact(ctx, op, func(t *Tx) error {
		if _, err := t.Grow(r.Generation); err != nil {
			return err
		}
		removed, err = t.end(r, cause, query, more...)
		switch {
		case err != nil:
		case r.Unreported != "":
			err = t.Exec(schema.LeaveUnreported, r.Incarnation, r.Unreported)
		case !removed:
			err = errNoProcess
		}
		return err
	})
	if errors.Is(err, errNoProcess) {
		err = nil
	}
	return removed && err == nil, err
}

// UsageKept is how long usage is kept. Tenants can ask for 400 days, of which the first is whole.
const UsageKept = 401 * 24 * time.Hour

// The causes of gaps in the usage.
const (
	GapKilled    = "killed"    // its successor on the same host found that it had ended
	GapForgotten = "forgotten" // by an operator
	GapFenced    = "fenced"
	GapUnwritten = "unwritten" // it signed off, but could not write its last usage
	GapDropped   = "dropped"   // it runs, but could not write for so long that it dropped usage
)

// end deletes a process and reports whether it existed. With a cause, it notes that usage of the
// process may not be stored.
func (t *Tx) end(r Registration, cause, query string, more ...any) (ended bool, err error) {
	if cause != "" {
		if err := t.Exec(schema.PruneGaps, t.store.Now().Add(-UsageKept)); err != nil {
			return false, err
		}
		if err := t.Exec(schema.NoteGap, r.ID, r.Incarnation, cause); err != nil {
			return false, err
		}
	}
	return t.Affects(query, append([]any{r.ID, r.Incarnation}, more...)...)
}

// Unreported returns the requests that gateways have left to the others, one text for each gateway,
// and that none has taken yet.
func (s *Store) Unreported(ctx context.Context) ([]string, error) {
	return List[string](ctx, s, "read unreported requests", unreportedRequests)
}

// TakeUnreported removes what Unreported returns and passes it to keep. If keep returns an error,
// nothing is removed. keep is called before the commit, and a commit whose answer is lost may or
// may not have removed the texts. So keep may get a text again, but none is lost.
func (s *Store) TakeUnreported(ctx context.Context, keep func(texts []string) error) error {
	return s.Transact(ctx, "take unreported requests", func(t *Tx) error {
		var texts []string
		if err := t.SelectContext(ctx, &texts, s.SQL(schema.TakeUnreported)); err != nil || len(texts) == 0 {
			return err
		}
		if _, err := t.Grow(0); err != nil { // gateways that see a new generation read the list again
			return err
		}
		return keep(texts)
	})
}

// Gateway is a registered gateway process. Changes wait for it until it signs off, is forgotten, or
// is fenced.
type Gateway struct {
	ID           string `db:"id" json:"id"`
	Incarnation  string `db:"incarnation" json:"-"` // the process's
	Generation   int64  `db:"generation" json:"generation"`
	AdminAddress string `db:"admin_address" json:"adminAddress"`
	Applied      Change `db:"applied_event" json:"applied"` // the last event that it has applied; 0: it is starting

	// These times are by the database's clock.
	RegisteredAt instant.Millis `db:"registered_at" json:"registeredAt"`
	SeenAt       instant.Millis `db:"seen_at" json:"seenAt"` // its last heartbeat
	Age          int64          `db:"age" json:"age"`        // ms since SeenAt

	// If the process's directory is older, in ms, it refuses everything. 0: no maximum.
	MaxAge int64 `db:"max_age" json:"maxAge,omitempty"`

	// Every request that the process decided on before is stored in the usage.
	UsageThrough instant.Millis `db:"usage_through" json:"usageThrough,omitempty"`

	Document Document `db:"document" json:"document,omitzero"`

	// Another process has registered with its ID, but this one has not signed off.
	Replaced bool `db:"replaced" json:"replaced,omitempty"`
}

// Document is what a gateway says of the document of the API that it serves, and of its keys.
type Document struct {
	Hash    string   `json:"hash"` // empty: an earlier version of the gateway, which said nothing
	Title   string   `json:"title"`
	Version string   `json:"version"`
	Scopes  []string `json:"scopes"` // of the operations that the gateway does not answer itself

	KeyPrefix string           `json:"keyPrefix,omitempty"` // of the tokens of new keys
	Costs     map[string]int64 `json:"costs,omitempty"`     // of requests, by operation; 1 for others
}

// Admits returns an error that names an operation whose requests the limits can never admit.
func (d Document) Admits(l plan.Limits) error {
	var wrong []error
	for _, operation := range slices.Sorted(maps.Keys(d.Costs)) {
		wrong = append(wrong, l.Admit(operation, d.Costs[operation]))
	}
	return errors.Join(wrong...)
}

// String names the document for people. It is empty if it is unknown.
func (d Document) String() string {
	if d.Hash == "" {
		return ""
	}
	return strings.TrimSpace(d.Title+" "+d.Version) + " (" + d.Hash + ")"
}

// Value is the document as the database keeps it.
func (d Document) Value() (driver.Value, error) {
	text, err := json.Marshal(d)
	return string(text), err
}

// Scan reads what Value wrote.
func (d *Document) Scan(column any) error {
	text, isText := column.(string)
	if !isText {
		return fmt.Errorf("a document is a text column, not %T", column)
	}
	if text == "" {
		return nil
	}
	return json.Unmarshal([]byte(text), d)
}

// DescribeGateway stores what a registered process says of its document.
func (s *Store) DescribeGateway(ctx context.Context, r Registration, d Document) error {
	_, err := s.db.ExecContext(ctx, s.SQL(schema.DescribeGateway), r.ID, r.Incarnation, d)
	return Fail("describe gateway", err)
}

// Scopes returns the scopes of the documents that the registered gateways serve, in order. If none
// says what it serves, they are those of the pets, and isKnown is false.
func (s *Store) Scopes(ctx context.Context) (scopes apikey.Scopes, isKnown bool, err error) {
	gateways, err := s.Gateways(ctx)
	if err != nil {
		return "", false, err
	}
	var names []string
	for _, g := range gateways {
		isKnown = isKnown || g.Document.Hash != ""
		names = append(names, g.Document.Scopes...)
	}
	if !isKnown {
		return petsScopes, false, nil
	}
	scopes, err = apikey.ParseScopes(names)
	return scopes, true, Fail("read the scopes of gateways", err)
}

// prefix returns the prefix of new tokens. Gateways say which one it is, so it is set in one place.
func (s *Store) prefix(ctx context.Context) (prefix string, err error) {
	gateways, err := s.Gateways(ctx)
	prefix = apikey.DefaultPrefix
	last := int64(-1)
	for _, g := range gateways {
		if g.Document.KeyPrefix != "" && g.Generation > last {
			prefix, last = g.Document.KeyPrefix, g.Generation
		}
	}
	return prefix, err
}

// The states of a gateway.
const (
	GatewayLive     = "live"     // has applied every change
	GatewayBehind   = "behind"   // is applying the latest changes
	GatewayStarting = "starting" // is loading the database
	GatewaySilent   = "silent"   // it may still serve what it has in memory
	GatewayFenced   = "fenced"   // if it runs, it refuses everything
	GatewayReplaced = "replaced" // another process has its ID, and it may still serve
)

// SilentAfter is the time after which a gateway counts as silent. Gateways report every second.
const SilentAfter = 3 * time.Second

// IsSilent reports whether the gateway has not reported for longer than usual.
func (g Gateway) IsSilent() bool { return g.Age > SilentAfter.Milliseconds() }

// State returns the state of the gateway. last is the last event, read before the gateway.
func (g Gateway) State(last Change) string {
	switch {
	case g.Replaced:
		return GatewayReplaced
	case g.MaxAge > 0 && g.Age > g.FenceAfter().Milliseconds():
		return GatewayFenced
	case g.IsSilent():
		return GatewaySilent
	case g.Applied == 0 && last > 0:
		return GatewayStarting
	case g.Applied < last:
		return GatewayBehind
	}
	return GatewayLive
}

// fenceMargin covers the rounding between a heartbeat and its row.
const fenceMargin = time.Second

// FenceAfter returns how long after its last heartbeat a process certainly refuses everything: its
// maximum age, a second, and a thousandth for clocks that run at different speeds. Without a
// maximum age, it never does.
func (g Gateway) FenceAfter() time.Duration {
	maxAge := time.Duration(g.MaxAge) * time.Millisecond
	return maxAge + fenceMargin + maxAge/1000
}

// Watch finds the processes that refuse everything, because they have sent no heartbeat for longer
// than their maximum age. It uses the watcher's own monotonic clock: the database's clock may be
// set, and after a fail-over it is a different clock.
type Watch struct {
	seen map[string]sighting // by incarnation
}

type sighting struct {
	heartbeat instant.Millis
	since     time.Time // when this watch first saw that heartbeat
}

// Fenced reports whether g refuses everything. It decides by the heartbeats seen in this and
// earlier calls. now must have a monotonic reading.
func (w *Watch) Fenced(g Gateway, now time.Time) bool {
	if g.MaxAge <= 0 {
		return false
	}
	if w.seen == nil {
		w.seen = map[string]sighting{}
	}
	last, known := w.seen[g.Incarnation]
	if !known || last.heartbeat != g.SeenAt {
		last = sighting{g.SeenAt, now}
		w.seen[g.Incarnation] = last
	}
	return now.Sub(last.since) > g.FenceAfter()
}

// Keep drops all processes except the given ones.
func (w *Watch) Keep(gateways []Gateway) {
	maps.DeleteFunc(w.seen, func(incarnation string, _ sighting) bool {
		return !slices.ContainsFunc(gateways, func(g Gateway) bool { return g.Incarnation == incarnation })
	})
}
