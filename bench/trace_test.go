package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The functions in which a goroutine of the gateway waits, from the innermost one on.
const (
	forClient   = "internal/poll.runtime_pollWait petgate/gateway/http1.(*Conn).Await"
	forUpstream = "internal/poll.runtime_pollWait petgate/gateway/upstream.(*conn).send petgate/gateway/edge.(*Edge).forward"
	forRedis    = "runtime.chanrecv1 petgate/gateway/quotas/redis.(*batcher).take"
)

// move is the text of a change of goroutine 7's state, at an instant in µs.
func move(at int, states, reason, stack string) string {
	text := fmt.Sprintf("M=1 P=0 G=7 StateTransition Time=%d GoID=7 %s Reason=%q\n", at*1000, states, reason)
	for _, heading := range []string{"TransitionStack=\n", "Stack=\n"} {
		text += heading
		for function := range strings.FieldsSeq(stack) {
			text += "\t" + function + " @ 0x1\n\t\t/gateway/upstream.go:1\n"
		}
	}
	return text
}

func TestReadTrace(t *testing.T) {
	text := strings.Join([]string{
		"M=-1 P=-1 G=-1 Sync Time=0 N=1\n",
		strings.ReplaceAll(move(1, "Running->Waiting", "", "runtime.selectgo"), "GoID=7", "GoID=8"),
		strings.ReplaceAll(move(20, "Runnable->Running", "", ""), "GoID=7", "GoID=8"),
		move(1, "Running->Waiting", "network", forClient), // before that, a part of a request may have run
		move(5, "Waiting->Waiting", "", ""),               // a new part of the trace has begun
		move(10, "Waiting->Runnable", "", ""),
		move(12, "Runnable->Running", "", ""),
		move(15, "Running->Waiting", "chan receive", forRedis),
		move(35, "Waiting->Runnable", "", ""),
		move(36, "Runnable->Running", "", ""),
		"M=2 P=1 G=9 RangeBegin Time=37000 Name=\"stop-the-world (GC sweep termination)\" Scope=none\n",
		move(40, "Running->Waiting", "sync", "sync.(*Mutex).Lock petgate/gateway/upstream.(*host).enter"),
		"M=2 P=1 G=9 RangeEnd Time=41000 Name=\"stop-the-world (GC sweep termination)\" Scope=none Attributes=[]\n",
		move(47, "Waiting->Runnable", "", ""),
		move(47, "Runnable->Running", "", ""),
		move(50, "Running->Waiting", "network", forUpstream),
		move(90, "Waiting->Runnable", "", ""),
		move(95, "Runnable->Running", "", ""),
		move(99, "Running->Waiting", "network", forClient),
		move(200, "Waiting->Runnable", "", ""), // and the next one follows without a wait: both are left out
		move(201, "Runnable->Running", "", ""),
		move(202, "Running->Waiting", "network", forUpstream),
		move(203, "Waiting->Runnable", "", ""),
		move(204, "Runnable->Running", "", ""),
		move(205, "Running->Waiting", "network", forUpstream),
		move(206, "Waiting->Runnable", "", ""),
		move(207, "Runnable->Running", "", ""),
		move(208, "Running->Waiting", "network", forClient),
		strings.ReplaceAll(move(1920, "Running->Waiting", "", "runtime.selectgo petgate/gateway/directory.(*Directory).flushUsage main.main"), "GoID=7", "GoID=8"),
	}, "")
	e, err := readTrace(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	micros := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	want := traced{began: micros(10), ended: micros(99)}
	want.spent[running], want.spent[ready] = micros(3+4+3+4), micros(2+1+5)
	want.spent[redis], want.spent[lock], want.spent[upstream] = micros(20), micros(7), micros(40)
	other := slice{"petgate/gateway/directory.(*Directory).flushUsage", micros(20), micros(1920)}
	if len(e.others) != 1 || e.others[0] != other {
		t.Errorf("%+v, want %+v", e.others, other)
	}
	if len(e.requests) != 1 || e.requests[0] != want || e.skipped != 1 {
		t.Errorf("%+v, %d left out; want %+v and one left out", e.requests, e.skipped, want)
	}
	var b strings.Builder
	writeTail(&b, "gateway", []*execution{e})
	for _, line := range []string{
		"| in the gateway | 89 | 89 | 89 |", "| waits for the upstream | 40 | 40 | 40 |", "| % of them during a stop of the world | 100 | 100 | 100 |",
		"1 requests, 1 more left out; 0 collections; 1 stops of the world, the longest of 4 µs.",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no line %q in\n%s", line, b.String())
		}
	}
}
