// Package edge is the public port: the life of a request, in one straight line.
//
//	accept → identify → authenticate → meter → route → forward → finish
//
// decide in edge.go holds the line, and every stage has the file of its name. A stage leaves something true for the next one,
// or refuses. A refusal is a value, one row of the table in refusal.go; a stage that could not decide refuses too, with a row
// that says whose fault it is. finish always runs, also after a panic, and writes the headers that every response has, the
// metrics and the line of the access log.
//
// What a stage refuses before a request has been taken from its quota is charged nothing; what comes after it costs one.
//
// # Reading
//
// A wire (wire.go) is the only reader of a client's bytes. head.read (accept.go) decides on a request's head, by the grammar in
// grammar.go. fasthttp serves connections and writes responses, but of a request it sees only a few canned words, so that it
// can take nothing differently. The answers of upstreams are read as strictly (answer.go), since where one answer ends decides
// whose answer the next one is.
//
// # Failure
//
// A request that cannot be read ends its connection, with our answer. An upstream's connection is used again only after an
// answer that was read to its end, with nothing after it, and only if it has stayed silent since (forward.go). A request is
// sent twice only if it is a GET or HEAD whose connection, one that had served before, died without a byte.
//
// # Time and memory
//
// All that a client is told follows the injected clock; deadlines of I/O follow the machine's, and are kept to within a
// sixteenth (socket.Deadline). An exchange is pooled and begins when its request has been read. It keeps nothing of
// fasthttp's RequestCtx, which is never used as a context: it ends only with the server.
package edge
