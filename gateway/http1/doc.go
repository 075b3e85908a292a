// Package http1 reads HTTP/1.1, from clients and from upstreams, by one grammar and one reader.
//
// Where an RFC says MUST, the reader does. Where an RFC leaves a choice, the reader takes the stricter one: where one message
// ends decides where the next one begins, and two parsers that disagree about that can be played against each other.
//
//	Conn      a client's connection: deadlines, buffers, 100 (Continue), a state
//	Request   the head of a request
//	Response  the head and the body of an upstream's response
//	Body      the content of a message, read in steps
//	Reader    lines, heads and bodies out of a buffer; Conn and upstream connections share it
//	Field     a header field; fields.go has the one table of hop-by-hop fields
//	Error     why a message cannot be read
//
// The package knows nothing of API keys, limits or refusals. It imports the standard library only.
package http1
