package edge

import (
	"io"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/gateway/answers"
	"petgate/gateway/claims"
	"petgate/gateway/directory"
	"petgate/gateway/front"
	"petgate/gateway/http1"
	"petgate/gateway/quotas"
	"petgate/gateway/quotas/authfailures"
	"petgate/gateway/share"
	"petgate/gateway/strikes"
	"petgate/gateway/upstream"
	"petgate/gateway/usage"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/trace"
)

// Directory knows all keys. None of its methods does I/O.
type Directory interface {
	// Lookup finds a key by the hash of its token.
	Lookup(apikey.Hash) (directory.Entry, bool)
	// Fresh reports whether the directory is recent enough to be used at now.
	Fresh(now instant.Millis) bool
	// Ban bans a key until the given instant: here at once, on the other gateways soon after.
	Ban(key id.Key, until instant.Millis, reason string)
}

// Quotas decides whether a tenant may make one more request.
type Quotas interface {
	// Take decides on one request. An error means that no decision could be made.
	Take(quotas.Request) (quota.Verdict, error)
	// Known returns the last known figures, without I/O.
	Known(r quotas.Request) quota.Verdict
	// Current returns figures that are at most a second old and charges nothing. An error means
	// that there are none.
	Current(quotas.Request) (quota.Verdict, error)
}

// Guard limits how many tokens an address may guess.
type Guard interface {
	// Fail counts an unknown token. allowed is false if there were too many from this address.
	Fail(netip.Addr) (state authfailures.State, allowed bool)
	// Known returns the state of an address, without I/O.
	Known(netip.Addr) authfailures.State
}

// Usage counts requests for statistics.
type Usage interface {
	Count(request usage.Request)
}

// Deps are the dependencies of an edge. All but AccessLog and Tracer are required; Statements only
// if Operations has GET /v1/usage.
type Deps struct {
	Directory  Directory
	Quotas     Quotas
	Guard      Guard
	Usage      Usage
	Statements answers.Statements
	Operations []api.Operation
	Pages      *answers.Pages // the documentation, for everybody
	Log        *slog.Logger
	AccessLog  io.Writer     // nil = no access log
	Tracer     *trace.Tracer // nil = no traces
	Metrics    prometheus.Registerer
	Clock      func() time.Time // for everything in responses; I/O uses the machine's clock
}

// Edge is the public port. Its methods are safe for concurrent use.
type Edge struct {
	cfg  Config
	deps Deps

	front       *front.Server
	routes      atomic.Pointer[routes]
	proxies     claims.Proxies
	polls       answers.Polls
	statements  *answers.Usage
	upstreams   upstream.Pools
	secretField string // X-Gateway-Secret as sent to upstreams; may be empty
	strikes     *strikes.Strikes
	bodies      *share.Shares // of the memory for bodies: how many large bodies a tenant sends at a time
	metrics     *metrics
	accessLog   *accessLog
	slots       *http1.Budget // one for each request that is being served
}
