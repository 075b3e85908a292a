package quota

import (
	"encoding/binary"
	"errors"
	"fmt"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
)

// Record is one tenant's use. The zero value is a tenant that has never asked. The methods of Rule read and change it.
type Record struct {
	summary
	ring []uint32 // uses of the slices from oldest to newest-1, at the index slice % Slices; other elements are stale
}

// summary is what most decisions need: everything but the ring.
type summary struct {
	at      int64  // the latest slice in which a decision was made
	newest  int64  // the latest slice in the window that has use
	oldest  int64  // the first slice in the window that has use; the same as newest if no slice has use
	count   uint32 // use of the slice newest
	dayUsed uint32 // use of the day in which the slice at lies
	sum     int64  // use of all slices in the window
}

// The binary form, little-endian, which the Redis script shares: the ring, then the summary. The summary comes last,
// so one read checks the length of the whole record: it asks for the summary and one byte more, and must get only the summary.
const (
	SummaryBytes = 44

	version    = 0x32677470 // "ptg2"
	countBytes = 4
)

// RecordBytes is the length of a record's binary form.
func (r Rule) RecordBytes() int { return r.Slices*countBytes + SummaryBytes }

// Append appends rec's binary form.
func (r Rule) Append(dst []byte, rec *Record) []byte {
	for slot := range r.Slices {
		var count uint32
		if rec.ring != nil {
			count = rec.ring[slot]
		}
		dst = binary.LittleEndian.AppendUint32(dst, count)
	}
	dst = binary.LittleEndian.AppendUint32(dst, version)
	for _, slice := range [...]int64{rec.at, rec.newest, rec.oldest} {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(slice))
	}
	dst = binary.LittleEndian.AppendUint32(dst, rec.count)
	dst = binary.LittleEndian.AppendUint32(dst, rec.dayUsed)
	return binary.LittleEndian.AppendUint64(dst, uint64(rec.sum))
}

// Decode reads what Append wrote. The error says why src is not a record of this rule.
func (r Rule) Decode(src []byte) (rec Record, err error) {
	if len(src) != r.RecordBytes() {
		return rec, fmt.Errorf("a quota record of %d bytes, want %d", len(src), r.RecordBytes())
	}
	ring := src[:r.Slices*countBytes]
	if rec.summary, err = decodeSummary(src[len(ring):]); err != nil {
		return rec, err
	}
	window := int64(r.Slices)
	if rec.newest > rec.at || rec.oldest > rec.newest || rec.oldest < max(0, rec.newest-window) ||
		rec.sum > 0 && rec.newest < rec.at-window {
		return Record{}, errors.New("a quota record whose slices are in disorder")
	}
	rec.ring = make([]uint32, r.Slices)
	for slot := range rec.ring {
		rec.ring[slot] = binary.LittleEndian.Uint32(ring[slot*countBytes:])
	}
	if sum := r.sumOf(&rec); sum != rec.sum {
		return Record{}, fmt.Errorf("a quota record whose sum is %d and whose counts add up to %d", rec.sum, sum)
	}
	return rec, nil
}

// sumOf adds up the counts of the window. The release of slices subtracts exactly these counts from the sum, so a record with
// another sum would never become empty.
func (r Rule) sumOf(rec *Record) (sum int64) {
	if rec.sum == 0 {
		return 0 // the counts are stale
	}
	for slice := rec.oldest; slice <= rec.newest; slice++ {
		sum += int64(r.countOf(rec, slice))
	}
	return sum
}

func decodeSummary(src []byte) (s summary, err error) {
	if len(src) != SummaryBytes {
		return s, fmt.Errorf("a quota summary of %d bytes, want %d", len(src), SummaryBytes)
	}
	if v := binary.LittleEndian.Uint32(src); v != version {
		return s, fmt.Errorf("a quota record of version %08x, want %08x", v, version)
	}
	s = summary{
		at:      int64(binary.LittleEndian.Uint64(src[4:])),
		newest:  int64(binary.LittleEndian.Uint64(src[12:])),
		oldest:  int64(binary.LittleEndian.Uint64(src[20:])),
		count:   binary.LittleEndian.Uint32(src[28:]),
		dayUsed: binary.LittleEndian.Uint32(src[32:]),
		sum:     int64(binary.LittleEndian.Uint64(src[36:])),
	}
	return s, nil
}

// Verdict returns the verdict of a decision that was made elsewhere. src is the record's summary after it. retrySlice is the
// slice whose release brings the minute's usage under its limit, if it is not under the limit already.
func (r Rule) Verdict(src []byte, now instant.Millis, limits plan.Limits, granted, retrySlice int64) (Verdict, error) {
	s, err := decodeSummary(src)
	if err != nil {
		return Verdict{}, err
	}
	return r.verdict(&s, now, limits, granted, retrySlice), nil
}

// VerdictFrom is Verdict with a src from before the decision. The decision then charged the
// granted requests, within the limits, to the record's current slice, which is also its newest.
func (r Rule) VerdictFrom(src []byte, now instant.Millis, limits plan.Limits, granted int64) (Verdict, error) {
	s, err := decodeSummary(src)
	if err != nil {
		return Verdict{}, err
	}
	s.count += uint32(granted)
	s.dayUsed += uint32(granted)
	s.sum += granted
	return r.verdict(&s, now, limits, granted, s.oldest), nil
}

// IsUnused reports whether rec counts nothing, so that it can be dropped.
func (rec *Record) IsUnused() bool { return rec.sum == 0 && rec.dayUsed == 0 }

// ExpiresAt is when rec may be dropped: its day and its window are over, even on a clock that is behind by Ahead.
func (r Rule) ExpiresAt(rec *Record) instant.Millis {
	return instant.Millis((r.day(rec.at) + 1) * r.Day.Milliseconds()).Add(r.Window() + r.Slice + Ahead)
}
