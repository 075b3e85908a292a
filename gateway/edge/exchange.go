package edge

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"petgate/gateway/directory"
	"petgate/gateway/quotas/authfailures"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// exchange is one request and its response: what each stage leaves for the next. It is pooled.
type exchange struct {
	state
	room
}

// state is what a pooled exchange forgets.
type state struct {
	rc        *fasthttp.RequestCtx // valid until finish returns
	wire      *wire
	startedAt time.Time      // by the machine's clock: for durations and deadlines
	now       instant.Millis // by the injected clock, Unix ms: for everything that a client is told

	broken refusal // why the request could not be read

	id      []byte // the request's ID
	idRoom  [32]byte
	client  netip.Addr
	token   []byte
	env     apikey.Environment
	hasSlot bool

	hasKey  bool // entry is valid
	entry   directory.Entry
	guard   authfailures.State // valid where there is no key
	verdict quota.Verdict      // valid where there is one: what meter decided, or the last known figures
	isTaken bool               // one request was charged

	strikesLeft int            // until a ban
	bannedUntil instant.Millis // ms; 0 = not banned
	route       *route
	allow       string // methods of the path, where it does not allow this one

	link    *link // the upstream's connection while it is in use
	refusal refusal
	limited api.Limited
}

// room is what it empties, to be filled again without an allocation.
type room struct {
	block  []byte // the request's head as it came
	head   head
	body   []byte
	sent   []byte // the request as the upstream gets it
	answer answer
	text   []byte // for header values
	line   []byte // for the Error body, then for the access log
}

// exchangePool keeps exchanges between requests.
type exchangePool struct{ sync.Pool }

func (p *exchangePool) get(w *wire) *exchange {
	x, ok := p.Get().(*exchange)
	if !ok {
		x = &exchange{}
	}
	x.wire = w
	return x
}

// pooledBytesMax is the largest buffer that a pooled exchange keeps.
const pooledBytesMax = 64 << 10

func (p *exchangePool) put(x *exchange) {
	x.state = state{}
	x.head.reset()
	x.answer.reset()
	x.block, x.body, x.sent, x.text, x.line = x.block[:0], x.body[:0], x.sent[:0], x.text[:0], x.line[:0]
	if cap(x.sent) > pooledBytesMax || cap(x.body) > pooledBytesMax {
		x.sent, x.body = nil, nil
	}
	p.Put(x)
}

// tokenMark is how tokens begin: what holds it is not logged.
var tokenMark = []byte("ptg_")

// The shortest and the longest request ID that a client may choose.
const (
	idBytesMin = 8
	idBytesMax = 64
)

// setID takes the client's request ID if it can do no harm in a log or a header, and is no token by mistake, and else draws
// one. It only tells requests apart, so a fast generator will do.
func (x *exchange) setID() {
	id := x.head.requestID
	if len(id) >= idBytesMin && len(id) <= idBytesMax && all(id, idByte) && !bytes.Contains(id, tokenMark) {
		x.id = id
		return
	}
	x.id = appendRandom(x.idRoom[:0], 2)
}

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
