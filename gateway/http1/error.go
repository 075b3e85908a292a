package http1

import (
	"errors"
	"net"
)

// Kind says what went wrong with a message.
type Kind uint8

// The kinds of an Error.
const (
	Malformed      Kind = iota + 1 // against the grammar
	TargetTooLong                  // of a request
	FieldsTooLarge                 // header or trailer fields, by number or by size
	BodyTooLarge
	Busy             // there is no memory for the message at the moment
	UnmetExpectation // Expect is not 100-continue
	TimedOut         // the message did not arrive in time
	Ended            // the connection ended or failed during the message
)

// Error says why a message cannot be read. After an Error, the start of the next message is
// unknown, so the connection must be closed.
type Error struct {
	Kind   Kind
	Reason string // for the peer; it never contains what the peer sent
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
	errNotRequest     = malformed("the bytes are not an HTTP request")
	errRequestLine    = malformed("the request line is malformed: it must have a method, a target and HTTP/1.1")
	errVersion        = malformed("the HTTP version is not supported: use HTTP/1.1 or HTTP/1.0")
	errConnect        = malformed("CONNECT is not supported: this server is not a forward proxy")
	errTarget         = malformed("the request target is malformed")
	errTargetPath     = malformed("a target in absolute form needs a path")
	errTargetHost     = malformed("the host of the request target is malformed")
	errQuery          = malformed("the query contains a character that must be percent-encoded")
	errField          = malformed("a header field is malformed")
	errTrailer        = malformed("a trailer field is malformed or not allowed")
	errHost           = malformed("there must be exactly one valid Host field")
	errLength         = malformed("there may be only one Content-Length, and it must be a whole number")
	errCoding         = malformed("the only supported Transfer-Encoding is chunked")
	errLengthAndChunk = malformed("a message must not have both Transfer-Encoding and Content-Length")
	errOldCoding      = malformed("Transfer-Encoding is not allowed in HTTP/1.0")
	errChunkLine      = malformed("a chunk line is too long")
	errChunkSize      = malformed("the size of a chunk is malformed")
	errChunkEnd       = malformed("a chunk is longer than its size")
	errStatusLine     = malformed("the status line is malformed")
	errInterim        = malformed("too many interim responses")
	errSwitching      = malformed("the upstream switched protocols without a request to do so")
	errNoBody         = malformed("a response that cannot have content has a length or a transfer coding")

	errTargetTooLong  = &Error{Kind: TargetTooLong, Reason: "the request target is too long"}
	errFieldsTooLarge = &Error{Kind: FieldsTooLarge, Reason: "there are too many header fields, or they are too large"}
	errBodyTooLarge   = &Error{Kind: BodyTooLarge, Reason: "the body is too large"}
	errStopped        = &Error{Kind: Ended, Reason: "the rest of the body is not needed"}
	errBusy           = &Error{Kind: Busy, Reason: "there is no memory for the body at the moment"}
	errBusyHeads      = &Error{Kind: Busy, Reason: "there is no memory for the header section at the moment"}
	errExpectation    = &Error{Kind: UnmetExpectation, Reason: "the only supported expectation is 100-continue"}
)

// failed turns an error of a connection into an Error.
func failed(err error) *Error {
	if t := net.Error(nil); errors.As(err, &t) && t.Timeout() {
		return &Error{Kind: TimedOut, Reason: "the message did not arrive in time", Err: err}
	}
	return &Error{Kind: Ended, Reason: "the connection ended during the message", Err: err}
}
