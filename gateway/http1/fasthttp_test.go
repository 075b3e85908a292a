package http1

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"petgate/shared/testkit/must"
)

// ambiguous are streams of a client that two programs may read in two ways: they differ in where a
// request ends, which fields it has, or what its target is.
var ambiguous = []string{
	// Ends of lines.
	"GET / HTTP/1.1\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\n\n",
	"GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
	"\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	// Fields.
	"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nContent-Length\r\n : 5\r\n\r\nhello",
	"GET / HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello",
	"GET / HTTP/1.1\r\nHost: a\r\nX(y): z\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX: y\x00z\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
	// Framing.
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello",
	// Chunks.
	chunked + "5 \r\nhello\r\n0\r\n\r\n",
	chunked + "5\nhello\r\n0\r\n\r\n",
	chunked + "5;a=\x00\r\nhello\r\n0\r\n\r\n",
	chunked + "5;" + strings.Repeat("a", 4000) + "\r\nhello\r\n0\r\n\r\n",
	chunked + "+5\r\nhello\r\n0\r\n\r\n",
	chunked + "5\r\nhello!\r\n0\r\n\r\n",
	chunked + "0\r\nContent-Length: 5\r\n\r\n",
	// Targets, hosts and versions.
	"GET http://user:password@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
	"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
	"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
	"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
}

// README.md says how many of these streams fasthttp serves. This reader serves none.
func TestAmbiguousStreams(t *testing.T) {
	const served = 20 // as README.md says
	got := 0
	for _, sent := range ambiguous {
		server := fasthttp.Server{
			Handler:           func(rc *fasthttp.RequestCtx) { _, _ = rc.Write(rc.Request.Body()) },
			StreamRequestBody: true,
			CloseOnShutdown:   true,
			Logger:            quiet{},
			ReadTimeout:       time.Second,
		}
		_, peer := newConn(sent)
		_ = server.ServeConn(peer)
		if strings.HasPrefix(peer.sent.String(), "HTTP/1.1 200 ") {
			got++
			t.Logf("fasthttp serves %.100q", sent)
		}
		if read := readRequests(pieces(sent, len(sent)), 1000); strings.Contains(read, ";") || read == "end" {
			t.Errorf("%q is served: %s", sent, read)
		}
	}
	fmt.Printf("figure: count fasthttp: it serves %d of %d ambiguous streams\n", got, len(ambiguous))
	must.Equal(t, got, served, "served by fasthttp, of %d", len(ambiguous))
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
