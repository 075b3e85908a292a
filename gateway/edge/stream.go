package edge

import (
	"errors"
	"io"
	"time"

	"petgate/gateway/upstream"
)

// An exchange is both an upstream.Source, for the request, and a front.Rest, for the response. So
// bodies of more than http1.PartBytesMax pass through in parts: the gateway reads the next part
// when it has written the last one.

// Head implements upstream.Source.
func (x *exchange) Head(host string) []byte {
	x.sent = x.edge.appendRequest(x.sent[:0], x, host)
	return x.sent
}

// More implements upstream.Source. It fails if the key has lost the right to call: the upstream
// must not get the end of the request. It runs beside the response, and changes nothing that the
// response reads.
func (x *exchange) More() (part []byte, err error) {
	defer func() {
		if panicked := recover(); panicked != nil { // in a goroutine of its own it would end the process
			x.edge.logPanic(x, panicked)
			part, err = nil, errPanicked
		}
	}()
	if !x.Body.IsComplete() {
		if err := x.Conn.ReadPart(&x.Body); err != nil {
			return nil, err
		}
		x.isWhole.Store(x.Body.IsComplete())
	} else {
		x.Body.Bytes = x.Body.Bytes[:0]
		if !x.sending.IsChunked { // the upstream has the end
			return nil, io.EOF
		}
	}
	switch {
	case x.edge.standing(x).isRefused():
		return nil, errEnded
	case len(x.Body.Bytes) == 0:
		return nil, io.EOF
	}
	return x.Body.Bytes, nil
}

// Why bodies end early. The client does not see it.
var (
	errEnded    = errors.New("edge: the key has ended, or nobody reads the response")
	errPanicked = errors.New("edge: a panic")
)

// Stop implements upstream.Source. A client whose body has been read whole may send its next
// request.
func (x *exchange) Stop() {
	if !x.isWhole.Load() {
		x.Conn.StopReading()
	}
}

// Next implements front.Rest. The response ends with the key, but not with a ban: that is for
// further requests.
//
// A stream of events may be silent for as long as a connection without a request. It has no end to
// wait for, so every second the gateway looks whether the key may still call and the client still
// waits. It also ends when the gateway shuts down.
func (x *exchange) Next() ([]byte, error) {
	if x.received.Body.IsComplete() {
		return nil, io.EOF
	}
	isStream := x.received.IsEventStream()
	wait, most := x.edge.cfg.UpstreamTimeout, x.edge.cfg.UpstreamTimeout
	if isStream {
		wait, most = time.Second, x.edge.cfg.IdleTimeout
	}
	began := time.Now()
	for {
		err := x.sending.Next(&x.received, wait)
		isSilent := errors.Is(err, upstream.ErrTimeout)
		if r := x.edge.standing(x); r.isRefused() && r.reason != keyBanned {
			x.refusal = r
			return nil, errEnded
		}
		if isStream && (x.Conn.ServerEnds() || isSilent && x.hasLeft()) {
			return nil, errEnded
		}
		switch {
		case isSilent && time.Since(began) < most:
			continue
		case isSilent:
			x.refusal.reason = upstreamTimeout
		case err != nil:
			x.refusal.reason = upstreamFailed
		}
		return x.received.Body.Bytes, err
	}
}

// hasLeft reports whether the client has gone. That is unknown while another goroutine reads its
// request.
func (x *exchange) hasLeft() bool { return !x.sending.IsSending() && x.Conn.Ends() }

// End implements front.Rest.
func (x *exchange) End() {
	x.edge.release(x)
	x.edge.conclude(x)
}
