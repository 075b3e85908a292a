// Package edge is the public port: the stages of a request. Package front holds the connections,
// and calls serve for each request. It passes these stages:
//
//	accept → publish → identify → authenticate → report → authorize →
//	receive → meter → route → statement or forward → finish
//
// decide in edge.go calls the stages in this order, and every stage has a file with its name. A
// stage lets the request pass or refuses it. A refusal is a value, one row of the table in
// refusal.go. A stage that cannot decide also refuses: the table has rows for that. publish refuses
// nothing: it answers requests for the documentation and CORS preflights. finish always runs, also
// after a panic. It writes the response, the metrics and the access log.
//
// An operation may be public: it needs no key. publish finds that out, and the request passes the
// same stages in the same order. They ask no key of it:
//
//   - identify lets it pass.
//   - authenticate refuses only an address that has tried too many unknown keys.
//   - report and authorize have nothing to do.
//   - meter takes a slot of the upstream, and charges nothing.
//
// # Charging
//
// A request that meter charges is charged once, whatever its response is. A request that is
// answered or refused before, or whose quota is exceeded, is not charged. So meter refuses a
// charged request in one case only: if its key has ended while meter waited for the quota.
//
// # Failure
//
// If a request cannot be read, the gateway responds and closes the connection. Package upstream has
// the rules for connections to upstreams.
//
// # Time and memory
//
// Everything in responses follows the injected clock. Deadlines of I/O follow the machine's clock,
// and are up to 50 ms late. Exchanges are kept with the Calls of package front. An exchange begins
// when the head of its request has been read, and ends when its response is written.
package edge
