package routing

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/shared/api"
	"petgate/shared/testkit/must"
)

// used is the CPU time of this process. On a busy machine it says more than the time on the clock.
func used(b *testing.B) time.Duration {
	var u syscall.Rusage
	must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRoutes prints what 3,000 operations cost: the table at each start, a path that is found,
// and paths that are not. In the last document every segment has two ways, of which the first one
// fails at the end of the path.
func BenchmarkRoutes(b *testing.B) {
	const n = 3000
	var many, crossing []api.Operation
	for i := range n {
		many = append(many, api.Operation{Method: http.MethodGet, Path: fmt.Sprintf("/v1/rooms-%d/{a}/things/{b}", i)})
		var path strings.Builder
		for bit := range 11 {
			path.WriteString([]string{"/a", "/{x}"}[i>>bit&1])
		}
		crossing = append(crossing, api.Operation{Method: http.MethodGet, Path: fmt.Sprintf("%s/%d", &path, i)})
	}
	many[0].Path = "/v1/fixed/path/of/things"
	per := func(name string, f func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			before := used(b)
			f(b)
			b.ReportMetric(float64(used(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
	per("start", func(b *testing.B) {
		for b.Loop() {
			must.Get[*Table](b)(New(many))
		}
	})
	for _, c := range []struct {
		name, path string
		operations []api.Operation
		isFound    bool
	}{
		{"hit", "/v1/rooms-2900/room-17/things/of-42", many, true},
		{"hit, one path", "/v1/fixed/path/of/things", many, true},
		{"hit, encoded", "/v1/rooms-2900/room%2017/things/of%2042", many, true},
		{"miss", "/v1/rooms-2900/room-17/nothing", many, false},
		{"miss, encoded", "/v1/rooms-2900/%72oom-17/nothing", many, false},
		{"miss, crossing", strings.Repeat("/a", 11) + "/-", crossing, false},
		{"miss, long", strings.Repeat("/%61", 2000), crossing, false},
	} {
		table, method, path := must.Get[*Table](b)(New(c.operations)), []byte(http.MethodGet), []byte(c.path)
		per(c.name, func(b *testing.B) {
			for b.Loop() {
				if found := table.Find(method, path); (found != nil) != c.isFound {
					b.Fatalf("%s is %v", path, found)
				}
			}
		})
	}
}
