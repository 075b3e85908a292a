// Upstream is the origin behind every measured gateway. It answers each request with the same 1.2
// kB of JSON at the least cost, so the figures show the gateways.
package main

import (
	"flag"
	"fmt"
	"log"
	"strings"

	"github.com/valyala/fasthttp"
)

// body is a list of 20 pets in 1.2 kB, about as large as the pet service's list of the default
// length.
func body() []byte {
	pets := make([]string, 20)
	for i := range pets {
		pets[i] = fmt.Sprintf(`{"id":%d,"name":"Petronella","categoryId":%d,"status":"available"}`, 1000+i, i%7)
	}
	return []byte("[" + strings.Join(pets, ",")[:1198] + "]")
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve on")
	flag.Parse()
	response := body()
	server := &fasthttp.Server{
		NoDefaultServerHeader: true,
		Handler: func(rc *fasthttp.RequestCtx) {
			rc.Response.Header.SetContentType("application/json")
			rc.Response.SetBodyRaw(response)
		},
	}
	log.Fatal(server.ListenAndServe(*listen))
}
