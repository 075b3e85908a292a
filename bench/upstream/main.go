// Upstream is the origin that every measured gateway stands before: a fixed JSON body of 1.2 kB, as cheap as it gets, so
// that what is compared is the gateways.
package main

import (
	"flag"
	"fmt"
	"log"
	"strings"

	"github.com/valyala/fasthttp"
)

// body is a list of 20 pets in 1.2 kB, about what the pet service answers to a list of the default length.
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
	answer := body()
	server := &fasthttp.Server{
		NoDefaultServerHeader: true,
		Handler: func(rc *fasthttp.RequestCtx) {
			rc.Response.Header.SetContentType("application/json")
			rc.Response.SetBodyRaw(answer)
		},
	}
	log.Fatal(server.ListenAndServe(*listen))
}
