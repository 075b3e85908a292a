package quotas

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/shared/core/quota"
)

// Outage is what a gateway does while Redis does not decide.
type Outage uint8

const (
	// Share lets each gateway admit its share of what was left when Redis was last heard of.
	Share Outage = iota
	// Refuse answers ErrUndecided: no request is admitted that Redis has not counted.
	Refuse
)

func (o Outage) String() string { return [...]string{"share", "refuse"}[o] }

// UnmarshalText reads what String writes, as settings do.
func (o *Outage) UnmarshalText(text []byte) error {
	switch string(text) {
	case "share":
		*o = Share
	case "refuse":
		*o = Refuse
	default:
		return fmt.Errorf("%q is not a valid value: use share or refuse", text)
	}
	return nil
}

// Config says how quotas are decided. The zero Config decides in process and keeps nothing.
type Config struct {
	// RedisURL is redis://… or rediss://…; several, separated by commas, are nodes of one Redis Cluster. Empty decides in
	// this process: exact for one gateway, but two such gateways admit twice the limit.
	RedisURL string
	// Prefix begins every name in Redis. Default "petgate:". Gateways with different prefixes do not see each other's use.
	Prefix string
	// Clock is time.Now by default. With Redis it only dates what is remembered here: Redis's own clock decides.
	Clock func() time.Time
	// Budget is how long a decision may take, from when its request joined the queue. Default 50 ms. A trip that takes
	// longer is an outage: too small a budget makes outages of pauses.
	Budget time.Duration
	// OnOutage is Share by default.
	OnOutage Outage
	// LiveGateways says how many gateways share the limits now; nil or less than 1 is 1. Too small a number lets an outage
	// admit more than the documented bound, too large a number admits less.
	LiveGateways func() int
	// Saver keeps in-process quotas over a restart; nil forgets them. Unused with Redis.
	Saver Saver
	// Rule is quota.Product by default. Only tests set it: all gateways of a Redis must have the same.
	Rule quota.Rule
	// Metrics is where metrics are registered; nil registers none.
	Metrics prometheus.Registerer
	// Log gets one line at each change of mode; nil logs nothing.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = "petgate:"
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Budget == 0 {
		c.Budget = 50 * time.Millisecond
	}
	if c.Rule == (quota.Rule{}) {
		c.Rule = quota.Product
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) liveGateways() int64 {
	if c.LiveGateways == nil {
		return 1
	}
	return int64(max(1, c.LiveGateways()))
}
