// Package edge is the public port: the life of a request, in one straight line.
//
//	accept → identify → authenticate → receive → meter → route → forward → finish
//
// decide in edge.go holds the line, and every stage has the file of its name. A stage leaves something true for the next one,
// or refuses. A refusal is a value, one row of the table in refusal.go. A stage that cannot decide refuses too, with a row that
// says whose fault it is. finish always runs, also after a panic. It writes the headers that every response has, the metrics and
// the line of the access log.
//
// What a stage refuses before a request has been taken from its quota is charged nothing. What is refused later costs one.
//
// # fasthttp
//
// fasthttp accepts connections, runs a goroutine for each, and writes responses. It does not read requests: package http1 does,
// and fasthttp gets a canned "GET / HTTP/1.1" for each of them. server.go shows it in a picture and says why.
//
// # Failure
//
// A request that cannot be read ends its connection, with a response of the gateway's. The rules for connections to upstreams are
// in package upstream.
//
// # Time and memory
//
// All that a client is told follows the injected clock. Deadlines of I/O follow the machine's clock, and are kept to within a
// sixteenth (socket.Timed). An exchange is pooled and begins when the head of its request is there. It keeps nothing of fasthttp's
// RequestCtx, which is never used as a context: it ends only with the server.
package edge
