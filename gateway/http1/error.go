package http1

import (
	"errors"
	"net"
)

// Kind says what went wrong with a message.
type Kind uint8

// The kinds of an Error.
const (
	Malformed      Kind = iota + 1 // it breaks the grammar
	TargetTooLong                  // of a request
	FieldsTooLarge                 // header or trailer fields, by number or by size
	BodyTooLarge
	Busy             // there is no memory for the body now
	UnmetExpectation // Expect asks for something else than 100-continue
	TimedOut         // it did not arrive in time
	Ended            // the connection ended or failed within it
)

// Error is why a message cannot be read. Where one is read from after an Error is not known: the connection has to end.
type Error struct {
	Kind   Kind
	Reason string // for the peer; never holds what the peer sent
	Err    error  // of the connection; nil unless Kind is TimedOut or Ended
}

func (e *Error) Error() string {
	if e.Err != nil {
		return "http1: " + e.Reason + ": " + e.Err.Error()
	}
	return "http1: " + e.Reason
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of an error of this package, and 0 for any other error.
func KindOf(err error) Kind {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Kind
	}
	return 0
}

func malformed(reason string) *Error { return &Error{Kind: Malformed, Reason: reason} }

var (
	errLineEnd        = malformed("a line does not end in CRLF")
	errNotRequest     = malformed("what was sent is not an HTTP request")
	errRequestLine    = malformed("the request line is malformed")
	errVersion        = malformed("the only versions served are HTTP/1.1 and HTTP/1.0")
	errConnect        = malformed("this server is not a proxy: CONNECT is not served")
	errTarget         = malformed("the request target is malformed")
	errTargetPath     = malformed("a target in absolute form needs a path")
	errTargetHost     = malformed("the host of the request target is malformed")
	errQuery          = malformed("the query holds a character that must be percent-encoded")
	errField          = malformed("a header field is malformed")
	errTrailer        = malformed("a trailer field is malformed, or is one that may not stand there")
	errHost           = malformed("there must be exactly one Host, and it must name a host")
	errLength         = malformed("there may be only one Content-Length, and it must be a number")
	errCoding         = malformed("the only Transfer-Encoding that is understood is chunked")
	errLengthAndChunk = malformed("Transfer-Encoding and Content-Length exclude each other")
	errOldCoding      = malformed("HTTP/1.0 does not know Transfer-Encoding")
	errChunkLine      = malformed("a line of the chunked coding is too long")
	errChunkSize      = malformed("the size of a chunk is malformed")
	errChunkEnd       = malformed("a chunk is longer than its size")
	errStatusLine     = malformed("the status line is malformed")
	errInterim        = malformed("too many interim responses")
	errSwitching      = malformed("the protocol was switched without being asked")
	errNoBody         = malformed("a response without content has a length or a coding")

	errTargetTooLong  = &Error{Kind: TargetTooLong, Reason: "the request target is too long"}
	errFieldsTooLarge = &Error{Kind: FieldsTooLarge, Reason: "the header fields are too many or too large"}
	errBodyTooLarge   = &Error{Kind: BodyTooLarge, Reason: "the body is too large"}
	errBusy           = &Error{Kind: Busy, Reason: "there is no memory for the body now"}
	errExpectation    = &Error{Kind: UnmetExpectation, Reason: "the only expectation that can be met is 100-continue"}
)

// failed makes an Error of what a connection returned.
func failed(err error) *Error {
	if t := net.Error(nil); errors.As(err, &t) && t.Timeout() {
		return &Error{Kind: TimedOut, Reason: "the message did not arrive in time", Err: err}
	}
	return &Error{Kind: Ended, Reason: "the connection ended within the message", Err: err}
}
