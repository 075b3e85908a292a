package background_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"petgate/shared/background"
)

// Stop ends what runs and waits for it. Nothing begins afterwards.
func TestStopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var group background.Group
		ended := 0
		group.Go(func(ctx context.Context) {
			for background.Pause(ctx, time.Minute) {
			}
			time.Sleep(time.Second)
			ended++
		})
		synctest.Wait()
		if group.Context().Err() != nil {
			t.Error("the context has ended before Stop")
		}
		group.Stop()
		group.Go(func(context.Context) { ended++ })
		group.Stop()
		if synctest.Wait(); ended != 1 || group.Context().Err() == nil {
			t.Errorf("%d goroutines have ended, want 1; the context: %v", ended, group.Context().Err())
		}
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		if !background.Pause(ctx, time.Minute) || time.Since(begun) != time.Minute {
			t.Errorf("a pause of a minute took %v", time.Since(begun))
		}
		time.AfterFunc(time.Second, cancel)
		begun = time.Now()
		if background.Pause(ctx, time.Minute) || time.Since(begun) != time.Second {
			t.Errorf("a pause whose context ends after a second took %v", time.Since(begun))
		}
	})
}

// A group that has never run anything can be stopped.
func TestEmptyGroup(*testing.T) {
	var group background.Group
	group.Stop()
}
