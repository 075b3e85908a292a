package edge

import (
	"net/netip"
	"sync/atomic"
	"time"

	"petgate/gateway/answers"
	"petgate/gateway/claims"
	"petgate/gateway/directory"
	"petgate/gateway/front"
	"petgate/gateway/http1"
	"petgate/gateway/quotas"
	"petgate/gateway/quotas/authfailures"
	"petgate/gateway/upstream"
	"petgate/shared/api"
	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/trace"
)

// exchange is one request and its response. The stages use it to pass data to the next stage. It is
// kept with its Call, for later requests.
type exchange struct {
	*front.Call // its Response is the one that the client gets; durations and deadlines count from At
	edge        *Edge
	state
	buffers
}

// state is cleared after each exchange.
type state struct {
	now instant.Millis // by the injected clock, for everything in responses

	claims   claims.Claims
	id       []byte // the request's ID
	idBuffer [32]byte
	trace    trace.Context
	client   netip.Addr
	token    []byte
	hash     apikey.Hash // of the token
	env      apikey.Environment
	hasSlot  bool
	hasBody  bool          // it counts among its tenant's large bodies
	took     time.Duration // from At to the response, or to the beginning of a long one

	isUnwanted bool // its body is not read, although the client waits for 100 (Continue): route refuses the request

	isPublic bool // the operation needs no key
	hasEntry bool // entry is the key of the token, which may have ended
	isValid  bool // entry is a key that is valid here
	entry    directory.Entry

	access  access.Reason      // whether the key may call now; set if there is an entry
	guard   authfailures.State // set if the request has no valid key
	verdict quota.Verdict      // of a valid key: the decision of meter, or the last use that is known

	cost      int64 // of the request, in units; 0: the quota was not asked
	isCharged bool  // the cost was charged

	answer    *answers.Answer // the response, if the gateway makes it itself and it is no refusal; nil: none
	parameter string          // the invalid one, for a 400
	found     *route          // the operation, as find has found it; nil: none, or not looked for yet
	route     *route          // the same, once the request has passed meter; nil: none
	allow     string          // methods of the path, for a 405

	refusal refusal
	limited api.Limited // the details of a 429
	polls   quota.Usage // of a key that asks for its quota too often
	sending upstream.Request
	isWhole atomic.Bool // a long body has been read whole
}

// buffers keep their capacity.
type buffers struct {
	sent     []byte // the request to the upstream
	received http1.Response
	line     []byte // the error body, then the line of the access log
}

// sentBytesMax is the largest memory for a request to the upstream that is kept.
const sentBytesMax = 64 << 10

// Reset implements front.Own.
func (x *exchange) Reset() {
	x.state = state{}
	x.received.Reset()
	x.sent, x.line = x.sent[:0], x.line[:0]
	if cap(x.sent) > sentBytesMax {
		x.sent = nil
	}
}

// question is what the quotas are asked about the request.
func (x *exchange) question() (q quotas.Request) {
	k := &x.entry
	q.Tenant, q.Since, q.Test = k.Tenant, k.UsedSince, k.Environment == apikey.Test
	q.Version, q.Limits, q.MonthStarts = k.Version, k.Limits, k.MonthStarts
	q.Cost = max(1, x.cost)
	q.Cap = k.KeyLimits
	if q.IsCapped() {
		q.Key = k.Key
	}
	return q
}

// outcome says in one word how the exchange ended, for metrics and logs.
func (x *exchange) outcome() string {
	if x.answer != nil {
		return x.answer.Outcome
	}
	return x.refusal.reason.row().Name // "ok" if the response is the upstream's
}

// responseBytes is how much of a body the client was sent, also if it did not read it.
func (x *exchange) responseBytes() int64 {
	if x.Response.Rest != nil {
		return x.received.Body.Size()
	}
	return int64(len(x.Response.Body))
}
