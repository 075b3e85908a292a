package edge

import (
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"petgate/gateway/answers"
	"petgate/gateway/directory"
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

// exchange is one request and its response. The stages use it to pass data to the next stage. Exchanges are pooled.
type exchange struct {
	state
	buffers
}

// state is zeroed when the exchange returns to the pool.
type state struct {
	rc        *fasthttp.RequestCtx // valid until finish returns
	conn      *clientConn
	startedAt time.Time      // by the machine's clock, for durations and deadlines
	now       instant.Millis // by the injected clock, for everything in responses

	unreadable error // why the request could not be read

	claims
	id       []byte // the request's ID
	idBuffer [32]byte
	trace    trace.Context
	marks    [marks]time.Duration // when its stages ended, after startedAt; only if it is sampled
	client   netip.Addr
	token    []byte
	hash     apikey.Hash // of the token
	env      apikey.Environment
	hasSlot  bool
	hasBody  bool // it counts among its tenant's large bodies

	isKnown bool // entry is the key of the token, which may have ended
	hasKey  bool // entry is a key that is valid here
	entry   directory.Entry
	why     access.Reason      // whether the key may call now; valid if the key is known
	guard   authfailures.State // valid without a key
	verdict quota.Verdict      // valid with a key: the decision of meter, or the last known use
	isTaken bool               // one request was charged

	isMetered bool // the quota was asked, whatever it answered

	answer        *answers.Answer // the response, if the gateway makes it itself and it is no refusal; nil: none
	isPublic      bool            // the answer needed no key
	parameter     parameter       // the invalid one, for a 400
	strikesLeft   int             // until a ban; in a refusal, valid with countsStrikes
	countsStrikes bool
	ban           api.Ban
	route         *route
	allow         string // methods of the path, for a 405

	refusal refusal
	limited api.Limited
	sending upstream.Request
}

// buffers keep their capacity when the exchange returns to the pool.
type buffers struct {
	request  http1.Request
	body     http1.Body
	sent     []byte // the request to the upstream
	response http1.Response
	text     []byte // for header values
	line     []byte // for the error body, then for the access log
}

// exchangePool keeps exchanges between requests.
type exchangePool struct{ sync.Pool }

func (p *exchangePool) get(c *clientConn) *exchange {
	x, ok := p.Get().(*exchange)
	if !ok {
		x = &exchange{}
	}
	x.conn = c
	return x
}

// pooledBytesMax is the longest request head that a pooled exchange keeps the memory of.
const pooledBytesMax = 64 << 10

func (p *exchangePool) put(x *exchange) {
	x.state = state{}
	x.request.Reset()
	x.response.Reset()
	x.body.Reset()
	x.sent, x.text, x.line = x.sent[:0], x.text[:0], x.line[:0]
	if cap(x.sent) > pooledBytesMax {
		x.sent = nil
	}
	p.Put(x)
}

// outcome says in one word how the exchange ended, for metrics and logs.
func (x *exchange) outcome() string {
	if x.answer != nil {
		return x.answer.Outcome
	}
	return x.refusal.reason.outcome()
}

// operation returns the ID of the operation, or nothing if the request was refused before it was known.
func (x *exchange) operation() string {
	if x.route == nil {
		return ""
	}
	return x.route.ID
}

// tokenMark is the beginning of tokens. Text that contains it is not logged.
var tokenMark = []byte("ptg_")

// appendRandom appends words of 16 random hexadecimal digits.
func appendRandom(dst []byte, words int) []byte {
	for range words {
		var raw [8]byte
		for n, i := rand.Uint64(), 0; i < len(raw); i++ {
			raw[i] = byte(n)
			n >>= 8
		}
		dst = hex.AppendEncode(dst, raw[:])
	}
	return dst
}
