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
	*front.Call // At: durations and deadlines count from it
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

	isUnwanted bool // the client waits for 100 (Continue) in vain: route refuses the request, whose body is not read

	isKnown bool // entry is the key of the token, which may have ended
	hasKey  bool // entry is a key that is valid here
	entry   directory.Entry
	why     access.Reason      // whether the key may call now; valid if the key is known
	guard   authfailures.State // valid without a key
	verdict quota.Verdict      // valid with a key: the decision of meter, or the last known use
	cost    int64              // of the request, in units; 0: the quota was not asked
	isTaken bool               // the cost was charged

	answer    *answers.Answer // the response, if the gateway makes it itself and it is no refusal; nil: none
	isOpen    bool            // the operation needs no key
	parameter string          // the invalid one, for a 400
	found     *route          // what meter has found, or receive
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
	response http1.Response
	line     []byte // the error body, then the line of the access log
}

// sentBytesMax is the largest memory for a request to the upstream that is kept.
const sentBytesMax = 64 << 10

// Reset implements front.Own.
func (x *exchange) Reset() {
	x.state = state{}
	x.response.Reset()
	x.sent, x.line = x.sent[:0], x.line[:0]
	if cap(x.sent) > sentBytesMax {
		x.sent = nil
	}
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
		return x.response.Body.Size()
	}
	return int64(len(x.Response.Body))
}
