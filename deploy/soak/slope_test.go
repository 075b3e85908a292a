package soak

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A leak is reported. Noise, a sawtooth and a step of the size of the resolution are not.
func TestSlope(t *testing.T) {
	f := func(name string, grows bool, resolution float64, value func(minute float64) float64) {
		t.Helper()
		var s series
		for at := time.Duration(0); at < 30*time.Minute; at += 2 * time.Second {
			s.add(at, value(at.Minutes()))
		}
		got, ok := s.slope(resolution)
		if !ok || got.grows() != grows {
			t.Errorf("%s: %+v grows: %t, want %t", name, got, got.grows(), grows)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(size float64) float64 { return size * random.NormFloat64() }
	f("flat", false, 0.1, func(float64) float64 { return 40 })
	f("noise", false, 0.1, func(float64) float64 { return 40 + noise(5) })
	f("a sawtooth", false, 0.1, func(minute float64) float64 { return 40 + float64(int(minute*10)%7) })
	f("a leak of 1 in an hour", true, 0.1, func(minute float64) float64 { return 40 + minute/60 })
	f("a leak of 6 in an hour under noise", true, 0.1, func(minute float64) float64 { return 40 + minute/10 + noise(0.5) })
	f("less than the resolution", false, 1, func(minute float64) float64 { return 40 + minute/60 })
	f("falling", false, 0.1, func(minute float64) float64 { return 40 - minute/10 })
	if _, ok := new(series).slope(1); ok {
		t.Error("no samples have a slope")
	}
}
