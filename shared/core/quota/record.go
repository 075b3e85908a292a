package quota

import (
	"encoding/binary"
	"errors"
	"fmt"

	"petgate/shared/core/instant"
)

// Record is one tenant's use. The zero value is a tenant that has never asked. The methods of Rule
// read and change it.
type Record struct {
	summary
	// ring has the use of the slices from oldest to newest-1, at the index slice % Slices. Its
	// other elements are stale.
	ring []uint32
}

// summary is what most decisions need: everything but the ring.
type summary struct {
	at      int64  // the latest slice in which a decision was made
	newest  int64  // the latest slice in the window that has use
	oldest  int64  // the first slice in the window that has use; the same as newest if no slice has use
	count   uint32 // use of the slice newest
	dayUsed uint32 // use of the day in which the slice at lies
	before  uint32 // use of the month before that day
	// monthEnds is the first day after the month, in days since the Unix epoch; 0: the record
	// counts no month.
	monthEnds uint32
	sum       int64 // use of all slices in the window
}

// used is the use of each policy.
func (s *summary) used() [Month + 1]int64 {
	return [...]int64{s.sum, int64(s.dayUsed), int64(s.before) + int64(s.dayUsed)}
}

// The binary form, little-endian, which the Redis script shares: the ring, then the summary, then
// the month if the record counts one. In Redis, the batches that charged the record are between the
// summary and the month.
const (
	SummaryBytes = 44
	MonthBytes   = 8

	version    = 0x32677470 // "ptg2"
	countBytes = 4
)

// RecordBytes is the length of a record's binary form, without the month.
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
	dst = binary.LittleEndian.AppendUint64(dst, uint64(rec.sum))
	if rec.monthEnds == 0 {
		return dst
	}
	dst = binary.LittleEndian.AppendUint32(dst, rec.monthEnds)
	return binary.LittleEndian.AppendUint32(dst, rec.before)
}

// Decode reads what Append wrote. The error says why src is not a record of this rule.
func (r Rule) Decode(src []byte) (rec Record, err error) {
	short := r.RecordBytes()
	long := short + MonthBytes
	if len(src) != short && len(src) != long {
		return rec, fmt.Errorf("a quota record of %d bytes, want %d, or %d with a month", len(src), short, long)
	}
	ring := src[:r.Slices*countBytes]
	if rec.summary, err = decodeSummary(src[len(ring):short], src[short:]); err != nil {
		return rec, err
	}
	window := int64(r.Slices)
	isOrdered := max(0, rec.newest-window) <= rec.oldest && rec.oldest <= rec.newest && rec.newest <= rec.at
	isPast := rec.newest < rec.at-window // nothing of the ring is in the window
	if !isOrdered || isPast && rec.sum > 0 {
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

// sumOf adds up the counts of the window. The release of slices subtracts exactly these counts from
// the sum, so a record with another sum would never become empty.
func (r Rule) sumOf(rec *Record) (sum int64) {
	if rec.sum == 0 {
		return 0 // the counts are stale
	}
	for slice := rec.oldest; slice <= rec.newest; slice++ {
		sum += int64(r.countOf(rec, slice))
	}
	return sum
}

func decodeSummary(src, month []byte) (s summary, err error) {
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
	if len(month) > 0 {
		s.monthEnds, s.before = binary.LittleEndian.Uint32(month), binary.LittleEndian.Uint32(month[4:])
	}
	return s, nil
}

// Verdict returns the verdict of a decision on d that was made elsewhere. src is the record's
// summary after it, and month is its month or empty. retrySlice is the slice whose release lets the
// minute admit one more request, if it does not do so already.
//
// If lacked is not 0, src is from before the decision, which charged that many units to the
// record's newest slice. The oldest slice is then retrySlice.
func (r Rule) Verdict(
	src, month []byte, now instant.Millis, d *Demand, granted, retrySlice, lacked int64,
) (v Verdict, err error) {
	s, err := decodeSummary(src, month)
	if err != nil {
		return v, err
	}
	if lacked != 0 {
		s.count += uint32(lacked)
		s.dayUsed += uint32(lacked)
		s.sum += lacked
		retrySlice = s.oldest
	}
	b := d.bounds()
	r.describe(&v, &s, now, &b, granted, retrySlice)
	return v, nil
}

// IsUnused reports whether rec counts nothing, so that it can be dropped.
func (rec *Record) IsUnused() bool { return rec.sum == 0 && rec.dayUsed == 0 && rec.before == 0 }

// ExpiresAt is when rec may be dropped: its day, its month and its window are over, even on a clock
// that is behind by Ahead.
func (r Rule) ExpiresAt(rec *Record) instant.Millis {
	lastDay := max(r.day(rec.at)+1, int64(rec.monthEnds))
	return instant.Millis(lastDay * r.Day.Milliseconds()).Add(r.Window() + r.Slice + Ahead)
}
