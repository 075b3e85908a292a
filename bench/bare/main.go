// Bare is a plain proxy on fasthttp's server and client, without any policy. It shows what that
// library and the kernel cost.
package main

import (
	"flag"
	"log"
	"time"

	"github.com/valyala/fasthttp"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve on")
	upstream := flag.String("upstream", "127.0.0.1:8081", "address of the origin")
	flag.Parse()

	client := &fasthttp.HostClient{
		Addr:                          *upstream,
		MaxConns:                      1024,
		ConnPoolStrategy:              fasthttp.LIFO,
		NoDefaultUserAgentHeader:      true,
		DisableHeaderNamesNormalizing: true,
		DisablePathNormalizing:        true,
	}
	server := &fasthttp.Server{
		NoDefaultServerHeader:         true,
		DisableHeaderNamesNormalizing: true,
		Handler: func(rc *fasthttp.RequestCtx) {
			if err := client.DoTimeout(&rc.Request, &rc.Response, 10*time.Second); err != nil {
				rc.Error("bad gateway", fasthttp.StatusBadGateway)
			}
		},
	}
	log.Fatal(server.ListenAndServe(*listen))
}
