package trace

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit/must"
)

const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
	sampledField = "00-" + callersTrace + "-" + callersSpan + "-01"
	droppedField = "00-" + callersTrace + "-" + callersSpan + "-00"
)

// W3C Trace Context, section 3.2.
func TestTraceparent(t *testing.T) {
	f := func(field string, valid, sampled bool) {
		t.Helper()
		c, ok := parse([]byte(field))
		isCallers := c.Trace.String() == callersTrace
		namesSpan := strings.Contains(string(c.AppendTo(nil)), callersSpan)
		if ok != valid || c.Continued != valid || c.Sampled != sampled || isCallers != valid || namesSpan != valid {
			t.Errorf("%q: %t %+v", field, ok, c)
		}
	}
	f(sampledField, true, true)
	f(droppedField, true, false)
	f("00-"+callersTrace+"-"+callersSpan+"-ff", true, true)
	f("00-"+callersTrace+"-"+callersSpan+"-02", true, false)
	f("cc-"+callersTrace+"-"+callersSpan+"-01-more", true, true)
	f("", false, false)
	f("ff-"+callersTrace+"-"+callersSpan+"-01", false, false)
	f("cc-"+callersTrace+"-"+callersSpan+"-01more", false, false)
	f("00-"+callersTrace+"-"+callersSpan+"-01-more", false, false)
	f("00-"+callersTrace+"-"+callersSpan+"_01", false, false)
	f("0g-"+callersTrace+"-"+callersSpan+"-01", false, false)
	f("00-"+strings.ToUpper(callersTrace)+"-"+callersSpan+"-01", false, false)
	f("00-"+callersTrace+"-"+strings.ToUpper(callersSpan)+"-01", false, false)
	f("00-"+strings.Repeat("0", 32)+"-"+callersSpan+"-01", false, false)
	f("00-"+callersTrace+"-"+strings.Repeat("0", 16)+"-01", false, false)
}

// Only the sampled flag is decided here: the random flag says how the caller made the ID (section
// 3.2.2.5).
func TestRandomFlagIsKept(t *testing.T) {
	for _, c := range []struct{ flags, sampled, dropped string }{
		{"00", "01", "00"}, {"01", "01", "00"}, {"02", "03", "02"}, {"03", "03", "02"}, {"fe", "03", "02"}, {"fd", "01", "00"},
	} {
		field := []byte("00-" + callersTrace + "-" + callersSpan + "-" + c.flags)
		for tracer, want := range map[*Tracer]string{tracerOf(1): c.sampled, tracerOf(0): c.dropped} {
			place := tracer.Begin(field, false)
			if next := string(place.AppendTo(nil)); !strings.HasSuffix(next, "-"+want) {
				t.Errorf("flags %s became %s, want %s", c.flags, next, want)
			}
		}
	}
}

func tracerOf(ratio float64) *Tracer { return &Tracer{threshold: thresholdOf(ratio)} }

// Who decides whether a request is sampled, and what the next program gets.
func TestBegin(t *testing.T) {
	f := func(name string, tracer *Tracer, field string, trusted, sampled, continued, keepsSpan bool) {
		t.Helper()
		for range 100 {
			c := tracer.Begin([]byte(field), trusted)
			next := string(c.AppendTo(nil))
			parent := "0000000000000000"
			if continued && !keepsSpan {
				parent = callersSpan
			}
			flags := "-0" + map[bool]string{false: "0", true: "1"}[sampled]
			if !continued { // its ID is random
				flags = "-0" + map[bool]string{false: "2", true: "3"}[sampled]
			}
			_, ok := parse([]byte(next))
			isDecided := c.Sampled == sampled && c.Continued == continued && strings.HasSuffix(next, flags)
			if !ok || !isDecided || strings.Contains(next, callersTrace) != continued ||
				strings.Contains(next, callersSpan) != keepsSpan ||
				hex.EncodeToString(c.Parent[:]) != parent {
				t.Fatalf("%s: %+v, %s", name, c, next)
			}
		}
	}
	all, none := tracerOf(1), tracerOf(0)
	f("new, all", all, "", false, true, false, false)
	f("new, none", none, "", false, false, false, false)
	f("new, off", nil, "", false, false, false, false)
	f("a client's flag does not sample", none, sampledField, false, false, true, false)
	f("a client's flag does not unsample", all, droppedField, false, true, true, false)
	f("a trusted flag samples", none, sampledField, true, true, true, false)
	f("a trusted flag unsamples", all, droppedField, true, false, true, false)
	alone := &Tracer{threshold: thresholdOf(0), ignoresCallers: true}
	f("a trusted flag does not count", alone, sampledField, true, false, true, false)
	f("a trusted caller with no valid trace", none, "evil", true, false, false, false)
	f("a trusted trace passes a program without traces", nil, sampledField, true, true, true, true)
	f("a client's flag does not sample in a program without traces", nil, sampledField, false, false, true, false)
}

// The highest ID is sampled at every ratio above 0. A client that sends it is sampled no more than
// others: here once in 10¹².
func TestClientCannotChooseASampledID(t *testing.T) {
	tracer := tracerOf(1e-12)
	for range 100 {
		if c := tracer.Begin([]byte("00-"+strings.Repeat("f", 32)+"-"+callersSpan+"-01"), false); c.Sampled {
			t.Fatalf("%+v", c)
		}
	}
}

// The ratio is a threshold for the last 56 bits of the ID.
func TestRatio(t *testing.T) {
	for ratio, least := range map[float64]uint64{1: 0, .75: 1 << 54, .5: 1 << 55, .25: 3 << 54, 0: 1 << 56} {
		tracer := tracerOf(ratio)
		must.Equal(t, tracer.threshold, least, "%v", ratio)
		const other = 0xab << randomBits // bits that do not decide
		if least < 1<<56 && !tracer.samples(other|least) || least > 0 && tracer.samples(other|least-1) ||
			least == 1<<56 && tracer.samples(1<<56-1) {
			t.Errorf("%v: the threshold is not where it should be", ratio)
		}
	}
}

// A request that is not sampled allocates nothing.
func TestUnsampledCostsNothing(t *testing.T) {
	field, buf := []byte(sampledField), make([]byte, 0, 64)
	for _, tracer := range []*Tracer{nil, tracerOf(0)} {
		n := testing.AllocsPerRun(100, func() {
			c := tracer.Begin(field, false)
			buf = c.AppendTo(buf[:0])
			span := tracer.Start(&c, time.Time{})
			span.Set("a", "b")
			span.EndRequest(Request{}, time.Time{})
			span.End(time.Time{})
		})
		must.Equal(t, n, 0, "allocations")
	}
}

// A request of a client that sends a trace, at ratio 0.
func BenchmarkUnsampled(b *testing.B) {
	tracer, field, buf := tracerOf(0), []byte(sampledField), make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		c := tracer.Begin(field, false)
		buf = c.AppendTo(buf[:0])
		span := tracer.Start(&c, time.Time{})
		span.EndRequest(Request{}, time.Time{})
	}
}
