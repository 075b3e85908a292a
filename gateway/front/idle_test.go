package front

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"testing"

	"github.com/valyala/fasthttp"

	"petgate/shared/testkit/must"
)

// BenchmarkIdle prints how much memory a connection between two requests takes: in this server,
// and in one of fasthttp that reads bodies as streams and heads of the same size. The client's end
// is in both figures.
func BenchmarkIdle(b *testing.B) {
	const conns = 1500
	perConn := func(b *testing.B, address string) {
		before := memory()
		for b.Loop() {
			for range conns {
				c := must.Get[net.Conn](b)(net.Dial("tcp", address))
				defer c.Close()
				must.Get[int](b)(io.WriteString(c, get()))
				must.Get[int](b)(c.Read(make([]byte, 1000)))
			}
		}
		b.ReportMetric(float64(memory()-before)/float64(conns*b.N), "bytes/connection")
	}
	b.Run("gateway", func(b *testing.B) {
		r := newRig(b, func(c *Config) { c.ConnectionsMax = conns })
		perConn(b, r.address)
	})
	b.Run("fasthttp", func(b *testing.B) {
		server := &fasthttp.Server{
			Handler:            func(rc *fasthttp.RequestCtx) { rc.SetStatusCode(http.StatusOK) },
			ReadBufferSize:     24 << 10, // a target of 8 KiB and fields of 16
			StreamRequestBody:  true,
			ReduceMemoryUsage:  true,
			CloseOnShutdown:    true,
			MaxRequestBodySize: 1 << 20,
			Logger:             slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		}
		ln := must.Get[net.Listener](b)(net.Listen("tcp", "127.0.0.1:0"))
		go func() { _ = server.Serve(ln) }()
		perConn(b, fmt.Sprint(ln.Addr()))
		must.Do(b, server.Shutdown())
	})
}

// memory is what heap and stacks take.
func memory() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what sync.Pool keeps goes at the second one
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
