// Upstream is the origin behind every measured gateway. It answers each request with the same 1.2 kB of JSON at the least
// cost, so the figures show the gateways. A request for long responses gets 100 kB.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"strings"

	"github.com/valyala/fasthttp"
)

// body is a list of 20 pets in 1.2 kB, about as large as the pet service's list of the default length.
func body() []byte {
	pets := make([]string, 20)
	for i := range pets {
		pets[i] = fmt.Sprintf(`{"id":%d,"name":"Petronella","categoryId":%d,"status":"available"}`, 1000+i, i%7)
	}
	return []byte("[" + strings.Join(pets, ",")[:1198] + "]")
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "addresses to serve on, separated by commas")
	flag.Parse()
	response := body()
	long := []byte(strings.Repeat("x", 100_000))
	server := &fasthttp.Server{
		NoDefaultServerHeader: true,
		Handler: func(rc *fasthttp.RequestCtx) {
			rc.Response.Header.SetContentType("application/json")
			if bytes.HasSuffix(rc.RequestURI(), []byte("&bytes=100000")) {
				rc.Response.SetBodyRaw(long)
				return
			}
			rc.Response.SetBodyRaw(response)
		},
	}
	failed := make(chan error)
	for address := range strings.SplitSeq(*listen, ",") {
		go func() { failed <- server.ListenAndServe(address) }()
	}
	log.Fatal(<-failed)
}
