package operate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"petgate/shared/keystore"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := Sleep(t.Context(), time.Minute); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("sleep = %v after %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		if err := Sleep(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("interrupted sleep = %v after %v", err, time.Since(begin))
		}
	})
}

// All laggards refuse every call only when the one with the longest maximum age does.
func TestCureWaitsForTheLongestAge(t *testing.T) {
	const silent = 5000
	p := Progress{Laggards: []keystore.Gateway{{Age: silent, MaxAge: 60_000}, {Age: silent, MaxAge: 10_000}}}
	if forget, fenced := p.Cure(); forget != nil || fenced != p.Laggards[0].FenceAfter() {
		t.Errorf("forget %v, fenced after %v", forget, fenced)
	}
}
