package edge_test

// credentials holds the forms of Authorization and the states of keys.
var credentials = []attack{
	{"scheme in small letters", "9110 11.1", ok, rawKey("Authorization: bearer " + token)},
	{"scheme in capitals", "9110 11.1", ok, rawKey("Authorization: BEARER " + token)},
	{"name in small letters", "9110 5.1", ok, rawKey("authorization: Bearer " + token)},
	{"blanks after the token", "9112 5.1", ok, rawKey("Authorization: Bearer " + token + " \t")},
	{
		"two spaces before the token", "9110 11.4", "GET /v1/pets 0|malformed_api_key",
		rawKey("Authorization: Bearer  " + token),
	},
	{
		"tab before the token", "9110 11.4", "malformed_api_key|missing_api_key",
		rawKey("Authorization: Bearer\t" + token),
	},
	{"no Authorization", "6750 3", "missing_api_key", rawBare("GET /v1/pets HTTP/1.1", "Host: a")},
	{"empty Authorization", "6750 3", "missing_api_key", rawKey("Authorization:")},
	{"scheme alone", "6750 2.1", "missing_api_key|malformed_api_key", rawKey("Authorization: Bearer")},
	{"token alone", "6750 2.1", "missing_api_key|malformed_api_key", rawKey("Authorization: " + token)},
	{
		"no space between scheme and token", "6750 2.1", "missing_api_key|malformed_api_key",
		rawKey("Authorization: Bearer" + token),
	},
	{"Basic", "9110 11.1", "missing_api_key|malformed_api_key", rawKey("Authorization: Basic dXNlcjpwdw==")},
	{"Basic with a token", "9110 11.1", "missing_api_key|malformed_api_key", rawKey("Authorization: Basic " + token)},
	{"Digest", "9110 11.1", "missing_api_key|malformed_api_key", rawKey(`Authorization: Digest username="a"`)},
	{"token in quotes", "6750 2.1", "malformed_api_key", rawKey(`Authorization: Bearer "` + token + `"`)},
	{"token named as a parameter", "6750 2.1", "malformed_api_key", rawKey("Authorization: Bearer token=" + token)},
	{"token and a second word", "6750 2.1", "malformed_api_key", rawKey("Authorization: Bearer " + token + " evil")},
	{
		"two tokens in one field", "6750 2.1", "malformed_api_key",
		rawKey("Authorization: Bearer " + token + ", Bearer " + token),
	},
	{"two equal Authorization fields", "9110 5.3", bad, rawGet(authorization)},
	{"two different Authorization fields", "9110 5.3", bad, rawGet("Authorization: Bearer evil")},
	{"second Authorization in small letters", "9110 5.3", bad, rawGet("authorization: Basic evil")},
	{"second Authorization is empty", "9110 5.3", bad, rawGet("Authorization:")},
	{
		"token of another vendor", "ours", "malformed_api_key",
		rawKey("Authorization: Bearer sk_live_4eC39HqLyjWDarjtT1zdp7dc"),
	},
	{"token cut off", "ours", "malformed_api_key", rawKey("Authorization: Bearer " + token[:46])},
	{"token with one character more", "ours", "malformed_api_key", rawKey("Authorization: Bearer " + token + "0")},
	{"token with a wrong checksum", "ours", "malformed_api_key", rawKey("Authorization: Bearer " + mistyped(token))},
	{"token in capitals", "ours", "malformed_api_key", rawKey("Authorization: Bearer " + upper(token))},
	{"token with non-ASCII", "6750 2.1", "malformed_api_key", rawKey("Authorization: Bearer " + token[:46] + "\xe9")},
	{
		"token with an encoded character", "6750 2.1", "malformed_api_key",
		rawKey("Authorization: Bearer %70" + token[1:]),
	},
	{"token of 4 kB", "6750 2.1", "malformed_api_key", rawKey("Authorization: Bearer " + repeat("a", 4096))},
	{"unknown token", "6750 3.1", "invalid_api_key", rawKey("Authorization: Bearer " + unknownToken)},
	{"token of the other environment", "6750 3.1", "invalid_api_key", rawKey("Authorization: Bearer " + testToken)},
	{"revoked key", "6750 3.1", "invalid_api_key", rawKey("Authorization: Bearer " + revokedToken)},
	{"expired key", "6750 3.1", "invalid_api_key", rawKey("Authorization: Bearer " + expiredToken)},
	{"banned key", "6585 4", "key_banned", rawKey("Authorization: Bearer " + bannedToken)},
	{"key of a suspended tenant", "9110 15.5.4", "tenant_suspended", rawKey("Authorization: Bearer " + suspendedToken)},
	{
		"key of a tenant without limits", "9110 15.5.4", "quota_not_set",
		rawKey("Authorization: Bearer " + limitlessToken),
	},
	{
		"key for other addresses", "9110 15.5.4", "address_not_allowed",
		rawKey("Authorization: Bearer " + elsewhereToken),
	},
	{
		"key for other addresses and a forged forwarder", "7239 8.1", "address_not_allowed",
		rawKey("Authorization: Bearer "+elsewhereToken, "X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1",
			"X-Real-IP: 192.0.2.1"),
	},
	{"key with its minute used up", "6585 4", "minute_quota_exceeded", rawKey("Authorization: Bearer " + usedUpToken)},
	{
		"key that may not write", "6750 3.1", "insufficient_scope",
		rawBare("POST /v1/pets HTTP/1.1", "Host: a", "Authorization: Bearer "+readerToken, "Content-Length: 4") +
			"evil",
	},
	{"key that may not write reads", "6750 3.1", ok, rawKey("Authorization: Bearer " + readerToken)},
	{
		"token in the query", "6750 2.3", "missing_api_key",
		rawBare("GET /v1/pets?access_token="+token+" HTTP/1.1", "Host: a"),
	},
	{
		"token in the content", "6750 2.2", "missing_api_key",
		rawBare("POST /v1/pets HTTP/1.1", "Host: a", "Content-Type: application/x-www-form-urlencoded",
			"Content-Length: 60") +
			"access_token=" + token,
	},
	{"token in X-Api-Key", "6750 2.1", "missing_api_key", rawKey("X-Api-Key: " + token)},
	{"token in a cookie", "6750 2.1", "missing_api_key", rawKey("Cookie: Authorization=" + token)},
	{"token for a proxy", "9110 11.7.2", "missing_api_key", rawKey("Proxy-Authorization: Bearer " + token)},
	{"token in an underscore twin", "ours", "missing_api_key", rawKey("Authorization_: Bearer " + token)},
	{"token in X-Authorization", "ours", "missing_api_key", rawKey("X-Authorization: Bearer " + token)},
	{"space before the colon of Authorization", "9112 5.1", bad, rawKey("Authorization : Bearer " + token)},
	{"NUL in the token", "9110 5.5", bad, rawKey("Authorization: Bearer " + token[:20] + "\x00" + token[21:])},
	{
		"unknown key to an unknown path", "9110 15.5.2", "invalid_api_key",
		rawBare("GET /nowhere HTTP/1.1", "Host: a", "Authorization: Bearer "+unknownToken),
	},
	{
		"no key with a method not allowed", "9110 15.5.2", "missing_api_key",
		rawBare("DELETE /v1/pets HTTP/1.1", "Host: a"),
	},
	{"no key, HEAD", "9110 9.3.2", "missing_api_key", rawBare("HEAD /v1/pets HTTP/1.1", "Host: a")},
	{"no key, HTTP/1.0", "9110 15.5.2", "missing_api_key; close", rawBare("GET /v1/pets HTTP/1.0", "Host: a")},
}

// fields has the fields that the gateway may forward, and those that it may not. What contains "evil" must not reach the
// upstream; what contains "kept" must.
var fields = []attack{
	{
		"end-to-end fields", "9110 7.6", ok,
		rawGet("Accept: kept/1", "Accept-Language: kept", "User-Agent: kept", `If-None-Match: "kept"`),
	},
	{"repeated field", "9110 5.3", ok, rawGet("X: kept1", "X: kept2")},
	{"cookies", "6265 5.4", ok, rawGet("Cookie: a=kept; b=kept")},
	{
		"content fields", "9110 8", posted,
		rawPost("Content-Language: kept", "Content-Encoding: kept", "Content-Length: 5") + "hello",
	},
	{"Connection: close", "9112 9.6", "GET /v1/pets 0; close", rawGet("Connection: close")},
	{"Connection: CLOSE", "9112 9.6", "GET /v1/pets 0; close", rawGet("Connection: CLOSE")},
	{"close in a list", "9112 9.6", "GET /v1/pets 0; close", rawGet("Connection: keep-alive, close")},
	{
		"close in the second Connection", "9112 9.6", "GET /v1/pets 0; close",
		rawGet("Connection: keep-alive", "Connection: close"),
	},
	{
		"close, then keep-alive", "9112 9.6", "GET /v1/pets 0; close",
		rawGet("Connection: close", "Connection: keep-alive"),
	},
	{
		"close and keep-alive in HTTP/1.0", "9112 9.6", "GET /v1/pets 0; close",
		rawStart("GET /v1/pets HTTP/1.0", "Connection: keep-alive, close"),
	},
	{"empty Connection", "9110 7.6.1", ok, rawGet("Connection:")},
	{"field named by Connection", "9110 7.6.1", ok, rawGet("Connection: X-Hop", "X-Hop: evil")},
	{"field named by Connection in another case", "9110 7.6.1", ok, rawGet("X-Hop: evil", "Connection: x-hOP")},
	{
		"field named by the second Connection", "9110 7.6.1", ok,
		rawGet("Connection: keep-alive", "X-Hop: evil", "Connection: a, X-Hop ,b"),
	},
	{"key named by Connection", "9110 7.6.1", "GET /v1/pets 0|bad_request", rawGet("Connection: Authorization")},
	{"host named by Connection", "9110 7.6.1", "GET /v1/pets 0|bad_request", rawGet("Connection: Host")},
	{
		"our fields named by Connection", "9110 7.6.1", ok,
		rawGet("Connection: X-Tenant-Id, X-Key-Id, X-Plan, X-Request-Id, X-Forwarded-For, traceparent"),
	},
	{"Connection of junk", "9110 7.6.1", "GET /v1/pets 0|bad_request", rawGet("Connection: ,;=\"evil")},
	{"Keep-Alive", "9110 7.6.1", ok, rawGet("Keep-Alive: timeout=evil")},
	{"Proxy-Connection", "9110 7.6.1", ok, rawGet("Proxy-Connection: evil")},
	{"Proxy-Authorization", "9110 11.7.2", ok, rawGet("Proxy-Authorization: Basic evil")},
	{"TE", "9110 10.1.4", ok, rawGet("TE: trailers, evil")},
	{"Trailer of a request without one", "9110 6.6.2", "GET /v1/pets 0|bad_request", rawGet("Trailer: X-evil")},
	{
		"upgrade to a websocket", "9110 7.8", ok,
		rawGet("Connection: Upgrade", "Upgrade: evil", "Sec-WebSocket-Version: 13"),
	},
	{
		"upgrade to HTTP/2", "9110 7.8", ok,
		rawGet("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c-evil", "HTTP2-Settings: evil"),
	},
	{"upgrade not named by Connection", "9110 7.8", ok, rawGet("Upgrade: evil")},
	{"tenant", "ours", ok, rawGet("X-Tenant-Id: evil")},
	{"tenant in small letters", "ours", ok, rawGet("x-tenant-id: evil")},
	{"tenant with underscores", "ours", ok, rawGet("X_Tenant_Id: evil")},
	{"tenant with one underscore", "ours", ok, rawGet("X-Tenant_Id: evil")},
	{"key ID", "ours", ok, rawGet("X-Key-Id: evil")},
	{"plan", "ours", ok, rawGet("X-Plan: evil")},
	{"plan with underscores", "ours", ok, rawGet("X_PLAN: evil")},
	{
		"forwarding fields", "7239 8.1", ok,
		rawGet("X-Forwarded-For: evil", "X-Forwarded-Proto: evil", "X-Forwarded-Host: evil", "Forwarded: for=evil"),
	},
	{
		"forwarding fields of other makers", "7239 8.1", ok,
		rawGet("X-Forwarded-Port: evil", "X-Real-IP: evil", "X-Forwarded-Server: evil"),
	},
	{"forwarding field with underscores", "7239 8.1", ok, rawGet("X_Forwarded_For: evil")},
	{"trace that is none", "trace-context 3.2", ok, rawGet("traceparent: evil")},
	{
		"trace of a version that is none", "trace-context 3.2", ok,
		rawGet("traceparent: ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate: evil=1"),
	},
	{
		"trace", "trace-context 3.2", ok,
		rawGet("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate: kept=1"),
	},
	{"two traces", "trace-context 3.2", ok, rawGet("traceparent: evil", "traceparent: evil")},
	{"request ID with a line of a log", "ours", ok, rawGet(`X-Request-Id: evil","status":200`)},
	{"host stays behind", "ours", ok, rawHost("Host: pets.example")},

	{"Expect", "9110 10.1.1", posted, rawPost("Expect: 100-continue", "Content-Length: 5") + "hello"},
	{"Expect in capitals", "9110 10.1.1", posted, rawPost("Expect: 100-Continue", "Content-Length: 5") + "hello"},
	{
		"Expect and chunks", "9110 10.1.1", posted,
		rawPost("Expect: 100-continue", "Transfer-Encoding: chunked") + helloChunks,
	},
	{"Expect without content", "9110 10.1.1", ok, rawGet("Expect: 100-continue")},
	{
		"Expect and no content to come", "9110 10.1.1", "POST /v1/pets 0",
		rawPost("Expect: 100-continue", "Content-Length: 0"),
	},
	{
		"Expect in HTTP/1.0", "9110 10.1.1", "POST /v1/pets 5; close",
		rawStart("POST /v1/pets HTTP/1.0", "Expect: 100-continue", "Content-Length: 5") + "hello",
	},
	{"other expectation", "9110 10.1.1", "expectation_failed", rawPost("Expect: evil", "Content-Length: 5") + "hello"},
	{"other expectation of GET", "9110 10.1.1", "expectation_failed", rawGet("Expect: evil")},
	{
		"expectation with a parameter", "9110 10.1.1", "expectation_failed",
		rawPost("Expect: 100-continue;a=b", "Content-Length: 5") + "hello",
	},
	{
		"two expectations", "9110 10.1.1", "expectation_failed|bad_request",
		rawPost("Expect: 100-continue", "Expect: evil", "Content-Length: 5") + "hello",
	},
	{
		"expectations in a list", "9110 10.1.1", "expectation_failed",
		rawPost("Expect: 100-continue, evil", "Content-Length: 5") + "hello",
	},
	{
		"Expect of too much", "9110 10.1.1", "body_too_large",
		rawPost("Expect: 100-continue", "Content-Length: "+decimal(bodyMax+1)),
	},
	{
		"Expect of broken chunks", "9110 10.1.1", bad,
		rawPost("Expect: 100-continue", "Transfer-Encoding: chunked") + "x\r\nhello\r\n0\r\n\r\n",
	},

	{"ninety fields", "6585 5", ok, rawGet(numbered("X-", 90)...)},
	{"a thousand fields", "6585 5", "headers_too_large", rawGet(numbered("X-", 1000)...)},
	{"a thousand equal fields", "6585 5", "headers_too_large", rawGet(times("X: y", 1000)...)},
	{"ten thousand fields", "6585 5", "headers_too_large", rawGet(numbered("X-", 10000)...)},
	{"field of 64 kB", "6585 5", "headers_too_large", rawGet("X: " + repeat("a", 64<<10))},
	{"name of 64 kB", "6585 5", "headers_too_large", rawGet(repeat("a", 64<<10) + ": y")},
	{"cookie of 64 kB", "6585 5", "headers_too_large", rawGet("Cookie: a=" + repeat("a", 64<<10))},
	{"fields of 1 MB", "6585 5", "headers_too_large", rawGet(times("X-Filler: "+repeat("a", 1000), 1000)...)},
	{"field of 4 kB", "6585 5", ok, rawGet("X: kept" + repeat("a", 4<<10))},
	{
		"Connection that names a hundred fields", "9110 7.6.1", "GET /v1/pets 0|headers_too_large|bad_request",
		rawGet("Connection: "+repeat("a,", 100)+"X-Hop", "X-Hop: evil"),
	},
	{
		"Connection that names thousands of fields", "6585 5", "headers_too_large",
		rawGet(append(numbered("X-", 90), "Connection: "+repeat("a,", 5000))...),
	},
	{"line that never ends", "6585 5", "headers_too_large", "GET /v1/pets HTTP/1.1\r\nX: " + repeat("a", 1<<20)},
	{"request line that never ends", "9110 15.5.15", "uri_too_long|headers_too_large", "GET /" + repeat("a", 1<<20)},
	{"method that never ends", "9112 3", "bad_request|uri_too_long|headers_too_large", repeat("A", 1<<20)},
	{"empty lines that never end", "9112 2.2", "bad_request|uri_too_long|headers_too_large", repeat("\r\n", 1<<19)},
}
