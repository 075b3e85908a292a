package edge_test

import "slices"

// targets holds the forms of the request target: what is matched must be what is forwarded.
var targets = slices.Concat(
	[]attack{
		{"query", "9112 3.2.1", "GET /v1/pets?limit=5&status=sold 0", rawTarget("/v1/pets?limit=5&status=sold")},
		{"empty query", "9112 3.2.1", "GET /v1/pets? 0", rawTarget("/v1/pets?")},
		{"double slash in the query", "3986 3.4", "GET /v1/pets?a=//b 0", rawTarget("/v1/pets?a=//b")},
		{"dot segments in the query", "3986 3.4", "GET /v1/pets?a=/../../etc 0", rawTarget("/v1/pets?a=/../../etc")},
		{"encoded bytes in the query", "3986 2.1", "GET /v1/pets?a=%2f%41%ff 0", rawTarget("/v1/pets?a=%2f%41%ff")},
		{"encoded NUL in the query", "3986 2.1", "GET /v1/pets?a=%00 0|bad_request", rawTarget("/v1/pets?a=%00")},
		{"encoded line end in the query", "3986 2.1", "GET /v1/pets?a=%0d%0aX:%20evil 0|bad_request", rawTarget("/v1/pets?a=%0d%0aX:%20evil")},
		{"broken encoding in the query", "3986 2.1", "GET /v1/pets?a=%zz 0|bad_request", rawTarget("/v1/pets?a=%zz")},
		{"one animal", "9112 3.2.1", "GET /v1/pets/7 0", rawTarget("/v1/pets/7")},
		{"animal that begins with a dot", "3986 5.2.4", "GET /v1/pets/.a 0", rawTarget("/v1/pets/.a")},
		{"parameter on a segment", "3986 3.3", "GET /v1/pets/7;v=1 0", rawTarget("/v1/pets/7;v=1")},
		{"encoded digit", "3986 6.2.2", "GET /v1/pets/%37 0|bad_request", rawTarget("/v1/pets/%37")},
		{"encoded percent sign", "3986 2.4", "GET /v1/pets/%252f 0", rawTarget("/v1/pets/%252f")},
		{"content for a page", "9110 9.1", "method_not_allowed; GET /v1/pets 0", rawStart("POST /docs HTTP/1.1", "Content-Length: 5") + "hello" + rawGet()},
		{
			"preflight of an origin that is not allowed", "9110 9.3.7", "method_not_allowed",
			rawStart("OPTIONS /v1/pets HTTP/1.1", "Origin: https://evil", "Access-Control-Request-Method: GET"),
		},
		{"brackets in the query", "3986 3.4", "GET /v1/pets?a[]=1 0|bad_request", rawTarget("/v1/pets?a[]=1")},
		{"query as long as is allowed", "9112 3", "GET " + longTarget(targetMax) + " 0", rawTarget(longTarget(targetMax))},
		{"query one byte longer", "9110 15.5.15", "uri_too_long", rawTarget(longTarget(targetMax + 1))},
		{"path that is too long", "9110 15.5.15", "uri_too_long", rawTarget("/v1/pets/" + repeat("7", targetMax))},
		{"target larger than any buffer", "9110 15.5.15", "uri_too_long|headers_too_large", rawTarget("/v1/pets/" + repeat("7", 256<<10))},
		{"absolute form with a query", "9112 3.2.2", "GET /v1/pets?limit=5 0", rawTarget("http://a/v1/pets?limit=5")},
		{"absolute form in HTTP/1.0", "9112 3.2.2", "GET /v1/pets 0; close", rawStart("GET http://a/v1/pets HTTP/1.0")},
		{"absolute form, at sign in the path", "3986 3.3", "GET /v1/pets/@7 0", rawTarget("http://a/v1/pets/@7")},
		{"absolute form without Host", "9112 3.2", bad, rawBare("GET http://a/v1/pets HTTP/1.1", authorization)},
	},
	alike(
		"paths that are almost one of ours", "9110 15.5.5, 3986 6.2", "no_such_route", rawTarget,
		"/", "/v1", "/pets", "/v2/pets", "/v1/pets/", "/v1/pets/7/", "/v1/pets/7/toys", "/V1/PETS", "/v1/pets;a=b", "/v1/pets.",
		"/docs/", "/DOCS", "/docs;a=b", "/docs/evil", "/metrics", "/debug/pprof/heap",
	),
	alike(
		"paths that a server may decode, or not", "3986 6.2.2", "no_such_route|bad_request", rawTarget,
		"/v1/p%65ts", "/v1%c0%afpets", "/v1/%252e%252e/pets", "/d%6fcs", "http://a", "http://a?limit=5",
	),
	alike(
		"segments that others would remove", "3986 3.3, 5.2.4", bad, rawTarget,
		"//docs", "/v1/../docs", "//v1/pets", "//evil/v1/pets", "/v1//pets", "/v1/pets//", "/v1/./pets", "/v1/pets/.",
		"/v1/evil/../pets", "/v1/pets/..", "/../v1/pets", "/v1/pets/..?a", "/v1/pets/%2e", "/v1/%2e%2e/v1/pets", "/v1/%2E%2E/v1/pets",
		"/v1/.%2e/v1/pets", "/v1/.%2e;p=1/pets", "/v1/pets/..;a/7", "/v1/pets/[7]", "http://a//v1/pets", "http://a/v1/../v1/pets", "/http://a/v1/pets",
	),
	alike(
		"encodings", "3986 2.1, 2.2", bad, rawTarget,
		"/v1%2fpets", "/v1/pets%2F7", "/v1/pets/%5c7", "/v1/pets/%5C7", "/v1/pets/7%00", "/v1/pets/7%0d%0aX:evil", "/v1/pets/7%0a",
		"/v1/pets/7%7f", "/v1/pets/%", "/v1/pets/%2", "/v1/pets/%zz", "/v1/pets/%u0037",
	),
	alike(
		"bytes and forms that no target has", "9112 3.2, 3986 2", bad, rawTarget,
		`/v1\pets`, `/v1/..\v1/pets`, "/v1/pets#evil", "/v1/pets?a=b#evil", "/v1/pets/7 8", "/v1/\rpets", "/v1/pets\x00", "/v1/pets?a=\x00",
		"/v1/pets?a=b c", "/v1/pets/7\t", "/v1/pets/\x01", "/v1/pets?a=\x1b[2J", "/v1/pets/\x7f", "/v1/pets/\xc3\xa9", "/v1/pets?a=\xc3\xa9", "/v1/pets/\xe9",
		`/v1/pets/"7"`, "/v1/pets/<script>", "/v1/pets/{petId}", "/v1/pets/7|8", "/v1/pets/^7", "/v1/pets/`7`", `/v1/pets?a="b"`,
		"/v1/pets?a=<script>", "v1/pets", "?limit=5", "./v1/pets", `\v1\pets`, "http://a/v1/pets#evil", "a:80", "*", "*/v1/pets",
	),
	alike(
		"absolute form", "9112 3.2.2", ok, rawTarget,
		"http://a/v1/pets", "https://a/v1/pets", "HTTP://a/v1/pets", "http://a:8080/v1/pets", "http://[::1]/v1/pets",
		"http://evil/v1/pets",
	),
	alike(
		"absolute form that is not http, or has a bad host", "9110 4.2, 3986 3.2", bad, rawTarget,
		"http://evil:pw@a/v1/pets", "http://evil@a/v1/pets", "http://@a/v1/pets", `http://evil\@a/v1/pets`, "http:///v1/pets",
		"http://:80/v1/pets", "http:/v1/pets", "http:v1/pets", "http://a:http/v1/pets", "http://a:65536/v1/pets",
		"http://[::1/v1/pets", "http://[::1]evil/v1/pets", "http://a%2fevil/v1/pets", "http://a%00/v1/pets", "ftp://a/v1/pets",
		"file:///v1/pets", "1http://a/v1/pets", "://a/v1/pets",
	),
)

// hosts holds the forms of the Host field.
var hosts = slices.Concat(
	[]attack{
		{"name in small letters", "9110 5.1", ok, rawHost("host: a")},
		{"host with an empty port", "3986 3.2.3", "GET /v1/pets 0|bad_request", rawHost("Host: a:")},
		{"host with an encoded letter", "3986 3.2.2", "GET /v1/pets 0|bad_request", rawHost("Host: %61")},
		{"no host", "9112 3.2", bad, rawBare("GET /v1/pets HTTP/1.1", authorization)},
		{"no host in HTTP/1.0", "9112 3.2", "GET /v1/pets 0; close", rawBare("GET /v1/pets HTTP/1.0", authorization)},
		{"bad host in HTTP/1.0", "9112 3.2", bad, rawBare("GET /v1/pets HTTP/1.0", "Host: evil@a", authorization)},
		{"two equal hosts", "9112 3.2", bad, keyless("GET /v1/pets HTTP/1.1", "Host: a", authorization)},
		{"two hosts in two cases", "9112 3.2", bad, keyless("GET /v1/pets HTTP/1.1", "hOST: evil", authorization)},
		{"second host hidden by a space", "9112 5.1", bad, keyless("GET /v1/pets HTTP/1.1", "Host : evil", authorization)},
	},
	alike(
		"hosts", "9110 7.2, 3986 3.2.2", ok, hostIs,
		"a:8080", "PETS.EXAMPLE", " \ta\t ", "a_b", "127.0.0.1:8080", "[::1]", "[2001:db8::1]:8080",
	),
	alike(
		"malformed hosts", "9110 7.2, 3986 3.2", bad, hostIs,
		"", "\t ", "a, evil", "evil@a", "evil:pw@a", "@a", "http://a", "a/evil", "a?evil", "a#evil", `a\evil`, "a evil", "a\tevil",
		"a\x00evil", "\xc3\xa4.example", `"a"`, "<a>", "{a}", "a%00", "a%zz", "a:http", "a:-1", "a:65536", "a:80:80", ":80",
		"2001:db8::1", "[::1", "::1]", "[evil]", "[]", "[::1]evil", "[fe80::1%25eth0]", "[fe80::1%eth0]",
		"[192.0.2.1]", repeat("a", 256),
	),
)
