package http1

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// A body keeps its bytes while it grows, and after Reset it holds no more memory than a small buffer.
func TestBodyGrows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var b Body
	for _, length := range []int{10, 1000, 40 << 10, PartBytesMax, 20} {
		want := make([]byte, length)
		for i := range want {
			want[i] = byte(random.Uint32())
		}
		for left := want; len(left) > 0; {
			n := min(len(left), 1+random.IntN(max(1024, len(b.Bytes))))
			b.grow(n)
			b.Bytes = append(b.Bytes, left[:n]...)
			left = left[n:]
		}
		if !bytes.Equal(b.Bytes, want) {
			t.Errorf("%d bytes are not what was read", length)
		}
		if b.Reset(); len(b.Bytes) != 0 || cap(b.Bytes) > PartBytesMax || cap(b.Bytes) == 0 {
			t.Errorf("after %d bytes: %d bytes in a buffer of %d", length, len(b.Bytes), cap(b.Bytes))
		}
	}
}

// A body gives back what it took of the budget, whatever its parts were.
func TestBodiesAreCharged(t *testing.T) {
	budget := NewBudget(1 << 20)
	var b Body
	for _, c := range []struct{ bytes, used int64 }{{10, 10}, {PartBytesMax, PartBytesMax}, {1000, PartBytesMax}} {
		if !b.hold(int(c.bytes), budget) || budget.Used() != c.used {
			t.Errorf("%d bytes: %d are charged, want %d", c.bytes, budget.Used(), c.used)
		}
	}
	if b.Reset(); budget.Used() != 0 {
		t.Errorf("%d bytes are charged after Reset", budget.Used())
	}
}
