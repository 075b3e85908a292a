package edge_test

import "slices"

// credentials holds the forms of Authorization and the states of keys.
var credentials = slices.Concat(
	[]attack{
		{"scheme in capitals", "9110 11.1", ok, rawKey("Authorization: BEARER " + token)},
		{"name in small letters", "9110 5.1", ok, rawKey("authorization: Bearer " + token)},
		{"blanks after the token", "9112 5.1", ok, rawKey("Authorization: Bearer " + token + " \t")},
		{"two spaces before the token", "9110 11.4", "GET /v1/pets 0|malformed_api_key", rawKey("Authorization: Bearer  " + token)},
		{"tab before the token", "9110 11.4", "malformed_api_key|missing_api_key", rawKey("Authorization: Bearer\t" + token)},
		{"no Authorization", "6750 3", "missing_api_key", keyless("GET /v1/pets HTTP/1.1")},
		{
			"key for other addresses and a forged forwarder", "7239 8.1", "address_not_allowed",
			rawKey("Authorization: Bearer "+elsewhereToken, "X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1",
				"X-Real-IP: 192.0.2.1"),
		},
		{
			"key that may not write", "6750 3.1", "insufficient_scope",
			keyless("POST /v1/pets HTTP/1.1", "Authorization: Bearer "+readerToken, "Content-Length: 4") + "evil",
		},
		{"key with another prefix than new ones", "6750 3.1", ok, rawBearer(renamedToken)},
		{"token in the query", "6750 2.3", "missing_api_key", rawBare("GET /v1/pets?access_token="+token+" HTTP/1.1", "Host: a")},
		{
			"token in the content", "6750 2.2", "missing_api_key",
			keyless(
				"POST /v1/pets HTTP/1.1", "Content-Type: application/x-www-form-urlencoded", "Content-Length: 60",
			) + "access_token=" + token,
		},
		{
			"unknown key to an unknown path", "9110 15.5.2", "invalid_api_key",
			keyless("GET /nowhere HTTP/1.1", "Authorization: Bearer "+unknownToken),
		},
		{"no key with a method not allowed", "9110 15.5.2", "missing_api_key", keyless("DELETE /v1/pets HTTP/1.1")},
	},
	alike(
		"no Authorization", "6750 2, 3", "missing_api_key", one(rawKey),
		"Authorization:", "X-Api-Key: "+token, "Cookie: Authorization="+token, "Proxy-Authorization: Bearer "+token,
		"Authorization_: Bearer "+token, "X-Authorization: Bearer "+token,
	),
	alike(
		"Authorization without a Bearer token", "6750 2.1, 9110 11.1", "missing_api_key|malformed_api_key", one(rawKey),
		"Authorization: Bearer", "Authorization: "+token, "Authorization: Bearer"+token, "Authorization: Basic dXNlcjpwdw==",
		"Authorization: Basic "+token, `Authorization: Digest username="a"`,
	),
	alike(
		"what is no token",
		"6750 2.1",
		"malformed_api_key",
		rawBearer,
		`"`+token+`"`,
		"token="+token,
		token+" evil",
		token+", Bearer "+token,
		"sk_live_4eC39HqLyjWDarjtT1zdp7dc",
		token[:46],
		token+"0",
		mistyped(token),
		upper(token),
		token[:46]+"\xe9",
		"%70"+token[1:],
		repeat("a", 4096),
	),
	alike(
		"second Authorization", "9110 5.3", bad, one(rawGet),
		authorization, "Authorization: Bearer evil", "authorization: Basic evil", "Authorization:",
	),
	alike(
		"key that is unknown, of the other environment or at its end", "6750 3.1", "invalid_api_key", rawBearer,
		unknownToken, testToken, revokedToken, expiredToken,
	),
)

// fields has the fields that the gateway may forward, and those that it may not. What contains
// "evil" must not reach the upstream; what contains "kept" must.
var fields = slices.Concat(
	[]attack{
		{"content fields", "9110 8", posted, rawPost("Content-Language: kept", "Content-Encoding: kept", "Content-Length: 5") + "hello"},
		{
			"close and keep-alive in HTTP/1.0", "9112 9.6", "GET /v1/pets 0; close",
			rawStart("GET /v1/pets HTTP/1.0", "Connection: keep-alive, close"),
		},
		{"host stays behind", "ours", ok, rawHost("Host: pets.example")},
		{"Expect in capitals", "9110 10.1.1", posted, rawPost("Expect: 100-Continue", "Content-Length: 5") + "hello"},
		{"Expect and chunks", "9110 10.1.1", posted, rawPost("Expect: 100-continue", "Transfer-Encoding: chunked") + helloChunks},
		{"Expect and no content to come", "9110 10.1.1", "POST /v1/pets 0", rawPost("Expect: 100-continue", "Content-Length: 0")},
		{
			"Expect in HTTP/1.0", "9110 10.1.1", "POST /v1/pets 5; close",
			rawStart("POST /v1/pets HTTP/1.0", "Expect: 100-continue", "Content-Length: 5") + "hello",
		},
		{"other expectation", "9110 10.1.1", "expectation_failed", rawPost("Expect: evil", "Content-Length: 5") + "hello"},
		{
			"two expectations", "9110 10.1.1", "expectation_failed|bad_request",
			rawPost("Expect: 100-continue", "Expect: evil", "Content-Length: 5") + "hello",
		},
		{
			"expectations in a list", "9110 10.1.1", "expectation_failed",
			rawPost("Expect: 100-continue, evil", "Content-Length: 5") + "hello",
		},
		{"Expect of too much", "9110 10.1.1", "body_too_large", rawPost("Expect: 100-continue", "Content-Length: "+decimal(bodyMax+1))},
		{
			"Expect of broken chunks", "9110 10.1.1", bad,
			rawPost("Expect: 100-continue", "Transfer-Encoding: chunked") + "x\r\nhello\r\n0\r\n\r\n",
		},
		{"ninety fields", "6585 5", ok, rawGet(numbered("X-", 90)...)},
		{"a thousand fields", "6585 5", "headers_too_large", rawGet(numbered("X-", 1000)...)},
		{"field of 64 kB", "6585 5", "headers_too_large", rawGet("X: " + repeat("a", 64<<10))},
		{"name of 64 kB", "6585 5", "headers_too_large", rawGet(repeat("a", 64<<10) + ": y")},
		{"field of 4 kB", "6585 5", ok, rawGet("X: kept" + repeat("a", 4<<10))},
		{
			"Connection that names a hundred fields", "9110 7.6.1", "GET /v1/pets 0|headers_too_large|bad_request",
			rawGet("Connection: "+repeat("a,", 100)+"X-Hop", "X-Hop: evil"),
		},
		{"line that never ends", "6585 5", "headers_too_large", "GET /v1/pets HTTP/1.1\r\nX: " + repeat("a", 1<<20)},
		{"request line that never ends", "9110 15.5.15", "uri_too_long|headers_too_large", "GET /" + repeat("a", 1<<20)},
		{"method that never ends", "9112 3", "bad_request|uri_too_long|headers_too_large", repeat("A", 1<<20)},
		{"empty lines that never end", "9112 2.2", "bad_request|uri_too_long|headers_too_large", repeat("\r\n", 1<<19)},
	},
	alike(
		"end-to-end fields", "9110 7.6", ok, one(rawGet),
		"Accept: kept/1\r\nAccept-Language: kept\r\nUser-Agent: kept\r\n"+`If-None-Match: "kept"`, "X: kept1\r\nX: kept2",
		"Cookie: a=kept; b=kept",
	),
	alike(
		"close", "9112 9.6", "GET /v1/pets 0; close", one(rawGet),
		"Connection: close", "Connection: CLOSE", "Connection: keep-alive, close", "Connection: keep-alive\r\nConnection: close",
		"Connection: close\r\nConnection: keep-alive",
	),
	alike(
		"Connection, and fields that it names", "9110 7.6.1", ok, one(rawGet),
		"Connection:", "Connection: X-Hop\r\nX-Hop: evil", "X-Hop: evil\r\nConnection: x-hOP",
		"Connection: keep-alive\r\nX-Hop: evil\r\nConnection: a, X-Hop ,b",
		"Connection: X-Tenant-Id, X-Key-Id, X-Plan, X-Request-Id, X-Forwarded-For, traceparent", "Keep-Alive: timeout=evil",
		"Proxy-Connection: evil",
	),
	alike(
		"Connection and Trailer without sense", "9110 7.6.1, 6.6.2", "GET /v1/pets 0|bad_request", one(rawGet),
		"Connection: Authorization", "Connection: Host", "Connection: ,;=\"evil", "Trailer: X-evil",
	),
	alike(
		"fields for the gateway itself",
		"9110 7.6.1, 7.8, 10.1",
		ok,
		one(rawGet),
		"Proxy-Authorization: Basic evil",
		"TE: trailers, evil\r\nHTTP2-Settings: evil",
		"Connection: Upgrade\r\nUpgrade: evil\r\nSec-WebSocket-Version: 13",
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c-evil\r\nHTTP2-Settings: evil",
		"Upgrade: evil",
		"Expect: 100-continue",
	),
	alike(
		"fields that only the gateway may set", "ours", ok, one(rawGet),
		"X-Tenant-Id: evil", "x-tenant-id: evil", "X_Tenant_Id: evil", "X-Tenant_Id: evil", "X-Key-Id: evil", "X-Plan: evil",
		"X_PLAN: evil", `X-Request-Id: evil","status":200`,
	),
	alike(
		"forwarding fields", "7239 8.1", ok, one(rawGet),
		"X-Forwarded-For: evil\r\nX-Forwarded-Proto: evil\r\nX-Forwarded-Host: evil\r\nForwarded: for=evil",
		"X-Forwarded-Port: evil\r\nX-Real-IP: evil\r\nX-Forwarded-Server: evil", "X_Forwarded_For: evil",
		"True-Client-IP: evil\r\nX-Client-IP: evil\r\nCF-Connecting-IP: evil", "Fastly-Client-IP: evil\r\nX-Cluster-Client-IP: evil",
		"Forwarded-For: evil\r\nClient-IP: evil\r\nX-Original-Host: evil\r\nX-Remote-IP: evil",
		"CF-Connecting-IPv6: evil\r\nFly-Client-IP: evil\r\nX-AppEngine-User-IP: evil", "X-Azure-ClientIP: evil\r\nX-Azure-SocketIP: evil",
		"X-Forwarded: evil\r\nX-Remote-Addr: evil\r\nX-Envoy-External-Address: evil", "x-original-forwarded-for: evil\r\nX-Host: evil",
	),
	alike(
		"fields that replace the method or the target", "9110 9.1", ok, one(rawGet),
		"X-HTTP-Method-Override: evil\r\nX-HTTP-Method: evil\r\nX-Method-Override: evil", "X-Original-URL: /evil\r\nX-Rewrite-URL: /evil",
		"X-Original-URI: /evil\r\nX-Original-Method: evil",
		"X-Gateway-Secret: evil",
	),
	alike(
		"traces", "trace-context 3.2", ok, one(rawGet),
		"traceparent: evil", "traceparent: ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\ntracestate: evil=1",
		"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\ntracestate: kept=1",
		"traceparent: evil\r\ntraceparent: evil",
	),
)
