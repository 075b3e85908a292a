// Package directory has all tenants, plans, keys and bans in memory and follows the changes in the
// database. No request waits for the database, an unknown key costs no query, and an outage of the
// database changes nothing for loaded keys.
//
// A gateway first registers and then loads, so every change made after its registration waits for
// its confirmation. It then follows the events: it reads new events, applies them to the records in
// memory, and confirms the last applied event with a heartbeat. A notification wakes it; without
// one it polls once a second. If the database no longer has the last applied event, it is an older
// copy of itself, as after a failover or a restore. Then everything is loaded again, and refusals
// that the copy has lost stay in force.
//
// A file with hashes but no tokens lets a restarted gateway serve while the database is
// unreachable: see package snapshot. It holds every change that the gateway has confirmed. It is
// removed before the gateway signs off, because changes do not wait for a gateway that has signed
// off.
//
// Lookups take no lock and allocate nothing. All methods are safe for concurrent use.
package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"petgate/gateway/directory/snapshot"
	"petgate/gateway/usage"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// Config is a directory's configuration.
type Config struct {
	GatewayID    string             // unique, and stable over restarts
	Environment  apikey.Environment // whose limits are looked up
	AdminAddress string             // shown to operators when this gateway does not confirm
	Snapshot     string             // the snapshot's path; empty: none
	MaxAge       time.Duration      // refuse everything this long after the last contact with the database; 0: never
	Document     keystore.Document  // of the API that the gateway serves
	// LongestRequest is the longest time from a request's quota decision to its count. The usage of
	// an hour is complete this time and a minute after its end.
	LongestRequest time.Duration
	Log            *slog.Logger // nil: none
	Metrics        prometheus.Registerer
	Clock          func() time.Time // nil: the system's

	// GatewaysChanged is called by Open or Run when the number of registered gateways has changed.
	// May be nil.
	GatewaysChanged func(was, is int)

	// PlansChanged is called by Open or Run with all plans after they were loaded, and after a
	// change of one, before that is confirmed. It may be nil.
	PlansChanged func([]keystore.Plan)

	// Loaded is called after a full load, with the numbers of records. May be nil.
	Loaded func(keys, tenants int)
}

// Entry is the part of a key and its tenant that the request path needs. It is a copy and may be
// kept. Allow is shared and must not be changed. A time of 0 means never.
type Entry struct {
	Key         id.Key
	Tenant      id.Tenant
	Name        string // of the key
	Environment apikey.Environment
	Scopes      apikey.Scopes
	Terms                   // of the tenant
	KeyLimits   plan.Limits // the key's own, within the tenant's; zero: none
	Suspended   bool
	ExpiresAt   instant.Millis
	RevokedAt   instant.Millis
	DisabledAt  instant.Millis
	GraceEndsAt instant.Millis // the end of the grace period after a rotation
	ReplacedBy  id.Key         // the new key after a rotation; zero: none
	Allow       []netip.Prefix // empty: from anywhere

	BannedUntil    instant.Millis
	BanIsAutomatic bool   // a gateway imposed the ban
	BanNotice      string // the operator's words for the tenant; empty: none
}

// Directory is a gateway's view of the key database.
type Directory struct {
	cfg   Config
	store *keystore.Store
	self  atomic.Pointer[keystore.Registration]

	document    atomic.Pointer[keystore.Document]
	isDescribed atomic.Bool // the database has the document

	state      atomic.Pointer[state]
	seen       atomic.Pointer[time.Time]         // when the last successful contact began; nil: nothing was ever loaded
	maxAge     atomic.Int64                      // ms, as registered; 0: no maximum
	gateways   atomic.Int64                      // number registered at the last contact
	unreported atomic.Pointer[[]string]          // see Unreported
	skew       atomic.Int64                      // time.Duration: this clock minus the database's
	position   atomic.Pointer[snapshot.Position] // of the state
	failing    atomic.Pointer[time.Time]         // since when an available database cannot be followed; nil: it can
	fault      atomic.Pointer[error]             // why the database cannot be followed; nil: it is followed
	unkept     atomic.Pointer[error]             // why there is no snapshot; nil: there is one, or none is wanted

	mu       sync.Mutex // guards changes of the state except bans; never taken by a request
	versions uint64
	bansMu   sync.Mutex              // guards changes of bans, and pending; held briefly, because requests wait for it
	pending  map[id.Key]keystore.Ban // bans imposed here that are not in the database yet
	banned   chan struct{}           // wakes the writer of bans

	follower follower
	registry registry
	usage    *usage.Counter
	snapshot *snapshot.File
	metrics  *metrics
}

// Open registers the gateway and loads everything. If the database is unavailable, it reads the
// snapshot. Without a snapshot, the directory is not Fresh until Run has loaded it; Ready says why.
// If another process with this ID lives, Open returns keystore.ErrDisplaced after some seconds.
// Otherwise it fails only if a retry cannot help.
func Open(ctx context.Context, store *keystore.Store, cfg Config) (*Directory, error) {
	if cfg.GatewayID == "" {
		return nil, errors.New("directory: a gateway needs an ID: set GATEWAY_ID")
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	d := &Directory{
		cfg:     cfg,
		store:   store,
		pending: map[id.Key]keystore.Ban{},
		banned:  make(chan struct{}, 1),
	}
	d.state.Store(newState(&d.versions, cfg.Environment))
	d.maxAge.Store(cfg.MaxAge.Milliseconds())
	d.self.Store(&keystore.Registration{
		ID:           cfg.GatewayID,
		Incarnation:  newIncarnation(),
		AdminAddress: cfg.AdminAddress,
		MaxAge:       cfg.MaxAge,
	})
	d.document.Store(&cfg.Document)
	d.gateways.Store(1)
	d.follower.complaints.Interval = time.Minute
	d.position.Store(&snapshot.Position{})
	opened, unkept := snapshot.Open(cfg.Snapshot, cfg.GatewayID, d.self.Load().Incarnation)
	d.snapshot = opened
	if unkept != nil {
		cfg.Log.Error("directory: running without a snapshot", "path", cfg.Snapshot, "error", unkept)
		d.unkept.Store(&unkept) // nothing else is ever assigned to this variable
	}
	d.usage = usage.New(usage.Config{
		Store:          store,
		Process:        func() keystore.Registration { return *d.self.Load() },
		File:           d.usagePath(),
		LongestRequest: cfg.LongestRequest,
		Log:            cfg.Log,
		Metrics:        cfg.Metrics,
		Clock:          cfg.Clock,
	})
	d.registry.ended = append(d.snapshot.Ended(), d.usage.Earlier()...)
	d.metrics = newMetrics(cfg.Metrics, d)

	err := d.sync(context.WithoutCancel(ctx))
	d.report(err)
	if errors.Is(err, keystore.ErrDisplaced) {
		d.snapshot.Close()
		return nil, err
	}
	if errors.Is(err, keystore.ErrUnavailable) && !d.follower.loaded && d.snapshot.IsKept() {
		d.restore()
	}
	return d, nil
}

// usagePath is the path of the file that keeps usage: beside the snapshot, under the same lock.
func (d *Directory) usagePath() string {
	if !d.snapshot.IsKept() {
		return ""
	}
	return d.cfg.Snapshot + ".usage"
}

// Usage returns what counts this gateway's requests. It writes the counts while Run follows the
// database, and the last ones in SignOff.
func (d *Directory) Usage() *usage.Counter { return d.usage }

// plansChanged passes on the plans. As for a change, only one goroutine at a time calls it.
func (d *Directory) plansChanged(s *state) {
	if d.cfg.PlansChanged != nil {
		d.cfg.PlansChanged(s.allPlans())
	}
}

func (d *Directory) loaded(s *state) {
	d.plansChanged(s)
	if d.cfg.Loaded != nil {
		d.cfg.Loaded(s.keys.len, s.tenants.len)
	}
}

// Lookup finds a key by its token's hash.
func (d *Directory) Lookup(h apikey.Hash) (Entry, bool) {
	s := d.state.Load()
	ref, ok := s.findHash(&h)
	if !ok {
		return Entry{}, false
	}
	return s.entry(ref), true
}

// Key finds a key by its ID.
func (d *Directory) Key(k id.Key) (Entry, bool) {
	s := d.state.Load()
	ref, known := s.findKey(&k)
	if !known {
		return Entry{}, false
	}
	return s.entry(ref), true
}

// Terms are what holds for all keys of a tenant.
type Terms struct {
	Plan        string
	Limits      plan.Limits    // the effective ones, in this gateway's environment
	MonthStarts uint8          // as in keystore.Tenant
	Version     uint64         // changes with Limits and MonthStarts
	UsedSince   instant.Millis // the last reset of the usage; 0: never
}

// Terms returns a tenant's terms.
func (d *Directory) Terms(t id.Tenant) (_ Terms, known bool) {
	s := d.state.Load()
	ref, known := s.findTenant(&t)
	if !known {
		return Terms{}, false
	}
	return s.tenants.at(ref).terms.Load().in(s.environment), true
}

// Fresh reports whether the directory may be used at now: it was loaded, and the last contact with
// the database is within MaxAge. After another process has taken this gateway's ID, it stays false.
func (d *Directory) Fresh(now instant.Millis) bool {
	seen, maxAge := d.seen.Load(), d.maxAge.Load()
	return seen != nil && (maxAge == 0 || d.age(seen, now).Milliseconds() <= maxAge)
}

// age returns the time from seen to now. A clock that was set back does not make it shorter.
func (d *Directory) age(seen *time.Time, now instant.Millis) time.Duration {
	return max(now.Sub(instant.Of(*seen)), d.cfg.Clock().Sub(*seen))
}

// Ready returns nil if the gateway can serve, and otherwise the problem and what to do.
func (d *Directory) Ready() error {
	fault, seen := d.fault.Load(), d.seen.Load()
	switch now := instant.Of(d.cfg.Clock()); {
	case fault != nil && errors.Is(*fault, keystore.ErrOutdated):
		return fmt.Errorf("directory: %w: run `keyadmin migrate`", *fault)
	case fault != nil && (errors.Is(*fault, keystore.ErrSchema) || errors.Is(*fault, keystore.ErrDisplaced)):
		return fmt.Errorf("directory: %w", *fault)
	case seen == nil && fault != nil:
		return fmt.Errorf("directory: never loaded: %w", *fault)
	case seen == nil: // for a moment only: fault is about to change too
		return errors.New("directory: not loaded")
	case fault != nil && d.isFailing():
		return fmt.Errorf("directory: the database is available, but cannot be followed, "+
			"so keys that were revoked may be accepted: %w", *fault)
	case !d.Fresh(now):
		return fmt.Errorf("directory: stale: the last contact with the database was %s ago, the maximum is %s",
			d.age(seen, now).Truncate(time.Millisecond), time.Duration(d.maxAge.Load())*time.Millisecond)
	}
	return nil
}

// failingMax is how long the gateway stays ready when an available database cannot be followed.
const failingMax = 5 * time.Second

func (d *Directory) isFailing() bool {
	since := d.failing.Load()
	return since != nil && d.cfg.Clock().Sub(*since) > failingMax
}

// Behind returns an error if the gateway serves what it loaded earlier because it cannot follow the
// database.
func (d *Directory) Behind() error {
	fault, seen := d.fault.Load(), d.seen.Load()
	if fault == nil || seen == nil || d.Ready() != nil {
		return nil
	}
	silence := d.age(seen, instant.Of(d.cfg.Clock()))
	return fmt.Errorf("not read for %s; what was loaded stays in force: %w", silence.Truncate(time.Second), *fault)
}

// Unkept returns an error if the snapshot is wanted and cannot be kept.
func (d *Directory) Unkept() error {
	if err := d.unkept.Load(); err != nil {
		return fmt.Errorf("a restart without the database would know no key: %w", *err)
	}
	return nil
}
