//go:build linux && (amd64 || arm64) && !race

package socket_test

import (
	"io"
	"syscall"
	"testing"

	"petgate/shared/testkit/must"
)

func TestCallsAllocateNothing(t *testing.T) {
	near, far := pair(t, "tcp")
	go func() { _, _ = io.Copy(far, far) }()
	out, in := []byte("question"), make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() {
		must.Do(t, near.Ask(out))
		must.Get[int](t)(near.Read(in))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A descriptor may become blocking: os.File does this in some cases. A quiet call must not block
// even then: the process would stop at the next garbage collection.
func TestABlockingDescriptorBlocksNothing(t *testing.T) {
	near, _ := pair(t, "tcp")
	raw := must.Get[syscall.RawConn](t)(near.Conn.(syscall.Conn).SyscallConn())
	var setErr error
	if err := raw.Control(func(fd uintptr) { setErr = syscall.SetNonblock(int(fd), false) }); err != nil ||
		setErr != nil {
		t.Fatal(err, setErr)
	}
	expectDeadlines(t, near)
}

// One call copies no more than the bound, so the goroutine can be preempted after it.
func TestACallIsBounded(t *testing.T) {
	near, far := pair(t, "unix")
	sent := make(chan error, 1)
	go func() {
		_, err := far.Write(make([]byte, 128<<10))
		sent <- err
	}()
	in := make([]byte, 1<<20)
	for total := 0; total < 128<<10; {
		n, err := near.Read(in)
		if err != nil || n > 64<<10 {
			t.Fatalf("%d bytes in one call, %v", n, err)
		}
		total += n
	}
	must.Do(t, <-sent)
}
