package edge

import (
	"errors"
	"io"
	"time"

	"petgate/gateway/upstream"
	"petgate/shared/core/instant"
)

// An exchange is the source of the upstream's request, and the rest of the client's response. With both, bodies of more than
// http1.PartBytesMax pass through in parts: the gateway reads the next part when it has written the last one.

// Head implements upstream.Source.
func (x *exchange) Head(host string) []byte {
	x.sent = x.edge.appendRequest(x.sent[:0], x, host)
	return x.sent
}

// More implements upstream.Source. It fails if the key may not call any more: so the upstream does not get the end of the request. It runs
// beside the response, and changes nothing that the response reads.
func (x *exchange) More() ([]byte, error) {
	if !x.Body.IsComplete() {
		if x.broken = x.Conn.ReadPart(&x.Body); x.broken != nil {
			return nil, x.broken
		}
		x.isWhole.Store(x.Body.IsComplete())
	} else if x.Body.Bytes = x.Body.Bytes[:0]; !x.sending.IsChunked { // the upstream has the end
		return nil, io.EOF
	}
	switch {
	case x.edge.standing(x).isRefused():
		return nil, errEnded
	case len(x.Body.Bytes) == 0:
		return nil, io.EOF
	}
	return x.Body.Bytes, nil
}

// errEnded ends a body. The client does not see it.
var errEnded = errors.New("edge: the key has ended")

// Stop implements upstream.Source. A client whose body has been read whole may send its next request.
func (x *exchange) Stop() {
	if !x.isWhole.Load() {
		x.Conn.StopReading()
	}
}

// Next implements front.Rest. The response ends with the key, but not with a ban: that is for further requests. A stream of events also
// ends when the gateway shuts down: it has no end to wait for.
func (x *exchange) Next() ([]byte, error) {
	if x.response.Body.IsComplete() {
		return nil, io.EOF
	}
	if err := x.await(); err != nil {
		x.refusal.reason = upstreamFailed
		if errors.Is(err, upstream.ErrTimeout) {
			x.refusal.reason = upstreamTimeout
		}
		return nil, err
	}
	if r := x.edge.standing(x); r.isRefused() && r.reason != keyBanned {
		x.refusal = r
		return nil, errEnded
	}
	if x.Conn.ServerEnds() && x.response.IsEventStream() {
		return nil, errEnded
	}
	return x.response.Body.Bytes, nil
}

// await reads the next part of the response. A stream of events may be silent for as long as a connection without a request. Then the
// gateway looks every second whether the client still waits for it.
func (x *exchange) await() error {
	wait, most := x.edge.cfg.UpstreamTimeout, x.edge.cfg.UpstreamTimeout
	if x.response.IsEventStream() {
		wait, most = time.Second, x.edge.cfg.IdleTimeout
	}
	for silent := time.Duration(0); silent < most; silent += wait {
		if err := x.sending.Next(&x.response, wait); !errors.Is(err, upstream.ErrTimeout) {
			return err
		}
		if x.response.IsEventStream() && !x.sending.IsSending() && x.Conn.Ends() {
			return errEnded
		}
	}
	return upstream.ErrTimeout
}

// End implements front.Rest.
func (x *exchange) End() {
	x.edge.release(x)
	x.edge.conclude(x)
}

// standing returns why the key of a request that is under way may not call any more. Unlike again, it changes nothing.
func (e *Edge) standing(x *exchange) refusal {
	if x.isPublic {
		return refusal{}
	}
	now := instant.Of(e.deps.Clock())
	if !e.deps.Directory.Fresh(now) {
		return refusal{reason: directoryUnavailable}
	}
	entry, isKnown := e.deps.Directory.Lookup(x.hash)
	if !isKnown {
		return refusal{reason: invalidKey}
	}
	return refusals[e.why(&entry, x.client, now)]
}
