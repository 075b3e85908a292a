// Package trace continues traces (W3C Trace Context) and exports spans to an OpenTelemetry collector by OTLP over HTTP.
//
// A program decides once, when a request arrives, whether its trace is sampled. A request that is not sampled costs up to three random
// numbers, for IDs, and a comparison: no clock is read, nothing is allocated, and all methods of its nil *Span do nothing. A span of a
// sampled request goes into a queue when it ends. The queue is bounded: nothing waits for the collector. Spans that do not fit, that
// the collector does not take, or that end after Close, are dropped and counted.
//
// Not the SDK of OpenTelemetry: it would replace only the queue, for eight modules and 1.6 MB. Its exporter of OTLP over HTTP imports gRPC,
// and its tracer allocates for each request, also for those that are not sampled.
//
// A Tracer is safe for concurrent use, and a nil Tracer exports nothing. A Span belongs to one goroutine.
package trace

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
)

// TraceID identifies a trace, and SpanID a span in it (W3C Trace Context, section 3.2.2). All zeros mean none.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

// AppendTo appends 32 hexadecimal digits in lower case.
func (id TraceID) AppendTo(dst []byte) []byte { return appendHex(dst, id[:]) }

func (id TraceID) String() string { return hex.EncodeToString(id[:]) }

// Exemplar returns the label by which a histogram names the trace of a request.
func (id TraceID) Exemplar() map[string]string { return map[string]string{"trace_id": id.String()} }

// Context is the place of a request in its trace.
type Context struct {
	Trace     TraceID
	Span      SpanID // the span of this program, and the parent of the programs that it calls
	Parent    SpanID // the span of the caller; zero: none
	Continued bool   // the trace is the caller's, so its tracestate is passed on
	Sampled   bool   // the span is exported, and the programs that this one calls export theirs
	Random    bool   // the last 56 bits of the trace's ID are random
}

// Begin returns the context of a request. traceparent is the value of its header field, or nothing.
//
// The trace continues if the field is valid. A trusted caller decides whether it is sampled. Otherwise the Tracer's ratio decides: for a
// new trace by its ID, so that other programs with a ratio decide in the same way (W3C Trace Context 2, section 3.2.2.3). An untrusted
// caller could choose an ID that is sampled, so its trace is decided by a random number.
//
// A nil Tracer samples nothing of its own. It passes on the context of a trusted caller unchanged: a span that is not exported must
// not be a parent.
func (t *Tracer) Begin(traceparent []byte, trusted bool) Context {
	c, ok := parse(traceparent)
	switch {
	case ok && trusted && t == nil:
		return c
	case ok:
		c.Parent, c.Span = c.Span, newSpanID()
		if !trusted {
			c.Sampled = t.samples(binary.BigEndian.Uint64(c.Span[:]))
		}
		return c
	}
	id := NewTraceID()
	return Context{Trace: id, Span: newSpanID(), Sampled: t.samples(binary.BigEndian.Uint64(id[8:])), Random: true}
}

// NewTraceID returns a random ID.
func NewTraceID() (id TraceID) {
	binary.BigEndian.PutUint64(id[:], newRandom())
	binary.BigEndian.PutUint64(id[8:], newRandom())
	return id
}

// randomBits are the bits of a trace ID that decide: its last 56.
const randomBits = 56

// samples compares the last bits of a random number with the ratio.
func (t *Tracer) samples(random uint64) bool {
	return t != nil && random&(1<<randomBits-1) >= t.threshold
}

// thresholdOf returns the least number that is sampled.
func thresholdOf(ratio float64) uint64 { return uint64((1 - ratio) * (1 << randomBits)) }

// newRandom returns a random number that is not zero. A fast generator is enough, because IDs are not secret.
func newRandom() uint64 {
	for {
		if n := rand.Uint64(); n != 0 {
			return n
		}
	}
}

func newSpanID() (id SpanID) {
	binary.BigEndian.PutUint64(id[:], newRandom())
	return id
}

// AppendTo appends the value of the field traceparent for the programs that this one calls.
func (c *Context) AppendTo(dst []byte) []byte {
	dst = appendHex(append(dst, "00-"...), c.Trace[:])
	dst = appendHex(append(dst, '-'), c.Span[:])
	return append(dst, '-', '0', '0'+c.flags())
}

// appendHex appends raw, whose length is a multiple of 4, as hexadecimal digits in lower case. Each request has up to 80 of them. Package
// hex takes one digit at a time, which costs four times as much.
func appendHex(dst, raw []byte) []byte {
	for ; len(raw) >= 4; raw = raw[4:] {
		n := uint64(binary.LittleEndian.Uint32(raw))
		n = n&0xffff0000<<16 | n&0xffff
		n = n&0x0000ff000000ff00<<8 | n&0x000000ff000000ff            // a byte in each pair of bytes
		n = n&0x000f000f000f000f<<8 | n>>4&0x000f000f000f000f         // a digit in each byte
		letters := (n + 0x0606060606060606) >> 4 & 0x0101010101010101 // 1 in each byte that is a letter
		dst = binary.LittleEndian.AppendUint64(dst, n+0x3030303030303030+letters*('a'-'0'-10))
	}
	return dst
}

// The flags of a trace.
const (
	flagSampled = 1 << iota
	flagRandom
)

func (c *Context) flags() (flags uint8) {
	if c.Sampled {
		flags |= flagSampled
	}
	if c.Random {
		flags |= flagRandom
	}
	return flags
}

// parse reads the value of a field traceparent (W3C Trace Context, section 3.2). Span is the caller's. Upper case is invalid. A later
// version may have more parts after another hyphen.
func parse(field []byte) (c Context, ok bool) {
	const trace, span, flags, end = 3, 36, 53, 55 // where the parts begin
	var version, bits [1]byte
	ok = len(field) >= end && field[trace-1] == '-' && field[span-1] == '-' && field[flags-1] == '-' &&
		decode(version[:], field[:trace-1]) && version[0] != 0xff &&
		(len(field) == end || field[end] == '-' && version[0] != 0) &&
		decode(c.Trace[:], field[trace:span-1]) && c.Trace != TraceID{} &&
		decode(c.Span[:], field[span:flags-1]) && c.Span != SpanID{} &&
		decode(bits[:], field[flags:end])
	if !ok {
		return Context{}, false
	}
	c.Continued, c.Sampled, c.Random = true, bits[0]&flagSampled != 0, bits[0]&flagRandom != 0
	return c, true
}

// IsState reports whether list is the value of a field tracestate (W3C Trace Context 2, section 3.3.1.3): at most 32 members, which may be
// empty. A list that is not must not be passed on. The same key may occur twice.
func IsState(list []byte) bool {
	for range 32 {
		member, rest, isMore := bytes.Cut(list, []byte{','})
		if member = bytes.Trim(member, " \t"); len(member) > 0 {
			key, value, ok := bytes.Cut(member, []byte{'='})
			if !ok || !isStateKey(key) || !isStateValue(value) {
				return false
			}
		}
		if !isMore {
			return true
		}
		list = rest
	}
	return false
}

// stateBytesMax is the length of a key, and of a value.
const stateBytesMax = 256

func isStateKey(key []byte) bool {
	const begins = "abcdefghijklmnopqrstuvwxyz0123456789"
	return len(key) > 0 && len(key) <= stateBytesMax && strings.IndexByte(begins, key[0]) >= 0 && len(bytes.Trim(key, begins+"_-*/@")) == 0
}

func isStateValue(value []byte) bool {
	for _, c := range value {
		if c < ' ' || c > '~' || c == '=' {
			return false
		}
	}
	return len(value) > 0 && len(value) <= stateBytesMax
}

// decode reads hexadecimal digits in lower case.
func decode(dst, digits []byte) bool {
	for _, d := range digits {
		if d >= 'A' && d <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(dst, digits)
	return err == nil
}
