package edge_test

import "slices"

// pipelines holds several requests on one connection: where one ends decides what the next one is.
var pipelines = slices.Concat(
	[]attack{
		{"ten good ones", "9112 9.3.2", repeat(ok+"; ", 9) + ok, repeat(rawGet(), 10)},
		{"good, then without a key", "9112 9.3.2", ok + "; missing_api_key", rawGet() + keyless("GET /v1/pets HTTP/1.1")},
		{"without a key, then good", "9112 9.3.2", "missing_api_key; " + ok, keyless("GET /v1/pets HTTP/1.1") + rawGet()},
		{"unknown path, then good", "9112 9.3.2", "no_such_route; " + ok, rawTarget("/nowhere") + rawGet()},
		{"method not allowed, then good", "9112 9.3.2", "method_not_allowed; " + ok, rawStart("DELETE /v1/pets HTTP/1.1") + rawGet()},
		{"used up, then good", "9112 9.3.2", "minute_quota_exceeded; " + ok, rawBearer(usedUpToken) + rawGet()},
		{
			"content of a refused request is read past", "9112 9.3", "missing_api_key; " + ok,
			keyless("POST /v1/pets HTTP/1.1", "Content-Length: 4") + "evil" + rawGet(),
		},
		{
			"chunks of a refused request are read past", "9112 9.3", "missing_api_key; " + ok,
			keyless("POST /v1/pets HTTP/1.1", "Transfer-Encoding: chunked") + helloChunks + rawGet(),
		},
		{
			"content of an unknown path is read past", "9112 9.3", "no_such_route; " + ok,
			rawStart("POST /nowhere HTTP/1.1", "Content-Length: "+decimal(len(rawGet()))) + rawGet() + rawGet(),
		},
		{"POST, then GET", "9112 9.3.2", posted + "; " + ok, rawPost("Content-Length: 5") + "hello" + rawGet()},
		{"chunked POST, then GET", "9112 9.3.2", posted + "; " + ok, rawChunked(helloChunks) + rawGet()},
		{"HEAD, then GET", "9112 9.3.2", "HEAD /v1/pets 0; " + ok, rawStart("HEAD /v1/pets HTTP/1.1") + rawGet()},
		{"refused HEAD, then GET", "9112 9.3.2", "no_such_route; " + ok, rawStart("HEAD /nowhere HTTP/1.1") + rawGet()},
		{"GET with a length of zero, then GET", "9112 9.3.2", ok + "; " + ok, rawGet("Content-Length: 0") + rawGet()},
		{
			"expected POST, then GET", "9110 10.1.1", posted + "; " + ok,
			rawPost("Expect: 100-continue", "Content-Length: 5") + "hello" + rawGet(),
		},
		{
			"two requests, the first length covers half of the second", "9112 6.2", "POST /v1/pets 40; bad_request",
			rawPost("Content-Length: 40") + rawGet() + "\r\n",
		},
		{"one byte more than the length", "9112 6.2", posted + "; bad_request", rawPost("Content-Length: 5") + "hello\x00" + rawGet()},
		{
			"empty line after content, as old browsers sent", "9112 2.2", posted + "; " + ok,
			rawPost("Content-Length: 5") + "hello\r\n" + rawGet(),
		},
		{"empty line between requests", "9112 2.2", ok + "; " + ok, rawGet() + "\r\n" + rawGet()},
		{"space between requests", "9112 2.2", ok + "; bad_request", rawGet() + " " + rawGet()},
		{"NUL between requests", "9112 2.2", ok + "; bad_request", rawGet() + "\x00" + rawGet()},
		{"line of junk between requests", "9112 2.2", ok + "; bad_request", rawGet() + "evil\r\n" + rawGet()},
		{"bad target, then good", "9112 9.6", bad, rawTarget("/v1/../pets") + rawGet()},
		{"bad host, then good", "9112 9.6", bad, rawHost("Host: evil@a") + rawGet()},
		{"too long, then good", "9112 9.6", "uri_too_long", rawTarget(longTarget(targetMax+1)) + rawGet()},
		{"too many fields, then good", "9112 9.6", "headers_too_large", rawGet(numbered("X-", 1000)...) + rawGet()},
		{"too large, then good in its content", "9112 9.6", "body_too_large", rawPost("Content-Length: "+decimal(bodyMax+1)) + rawGet()},
		{
			"refused expectation, then good in its content", "9110 10.1.1", "expectation_failed",
			rawPost("Expect: evil", "Content-Length: "+decimal(len(rawGet()))) + rawGet(),
		},
		{"bad chunk, then good", "9112 7.1", bad, rawChunked("5\r\nhello!\r\n") + rawGet()},
		{"close, then good", "9112 9.6", "GET /v1/pets 0; close", rawGet("Connection: close") + rawGet()},
		{"HTTP/1.0, then good", "9112 9.3", "GET /v1/pets 0; close", rawStart("GET /v1/pets HTTP/1.0") + rawGet()},
		{
			"HTTP/1.0 kept alive, then good", "9112 9.3", ok + "; " + ok,
			rawStart("GET /v1/pets HTTP/1.0", "Connection: keep-alive") + rawGet(),
		},
		{
			"length wins, chunks smuggle", "9112 11.2", bad,
			rawPost("Content-Length: 6", "Transfer-Encoding: chunked") + "0\r\n\r\nG" + rawGet(),
		},
		{
			"chunks win, length smuggles", "9112 11.2", bad,
			rawPost("Content-Length: 4", "Transfer-Encoding: chunked") + hexadecimal(
				len(rawGet()),
			) + "\r\n" + rawGet() + "\r\n0\r\n\r\n",
		},
		{"two codings smuggle", "9112 11.2", bad, rawPost("Transfer-Encoding: chunked", "Transfer-encoding: x") + "0\r\n\r\n" + rawGet()},
		{
			"content of GET smuggles", "9112 11.2", "GET /v1/pets " + decimal(len(rawGet())) + "|bad_request",
			rawGet("Content-Length: "+decimal(len(rawGet()))) + rawGet(),
		},
		{
			"content of HEAD smuggles", "9112 11.2", "HEAD /v1/pets " + decimal(len(rawGet())) + "|bad_request",
			rawStart("HEAD /v1/pets HTTP/1.1", "Content-Length: "+decimal(len(rawGet()))) + rawGet(),
		},
		{
			"chunks of GET smuggle", "9112 11.2", "GET /v1/pets 3|bad_request",
			rawGet("Transfer-Encoding: chunked") + "3\r\nabc\r\n0\r\n\r\n",
		},
		{"chunk size that wraps smuggles", "9112 11.2", "bad_request|body_too_large", rawChunked("100000000000000000\r\n") + rawGet()},
		{"tunnel, then good", "9110 9.3.6", bad, rawStart("CONNECT a:80 HTTP/1.1") + rawGet()},
		{
			"upgrade to HTTP/2, then its preface", "9110 7.8", ok + "; bad_request",
			rawGet("Connection: Upgrade", "Upgrade: h2c") + "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		},
		{"closed in the second request", "9112 8", ok + "; " + gone, rawGet() + "GET /v1/pets HT"},
		{"nothing is sent in time", "9112 9.5", "close", ""},
		{"chunks do not end in time", "9110 15.5.9", "request_timeout", rawChunked("5\r\nhello\r\n")},
		{"trailer does not end in time", "9110 15.5.9", "request_timeout", rawChunked("5\r\nhello\r\n0\r\nX-Sum: a\r\n")},
		{"second request does not end in time", "9110 15.5.9", ok + "; request_timeout", rawGet() + "GET /v1/pets"},
	},
	alike("closed", "9112 8", gone, verbatim,
		"GE", "GET /v1/pe", "GET /v1/pets HTTP/1.", "GET /v1/pets HTTP/1.1\r\n", "GET /v1/pets HTTP/1.1\r\nHo",
		"GET /v1/pets HTTP/1.1\r\nHost: a\r\n"+authorization[:40],
		"GET /v1/pets HTTP/1.1\r\nHost: a\r\n"+authorization+"\r\n", rawGet()[:len(rawGet())-1],
		rawPost("Content-Length: 5"), rawPost("Content-Length: 5")+"hell",
		rawPost("Expect: 100-continue", "Content-Length: 5")+"he", "", "\r\n"),
	alike("closed in chunks", "9112 8", gone, rawChunked,
		"", "5", "5\r\nhel", "5\r\nhello\r\n", "5\r\nhello\r\n0\r\n", "5\r\nhello\r\n0\r\nX-Sum: a"),
	alike("no end in time", "9110 15.5.9", "request_timeout", verbatim,
		"GET /v1/pets", "GET /v1/pets HTTP/1.1\r\nHost: a\r\n", rawPost("Content-Length: 5"),
		rawPost("Content-Length: 5")+"hell", rawPost("Expect: 100-continue", "Content-Length: 5")),
)
