// Package http1 reads HTTP/1.1, from clients and from upstreams, by one grammar and one reader.
//
// The reader does what an RFC demands. Where an RFC leaves a choice, it takes the stricter one. If
// two parsers disagree about where a message ends, they also disagree about where the next one
// begins, and an attacker can use the difference.
//
//	Conn      a client's connection: deadlines, buffers, 100 (Continue), a state
//	Request   the head of a request
//	Response  the head and the body of an upstream's response
//	Body      the content of a message, read in steps
//	Reader    reads lines, heads and bodies through a buffer; Conn and upstream connections use it
//	Field     a header field; fields.go has the one table of hop-by-hop fields
//	Error     why a message cannot be read
//
// The package does not know API keys, limits or refusals. It imports the standard library only.
package http1
