package quotas

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/shared/core/quota"
)

// Outage is what a gateway does while Redis does not decide.
type Outage string

const (
	// Share lets each gateway admit its share of what was left at the last answer from Redis.
	Share Outage = "share"
	// Refuse returns ErrUndecided: only requests that Redis has counted are admitted.
	Refuse Outage = "refuse"
)

// UnmarshalText is used by the settings.
func (o *Outage) UnmarshalText(text []byte) error {
	*o = Outage(text)
	if *o != Share && *o != Refuse {
		return fmt.Errorf("%q is not a valid value: use share or refuse", text)
	}
	return nil
}

// Config says how quotas are decided. The zero Config decides in process and keeps nothing.
type Config struct {
	// RedisURL is redis://…, rediss://… or unix:///path. Several URLs, separated by commas, are
	// nodes of one Redis Cluster. By
	// redis+sentinel://[:password@]host:port,host:port/master-name[/db], Sentinels name the server.
	// If it is empty, this process decides: that is exact for one gateway, but two such gateways
	// admit twice the limit.
	RedisURL string
	// Prefix begins every name in Redis. Default "petgate:". Gateways with different prefixes do
	// not see each other's use.
	Prefix string
	// Clock is time.Now by default. With Redis it only dates what this process remembers: decisions
	// use Redis's own clock.
	Clock func() time.Time
	// Budget is how long Redis may be silent during one call before it is down. Default 50 ms. The
	// time that a request waits in this gateway's own queue does not count, nor does time in which
	// this process did not run.
	Budget time.Duration
	// OnOutage is Share by default.
	OnOutage Outage
	// LiveGateways returns how many gateways share the limits now; nil or less than 1 means 1. If
	// the number is too small, an outage admits more than the documented bound; if it is too large,
	// an outage admits less.
	LiveGateways func() int
	// Leavers has what gateways leave to each other; with nil, a gateway that leaves keeps it.
	// Unused without Redis.
	Leavers Leavers
	// Saver keeps in-process quotas over a restart; with nil they are lost. Unused with Redis.
	Saver Saver
	// OutageFile is the path of a file with the requests that Redis still has to get from this
	// gateway, so that a restart does not lose them. If it is empty, a restart loses them. Unused
	// without Redis.
	OutageFile string
	// GatewayID is written into OutageFile: the file of another gateway is ignored.
	GatewayID string
	// Rule is quota.Product by default. Only tests set it: all gateways of one Redis must use the
	// same rule.
	Rule quota.Rule
	// Metrics is where metrics are registered; nil registers none.
	Metrics prometheus.Registerer
	// Log gets one line at each change of mode; nil logs nothing.
	Log *slog.Logger
}

// Leavers keeps requests that gateways admitted before they left, and that Redis has not got: the
// texts of Shared.Leave.
type Leavers interface {
	// Unreported returns them without I/O, as of the same time as LiveGateways.
	Unreported() []string
	// TakeUnreported removes them and passes them to keep. If keep returns an error, they stay. If
	// only the commit fails, they may stay.
	TakeUnreported(ctx context.Context, keep func(texts []string) error) error
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.Prefix = cmp.Or(c.Prefix, "petgate:")
	c.Budget = cmp.Or(c.Budget, 50*time.Millisecond)
	c.OnOutage = cmp.Or(c.OnOutage, Share)
	c.Rule = cmp.Or(c.Rule, quota.Product)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) liveGateways() int64 {
	if c.LiveGateways == nil {
		return 1
	}
	return int64(max(1, c.LiveGateways()))
}
