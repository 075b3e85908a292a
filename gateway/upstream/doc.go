// Package upstream forwards one request at a time to one of several instances of a service.
//
//	Pool   the instances: which one gets the next request, and how often it is tried (pool.go)
//	host   one instance: its idle connections, its slots, its health (host.go)
//	conn   one connection, and one exchange on it (conn.go)
//	Check  the active check of each instance (check.go)
//
// A connection is used again only after a response that was read to its end, and if nothing has
// arrived since. A request is sent twice only if its caller allows it, and if its connection had
// served before and ended without a byte of the response.
package upstream
