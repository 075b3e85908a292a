// Package edge is the public port: the life of a request, in one straight line.
//
//	accept → identify → authenticate → receive → meter → route → forward → finish
//
// decide in edge.go calls the stages in this order, and every stage has the file of its name. A stage passes the request on or
// refuses it. A refusal is a value, one row of the table in refusal.go. A stage that cannot decide refuses too, with a row for
// that. finish always runs, also after a panic. It writes the headers that every response has, the metrics and the access log.
//
// A request that is refused by a stage before meter, or by meter, is not charged. A request that passes meter is charged once.
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
// Everything in responses follows the injected clock. Deadlines of I/O follow the machine's clock and may be up to a sixteenth
// late (socket.Timed). Exchanges are pooled. An exchange begins when the head of its request has been read. It keeps nothing of
// fasthttp's RequestCtx, which is never used as a context: it ends only with the server.
package edge
