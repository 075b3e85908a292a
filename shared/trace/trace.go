// Package trace continues traces (W3C Trace Context) and exports spans to an OpenTelemetry
// collector by OTLP over HTTP.
//
// A program decides once, when a request arrives, whether its trace is sampled. A request that is
// not sampled costs up to three random numbers, for IDs, and a comparison: no clock is read,
// nothing is allocated, and all methods of its nil *Span do nothing. The SDK of OpenTelemetry
// allocates also for such a request, so it gets only those that are sampled: it holds their spans,
// queues them when they end, and gives them to an exporter in batches. The queue is bounded:
// nothing waits for the collector. Spans that do not fit, that the collector does not take, or that
// end after Close, are dropped and counted.
//
// The exporter is our own, over OpenTelemetry's messages: the one for OTLP over HTTP imports gRPC.
//
// A Tracer is safe for concurrent use, and a nil Tracer exports nothing. A Span belongs to one
// goroutine.
package trace

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
)

// TraceID identifies a trace, and SpanID a span in it (W3C Trace Context, section 3.2.2). All zeros
// mean none.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

// AppendTo appends 32 hexadecimal digits in lower case.
func (id TraceID) AppendTo(dst []byte) []byte { return hex.AppendEncode(dst, id[:]) }

func (id TraceID) String() string { return hex.EncodeToString(id[:]) }

// Exemplar returns the label by which a histogram names the trace of a request.
func (id TraceID) Exemplar() map[string]string { return map[string]string{"trace_id": id.String()} }

// Context is the place of a request in its trace.
type Context struct {
	Trace     TraceID
	Span      SpanID // the span of this program, and the parent of the programs that it calls
	Parent    SpanID // the span of the caller; zero: none
	Continued bool   // the trace is the caller's: its tracestate is passed on unread (section 4.3)
	Sampled   bool   // the span is exported, and the programs that this one calls export theirs
	Random    bool   // the last 56 bits of the trace's ID are random
}

// Begin returns the context of a request. traceparent is the value of its header field, or nothing.
//
// The trace continues if the field is valid. A trusted caller decides whether it is sampled, unless
// the settings say otherwise.
// Otherwise the Tracer's ratio decides: for a new trace by its ID, so that other programs with a
// ratio decide in the same way (W3C Trace Context 2, section 3.2.2.3). An untrusted caller could
// choose an ID that is sampled, so its trace is decided by a random number.
//
// A nil Tracer samples nothing of its own. It passes on the context of a trusted caller unchanged:
// a span that is not exported must not be a parent.
func (t *Tracer) Begin(traceparent []byte, trusted bool) Context {
	c, ok := parse(traceparent)
	switch {
	case ok && trusted && t == nil:
		return c
	case ok:
		c.Parent, c.Span = c.Span, newSpanID()
		if !trusted || t.ignoresCallers {
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

// newRandom returns a random number that is not zero. A fast generator is enough, because IDs are
// not secret.
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
	dst = hex.AppendEncode(append(dst, "00-"...), c.Trace[:])
	dst = hex.AppendEncode(append(dst, '-'), c.Span[:])
	return append(dst, '-', '0', '0'+c.flags())
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

// parse reads the value of a field traceparent (W3C Trace Context, section 3.2). Span is the
// caller's. Upper case is invalid. A later version may have more parts after another hyphen.
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
