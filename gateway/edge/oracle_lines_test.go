package edge_test

import "slices"

// syntax holds what decides whether bytes are a request at all: line ends, control bytes, folding,
// names and versions.
var syntax = slices.Concat(
	[]attack{
		{"LF after the request line", "9112 2.2", bad, "GET /v1/pets HTTP/1.1\nHost: a\r\n" + authorization + "\r\n\r\n"},
		{"LF for the empty line", "9112 2.2", bad, "GET /v1/pets HTTP/1.1\r\nHost: a\r\n" + authorization + "\r\n\n" + rawGet()},
		{"CR after the request line", "9112 2.2", bad, "GET /v1/pets HTTP/1.1\rHost: a\r\n" + authorization + "\r\n\r\n"},
		{"CR CR LF after the request line", "9112 2.2", bad, "GET /v1/pets HTTP/1.1\r\r\nHost: a\r\n" + authorization + "\r\n\r\n"},
		{"key folded", "9112 5.2", bad, keyless("GET /v1/pets HTTP/1.1", "Authorization: Bearer", " "+token)},
		{"space before the first field", "9112 2.2", bad, rawBare("GET /v1/pets HTTP/1.1", " Host: a", "Host: a", authorization)},
		{"no colon", "9112 5", bad, keyless("GET /v1/pets HTTP/1.1", "evil", authorization)},
		{"one empty line before the request", "9112 2.2", ok, "\r\n" + rawGet()},
		{"LF before the request", "9112 2.2", "GET /v1/pets 0|bad_request", "\n" + rawGet()},
		{"two empty lines before the request", "9112 2.2", "GET /v1/pets 0|bad_request", "\r\n\r\n" + rawGet()},
		{"no version and no fields", "9112 3", bad, "GET /v1/pets\r\n\r\n"},
		{"HTTP/1.9", "9110 2.5", ok, rawStart("GET /v1/pets HTTP/1.9")},
		{"HEAD routes as GET", "9110 9.3.2", "HEAD /v1/pets 0", rawStart("HEAD /v1/pets HTTP/1.1")},
	},
	alike(
		"other protocols", "9112 3, 9113 3.4", bad, verbatim,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03"+repeat("\x42", 150)+"\r\n\r\n",
		"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"+rawGet(), "SSH-2.0-OpenSSH_9.9\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	),
	alike(
		"methods that a path does not have", "9110 15.5.6", "method_not_allowed", rawLine,
		"PUT /v1/pets HTTP/1.1", "DELETE /v1/pets/7 HTTP/1.1", "OPTIONS /v1/pets HTTP/1.1", "POST /v1/pets/7 HTTP/1.1",
	),
	alike(
		"field lines", "9112 2.2, 5", bad, one(rawGet),
		"X: y\r", "X\rY: evil", "X: a\rb", "\rX: y", "X: a\r\n evil", "X: a\r\n\tevil", "X: a\r\n b\r\n evil", "X: a\r\n ",
		"X : evil", ": evil",
	),
	alike(
		"methods, and control bytes in the request line", "9110 9.1, 9112 2.2", bad, rawLine,
		"G\rET /v1/pets HTTP/1.1", "GET /v1/pets \rHTTP/1.1", "\x00GET /v1/pets HTTP/1.1", "GE\x00T /v1/pets HTTP/1.1",
		"\xef\xbb\xbfGET /v1/pets HTTP/1.1", "CONNECT /v1/pets HTTP/1.1", "CONNECT a:80 HTTP/1.1", "GET: /v1/pets HTTP/1.1",
		"GET/ /v1/pets HTTP/1.1", "GET\x7f /v1/pets HTTP/1.1", "G\xcb\x99T /v1/pets HTTP/1.1",
	),
	alike(
		"versions", "9112 2.3", bad, rawLine,
		"GET /v1/pets HTTP/1.1\x00", "GET /v1/pets HTTP/0.9", "GET /v1/pets HTTP/2.0", "GET /v1/pets HTTP/2", "GET /v1/pets HTTP/3.0",
		"GET /v1/pets HTTP/1", "GET /v1/pets HTTP/1.", "GET /v1/pets HTTP/1.10", "GET /v1/pets HTTP/01.1", "GET /v1/pets HTTP/1,1",
		"GET /v1/pets http/1.1", "GET /v1/pets HTTP /1.1", "GET /v1/pets HTTP/+1.1", "GET /v1/pets HTTPS/1.1",
		"GET /v1/pets RTSP/1.0", "GET /v1/pets HTTP/1.1x", "GET /v1/pets HTTP/1.\xb9",
	),
	alike(
		"names", "9110 5.1", bad, one(rawGet),
		"X\x00Y: evil", "X Y: evil", "X\tY: evil", "X(Y): evil", `"X": evil`, "X/Y: evil", "X@Y: evil", "X,Y: evil", "X[0]: evil",
		"X-\xc3\xa9: evil", "X\x7f: evil",
	),
	alike(
		"values", "9110 5.5", bad, one(rawGet),
		"X: a\x00b", "X: a\x01b", "X: \x1b[31mevil", "X: a\x7fb", "X: a\vb",
	),
	alike(
		"fields", "9110 5.5", ok, one(rawGet),
		"X: a\tkept", "X: caf\xe9 kept", "X: caf\xc3\xa9 kept", "X:", "X:  \t ", "X!#$%&'*+-.^`|~: y",
		"X-HTTP-Method-Override: DELETE",
	),
	alike(
		"request lines", "9112 3", bad, rawLine,
		" GET /v1/pets HTTP/1.1", "\tGET /v1/pets HTTP/1.1", "GET  /v1/pets HTTP/1.1", "GET /v1/pets  HTTP/1.1",
		"GET\t/v1/pets HTTP/1.1", "GET /v1/pets\tHTTP/1.1", "GET\xc2\xa0/v1/pets HTTP/1.1", "GET /v1/pets HTTP/1.1 ",
		"GET /v1/pets HTTP/1.1 evil", "GET /v1/pets", "GET HTTP/1.1", "GET  HTTP/1.1", "GET", "/v1/pets HTTP/1.1",
		" /v1/pets HTTP/1.1",
	),
	alike(
		"methods that no operation has", "9110 9.1", "method_not_allowed|bad_request", rawLine,
		"TRACE /v1/pets HTTP/1.1", "get /v1/pets HTTP/1.1", "M-SEARCH /v1/pets HTTP/1.1", "G!#$%&'*+-.^_`|~9 /v1/pets HTTP/1.1",
		repeat("A", 1024)+" /v1/pets HTTP/1.1",
	),
)
