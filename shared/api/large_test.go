package api_test

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/shared/api"
	"petgate/shared/testkit/must"
)

// A document with 1,000 operations is read in less than a second of processor time (the limit here is five times that), and takes less
// than 30 MB.
func TestThousandOperations(t *testing.T) {
	var b strings.Builder
	b.WriteString("openapi: 3.0.3\ninfo: {title: Large, version: '1'}\npaths:\n")
	for i := range 250 {
		fmt.Fprintf(&b, "  /group%d/{id}/things:\n    parameters: [{name: id, in: path, required: true, schema: {type: string}}]\n", i)
		for _, method := range []string{"get", "put", "post", "delete"} {
			fmt.Fprintf(&b, "    %s:\n      operationId: %s%d\n      tags: [group%d]\n      summary: A summary of some words\n"+
				"      responses: {'200': {description: OK, content: {application/json: {schema: {type: object, properties: {a: {type: string}, b: {type: array, items: {type: integer}}}}}}}}\n",
				method, method, i, i)
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	worked := func() time.Duration {
		var u syscall.Rusage
		must.Do(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano())
	}
	before, began := heap(), worked()
	a, err := api.Load("large.yaml", []byte(b.String()))
	took := worked() - began
	if err != nil || len(a.Operations) != 1002 {
		t.Fatalf("%d operations, %v", len(a.Operations), err)
	}
	grown := (heap() - before) >> 20
	t.Logf("1,000 operations are read in %v and take %d MB", took.Round(time.Millisecond), grown)
	if took > 5*time.Second || grown > 30 {
		t.Errorf("it took %v and %d MB", took, grown)
	}
	runtime.KeepAlive(a)
}
