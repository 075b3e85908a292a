package quotas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"petgate/gateway/quotas/authfailures"
	"petgate/gateway/quotas/redis"
	"petgate/gateway/quotas/store"
	"petgate/shared/background"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/service"
)

// Shared decides in a Redis that all gateways share. While Redis does not answer, it decides by
// this gateway's share of the limits.
type Shared struct {
	config   Config
	metrics  *metrics
	redis    *redis.Decider
	seen     *lastSeen
	standIn  *standIn
	begin    instant.Millis // the first reading of the host's clock
	started  time.Time      // the same instant, with a monotonic reading
	fleet    *fleet
	evicting atomic.Bool           // at the last check, Redis was set to evict records
	left     []entry               // by an earlier process of this gateway: see outageRecord
	saved    int64                 // the mark of the outageRecord in the file; guarded by writing
	unsaved  atomic.Pointer[error] // of the last save of the outageRecord; nil: it succeeded
	writing  sync.Mutex
	tasks    background.Group
}

// newShared returns quotas that are to be started.
func newShared(cfg Config) *Shared {
	s := &Shared{
		config:  cfg,
		seen:    newLastSeen(cfg.Rule),
		begin:   instant.Of(cfg.Clock()),
		started: time.Now(),
		fleet:   newFleet(cfg.Rule.Window()),
	}
	s.standIn = newStandIn(store.NewMemory(cfg.Rule, nil), func(t id.Tenant) instant.Millis { return s.redis.Now(t) })
	return s
}

// start begins to decide in Redis.
func (s *Shared) start(ctx context.Context, client *redis.Decider) {
	s.redis = client
	s.metrics = newMetrics(s.config.Metrics, s.skew)
	s.metrics.setMode(modeShared)
	s.restore() // before Start, because unreported requests are reported as soon as Redis answers
	client.Start(ctx)
	s.tasks.Go(s.watch)
	if s.config.OutageFile != "" {
		s.tasks.Go(func(closing context.Context) { keepSaving(closing, s.config.Log, s.save) })
	}
}

func (s *Shared) redisConfig() redis.Config {
	return redis.Config{
		URL:     s.config.RedisURL,
		Prefix:  s.config.Prefix,
		Rule:    s.config.Rule,
		Clock:   func() time.Time { return s.now().Time() },
		Budget:  s.config.Budget,
		Metrics: redis.NewMetrics(s.config.Metrics),
		Changed: s.changed,
	}
}

// Take decides on one request. A request may wait for a call under way, and then waits for its own
// call. A call fails when Redis has been silent for the budget.
func (s *Shared) Take(c Request) (quota.Verdict, error) {
	if v, ok := s.Refusal(&c, s.now()); ok {
		s.metrics.remembered.Inc()
		return v, nil
	}
	v, outcome := s.redis.Take(c)
	switch outcome {
	case redis.Decided:
		s.metrics.count(v.Granted, s.metrics.admitted, s.metrics.refused)
		return v, nil
	case redis.Remembered:
		s.metrics.remembered.Inc()
		return v, nil
	}
	return s.takeHere(&c)
}

// takeHere decides on a request without Redis.
func (s *Shared) takeHere(c *Request) (quota.Verdict, error) {
	if s.config.OnOutage == Refuse {
		s.metrics.undecided.Inc()
		return quota.Verdict{}, ErrUndecided
	}
	v := s.standIn.admit(c, 1, s.knownEverywhere, s.gateways(c.Tenant))
	s.metrics.count(v.Granted, s.metrics.localAdmitted, s.metrics.localRefused)
	return v, nil
}

// gateways returns the number by which an outage divides a tenant's limits. A process that the
// tenant's Redis has never answered does not know what was admitted, by others or by itself before
// a restart: it starts with the smallest share.
func (s *Shared) gateways(t id.Tenant) int64 {
	if !s.redis.HasHeard(t) {
		return math.MaxInt64
	}
	return max(s.fleet.largest.Load(), s.config.liveGateways())
}

// Known returns the last known figures under the request's limits, without I/O. Without figures,
// the whole limits are left. In an outage they are those on which this gateway decides.
func (s *Shared) Known(c Request) quota.Verdict {
	if s.redis.IsDownFor(c.Tenant) {
		return s.peekHere(&c)
	}
	return both(&c, func(r store.Request) quota.Verdict { return s.seen.verdict(r, s.now()) })
}

// both returns the figures of the tenant's record with those of the key's own.
func both(c *Request, figures func(store.Request) quota.Verdict) quota.Verdict {
	v := figures(c.Request)
	if c.IsCapped() {
		own := figures(c.Own())
		v.Join(&own)
	}
	return v
}

// knownEverywhere is the last known use of a record plus the requests of gateways that have left,
// if Redis has not got them.
func (s *Shared) knownEverywhere(r store.Request) quota.Verdict {
	v := s.seen.verdict(r, s.now())
	left, known := s.fleet.leftOf(r.Name), s.config.Rule.UseOf(&v)
	if left.Day.Ends == known.Day.Ends {
		v.Usages[quota.Day].Used += left.Day.Used
	}
	if left.Month.Ends == known.Month.Ends {
		v.Usages[quota.Month].Used += left.Month.Used
	}
	return v
}

// Current returns figures at most a second old, and charges nothing. They are those of the last
// decision here, if that is recent. Otherwise it asks Redis and remembers the answer like a
// decision.
func (s *Shared) Current(c Request) (quota.Verdict, error) {
	return s.figures(&c, func(r store.Request) (v quota.Verdict, err error) {
		asked := s.now()
		if last := s.seen.get(r.Name); last.at != 0 && asked < last.sentAt.Add(rememberFor) {
			return s.seen.verdict(r, asked), nil
		}
		if v, err = s.peek(context.Background(), r); err == nil {
			s.seen.store(r, asked, s.now(), &v, true) // figures that admit no request are a refusal
		}
		return v, err
	}), nil
}

// Peek returns current figures and charges nothing.
func (s *Shared) Peek(ctx context.Context, c Request) (quota.Verdict, error) {
	return s.figures(&c, func(r store.Request) (quota.Verdict, error) { return s.peek(ctx, r) }), nil
}

// figures returns what ask says of the records of a request. If Redis has no figures, they are
// those on which this gateway decides.
func (s *Shared) figures(c *Request, ask func(store.Request) (quota.Verdict, error)) quota.Verdict {
	if s.redis.IsDownFor(c.Tenant) {
		return s.peekHere(c)
	}
	var failed error
	v := both(c, func(r store.Request) quota.Verdict {
		v, err := ask(r)
		failed = cmp.Or(failed, err)
		return v
	})
	if failed != nil {
		return s.peekHere(c)
	}
	return v
}

// peek asks Redis.
func (s *Shared) peek(ctx context.Context, r store.Request) (quota.Verdict, error) {
	d := store.Demand{Request: r}
	s.tellKnown(&d)
	return s.redis.Peek(ctx, d)
}

// peekHere returns the figures on which this gateway decides without Redis. With Refuse, it admits
// nothing.
func (s *Shared) peekHere(c *Request) quota.Verdict {
	if s.config.OnOutage == Refuse {
		return Undecided(both(c, s.knownEverywhere))
	}
	if v, ok := s.Refusal(c, s.now()); ok {
		return v
	}
	return s.standIn.admit(c, 0, s.knownEverywhere, s.gateways(c.Tenant))
}

// Mode is "shared", or "outage" while some or all of Redis does not answer.
func (s *Shared) Mode() string {
	if s.redis.IsDown() {
		return modeOutage
	}
	return modeShared
}

// changed logs a change of mode.
func (s *Shared) changed(down bool, cause error) {
	if !down {
		s.metrics.setMode(modeShared)
		s.config.Log.Info("quotas are decided by Redis again")
		return
	}
	s.metrics.setMode(modeOutage)
	_ = s.standIn.entries() // drops what has lapsed: about one entry for each tenant of the day stays
	level := slog.LevelWarn
	if redis.IsRefused(cause) {
		level = slog.LevelError // it does not end by itself
	}
	s.config.Log.Log(context.Background(), level, "quotas are decided without Redis", "how", s.config.OnOutage,
		"error", redis.Explain(cause))
}

// Ready returns an error if Redis refuses the credentials of this gateway and has never answered
// it: then REDIS_URL is wrong, and a gateway with the right one should get the requests. In an
// outage, requests are decided by shares, or refused if the operator chose so, and the gateway
// stays ready.
func (s *Shared) Ready() error {
	if cause := s.redis.Cause(); redis.IsRefused(cause) && !s.redis.HasAnswered() {
		return redis.Explain(cause)
	}
	return nil
}

// skewMax is the difference of two clocks that Health reports.
const skewMax = time.Second

// Health returns the problems that an operator has to fix. It asks Redis for its eviction policy,
// because a Redis that evicts records admits more than the limits.
func (s *Shared) Health(ctx context.Context) (problems []error) {
	if err := s.unsaved.Load(); err != nil {
		problems = append(problems, unsavedProblem(*err))
	}
	if s.redis.IsDown() {
		problem := errors.New("Redis does not answer: quotas are decided without it (" + string(s.config.OnOutage) + ")")
		if cause := s.redis.Cause(); cause != nil {
			problem = fmt.Errorf("%w: %w", problem, redis.Explain(cause))
		}
		return append(problems, problem)
	}
	var evicts []string
	for _, server := range s.redis.Servers(ctx) {
		switch {
		case server.Error != "":
			problems = append(problems, errors.New("cannot ask Redis for its memory policy: "+server.Error))
		case server.Policy != "" && server.Policy != "noeviction":
			text := fmt.Sprintf("Redis at %s has maxmemory-policy %s: it may drop quotas; set noeviction",
				server.Address, server.Policy)
			evicts = append(evicts, text)
			problems = append(problems, errors.New(text))
		}
	}
	if is := evicts != nil; s.evicting.Swap(is) != is && is {
		s.config.Log.Error("Redis may drop quotas", "problems", evicts)
	}
	if skew := s.skew(); skew.Abs() > skewMax {
		problems = append(problems, skewProblem(skew))
	}
	return problems
}

// skewProblem is that the clock of Redis is ahead of this host's by this much.
type skewProblem time.Duration

func (p skewProblem) Error() string {
	return fmt.Sprintf("the clock of Redis minus this host's is %s; minutes and days are counted by the clock of Redis",
		time.Duration(p).Round(100*time.Millisecond))
}

// Cure is what service.ProblemOf looks for: the cure of other problems with quotas does not help.
func (skewProblem) Cure() string { return service.CureOf("clock") }

// Servers asks the Redis servers about themselves.
func (s *Shared) Servers(ctx context.Context) []redis.Server { return s.redis.Servers(ctx) }

// AuthFailures returns the limit of failed authentications.
func (s *Shared) AuthFailures(perMinute int) *authfailures.Guard {
	return authfailures.New(authfailures.Config{
		PerMinute: perMinute, Clock: s.config.Clock, Metrics: s.metrics.authFailures, Redis: s.redis,
	})
}

// Close closes the connections to Redis, and saves what Redis has not got yet.
func (s *Shared) Close(context.Context) error {
	s.tasks.Stop()
	return errors.Join(s.redis.Close(), s.save())
}

// now dates what this gateway remembers: it is the host's clock without its steps since the start.
func (s *Shared) now() instant.Millis { return s.begin.Add(time.Since(s.started)) }

// skew is how far the clock of Redis is ahead of the host's.
func (s *Shared) skew() time.Duration { return s.redis.Skew(s.config.Clock()) }

// redisNow is the time of Redis, for all tenants together.
func (s *Shared) redisNow() instant.Millis { return instant.Of(s.config.Clock()).Add(s.skew()) }
