package edge_test

import "slices"

// framing holds what decides where a request's content ends: Content-Length and Transfer-Encoding
// in every disguise.
var framing = slices.Concat(
	[]attack{
		{"content of no bytes", "9112 6.2", "POST /v1/pets 0", rawPost("Content-Length: 0")},
		{"POST without framing has no content", "9112 6.3", "POST /v1/pets 0", rawPost()},
		{"one past int64", "9112 6.3", "bad_request|body_too_large", rawPost("Content-Length: 9223372036854775808") + "hello"},
		{"wraps to five in uint32", "9112 6.3", "body_too_large", rawPost("Content-Length: 4294967301") + "hello"},
		{
			"as much as is allowed", "9110 15.5.14", "POST /v1/pets " + decimal(bodyMax),
			rawPost("Content-Length: "+decimal(bodyMax)) + repeat("x", bodyMax),
		},
		{
			"length in Content_Length frames nothing", "9112 6.3", "POST /v1/pets 0; bad_request",
			rawPost("Content_Length: 5") + "evil\r\n\r\n",
		},
		{"chunked in HTTP/1.0", "9112 6.1", bad, rawStart("POST /v1/pets HTTP/1.0", "Transfer-Encoding: chunked") + helloChunks},
		{"length in HTTP/1.0", "9112 6.2", "POST /v1/pets 5; close", rawStart("POST /v1/pets HTTP/1.0", "Content-Length: 5") + "hello"},
		{
			"chunked named by Connection", "9110 7.6.1", "POST /v1/pets 5|bad_request",
			rawPost("Transfer-Encoding: chunked", "Connection: Transfer-Encoding") + helloChunks,
		},
		{
			"length named by Connection", "9110 7.6.1", "POST /v1/pets 5|bad_request",
			rawPost("Content-Length: 5", "Connection: Content-Length") + "hello",
		},
	},
	alike(
		"length", "9110 8.6, 9112 5.1", posted, rawHello,
		"Content-Length: 5", "Content-Length: 0005", "Content-Length: 5 ", "Content-Length:\t5\t", "Content-Length:5",
		"content-length: 5", "CONTENT-LENGTH: 5", "Transfer_Encoding: evil, chunked\r\nContent-Length: 5",
		"TransferEncoding: chunked\r\nContent-Length: 5",
	),
	alike(
		"length that is no number",
		"9110 8.6",
		bad,
		rawHello,
		"Content-Length: 5\r\nContent-Length: 5",
		"Content-Length: 5, 5",
		"Content-Length: +5",
		"Content-Length: -5",
		"Content-Length: 0x5",
		"Content-Length: 5.0",
		"Content-Length: 5e0",
		"Content-Length: 0 5",
		"Content-Length: 0_5",
		`Content-Length: "5"`,
		"Content-Length:",
		"Content-Length: \t ",
		"Content-Length: \xef\xbc\x95",
		"Content-Length: \v5",
		"Content-Length: 5\f",
		"Content-Length: 5\x00",
		"Content-Length: -0",
		"Content-Length: a",
	),
	alike(
		"lengths that contradict each other, or a coding", "9112 6.1, 6.3", bad, rawHello,
		"Content-Length: 5\r\nContent-Length: 50", "Content-Length: 5\r\ncontent-length: 0", "Content-Length: 5, 0",
		"Transfer-Encoding: identity\r\nContent-Length: 5", "Transfer-Encoding:\r\nContent-Length: 5",
	),
	alike(
		"length on a line that is no field line", "9112 5", bad, rawHello,
		"Content-Length: 5\rX", "Content-Length : 5", "Content-Length\t: 5", "Content-Length\x00: 5", "X: y\r\n Content-Length: 5",
		"Content-Length:\r\n 5", "Content-Length: 0\r\n\t5", "Transfer-Encoding : chunked\r\nContent-Length: 5",
	),
	alike(
		"chunks",
		"9112 7.1",
		posted,
		rawHelloChunks,
		"Transfer-Encoding: chunked",
		"Transfer-Encoding: CHUNKED",
		"transfer-encoding: chunked",
		"Transfer-Encoding:\tchunked",
		"Transfer-Encoding: chunked \t ",
	),
	alike(
		"codings, or a coding and a length", "9112 6.1, 6.3", bad, rawHelloChunks,
		"Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5",
		"Transfer-Encoding: chunked\r\nContent-Length: 0", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, gzip",
		"Transfer-Encoding: chunked, chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: chunked,", "Transfer-Encoding: ,chunked",
	),
	alike(
		"coding that is not chunked",
		"9112 7",
		bad,
		rawHelloChunks,
		"Transfer-Encoding:",
		"Transfer-Encoding: identity",
		"Transfer-Encoding: gzip",
		"Transfer-Encoding: identity, chunked",
		"Transfer-Encoding: xchunked",
		"Transfer-Encoding: chunkedx",
		"Transfer-Encoding: chunked;q=1",
		`Transfer-Encoding: "chunked"`,
		"Transfer-Encoding: \vchunked",
		"Transfer-Encoding: chunked\x00",
		"Transfer-Encoding: chunked\xa0",
	),
	alike(
		"coding on a line that is no field line", "9112 5", bad, rawHelloChunks,
		"Transfer-Encoding : chunked", "X: y\r\n Transfer-Encoding: chunked", "Transfer-Encoding:\r\n chunked",
		"Content-Length: 5\r\nX: y\nTransfer-Encoding: chunked", "Content-Length: 5\r\nX: y\rTransfer-Encoding: chunked",
	),
)

// chunks holds the grammar of the chunked coding.
var chunks = slices.Concat(
	[]attack{
		{"three chunks", "9112 7.1", "POST /v1/pets 10", rawChunked("5\r\nhello\r\n1\r\n,\r\n4\r\n you\r\n0\r\n\r\n")},
		{"no chunk but the last", "9112 7.1", "POST /v1/pets 0", rawChunked("0\r\n\r\n")},
		{"size in small letters", "9112 7.1", "POST /v1/pets 10", rawChunked("a\r\nhello, you\r\n0\r\n\r\n")},
		{"size in capitals", "9112 7.1", "POST /v1/pets 10", rawChunked("A\r\nhello, you\r\n0\r\n\r\n")},
		{"content that looks like the last chunk", "9112 7.1", "POST /v1/pets 9", rawChunked("9\r\n0\r\n\r\nevil\r\n0\r\n\r\n")},
		{"size that wraps to five in uint32", "9112 7.1", "body_too_large", rawChunked("100000005\r\nhello\r\n0\r\n\r\n")},
		{"one chunk that is too large", "9110 15.5.14", "body_too_large", rawChunked(hexadecimal(bodyMax+1) + "\r\n")},
		{
			"second chunk that makes it too large", "9110 15.5.14", "body_too_large",
			rawChunked("5\r\nhello\r\n" + hexadecimal(bodyMax-4) + "\r\n"),
		},
		{
			"key only in the trailer", "9110 6.5.1", "missing_api_key|bad_request",
			keyless(
				"POST /v1/pets HTTP/1.1", "Transfer-Encoding: chunked",
			) + "5\r\nhello\r\n0\r\n" + authorization + "\r\n\r\n",
		},
	},
	alike(
		"a trailer that is too large", "9110 6.5", "bad_request|headers_too_large",
		func(fields string) string { return rawChunked("5\r\nhello\r\n0\r\n" + fields + "\r\n") },
		"X-Sum: "+repeat("a", 128<<10)+"\r\n", repeat("X-Sum: "+repeat("a", 40)+"\r\n", 1000), repeat("X: y\r\n", 1000),
	),
	alike(
		"sizes, extensions and a trailer", "9112 7.1", posted, rawChunked,
		"0005\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n000\r\n\r\n", "5;a\r\nhello\r\n0\r\n\r\n", "5;a=b\r\nhello\r\n0\r\n\r\n",
		"5;a=\"b;\\\"c\\\\\";d\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0;a=b\r\n\r\n", "5\r\nhello\r\n0\r\nX-Sum: evil\r\n\r\n",
	),
	alike(
		"what a server may accept", "9112 7.1", "POST /v1/pets 5|bad_request", rawChunked,
		repeat("0", 100)+"5\r\nhello\r\n0\r\n\r\n", "5 ;a\r\nhello\r\n0\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n",
		"5\r\nhello\r\n0\r\nX-Tenant-Id: evil\r\n\r\n",
	),
	alike(
		"extensions", "9112 7.1.1", bad, rawChunked,
		"5;a\nb\r\nhello\r\n0\r\n\r\n", "5;a\rb\r\nhello\r\n0\r\n\r\n", "5;a\x00\r\nhello\r\n0\r\n\r\n", "5;\r\nhello\r\n0\r\n\r\n",
		"5;bad[=x\r\nhello\r\n0\r\n\r\n", "5;a=\r\nhello\r\n0\r\n\r\n", "5;a;\r\nhello\r\n0\r\n\r\n", "5;a=\"b\r\nhello\r\n0\r\n\r\n",
		"5;a=\"b\\\r\nhello\r\n0\r\n\r\n", "5;a=\"b\"c\r\nhello\r\n0\r\n\r\n", "5;a = b\r\nhello\r\n0\r\n\r\n",
	),
	alike(
		"sizes past int64, and a long extension", "9112 7.1", "bad_request|body_too_large", rawChunked,
		"5;"+repeat("a", 64<<10)+"\r\nhello\r\n0\r\n\r\n", "10000000000000005\r\nhello\r\n0\r\n\r\n",
		"ffffffffffffffff\r\nhello\r\n0\r\n\r\n", "7fffffffffffffff\r\nhello\r\n0\r\n\r\n",
	),
	alike(
		"sizes, and line ends of chunks", "9112 7.1", bad, rawChunked,
		"0x5\r\nhello\r\n0\r\n\r\n", "+5\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n-0\r\n\r\n",
		" 5\r\nhello\r\n0\r\n\r\n", "\r\nhello\r\n0\r\n\r\n", ";a=b\r\nhello\r\n0\r\n\r\n", "g\r\nhello, hello, you\r\n0\r\n\r\n",
		"5g\r\nhello\r\n0\r\n\r\n", "5,5\r\nhello\r\n0\r\n\r\n", "5\x00\r\nhello\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n",
		"5\rhello\r\n0\r\n\r\n", "5\r\r\nhello\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhello\r0\r\n\r\n", "5\r\nhello0\r\n\r\n",
		"5\r\nhello!\r\n0\r\n\r\n", "6\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\n\r\n", "5\r\nhello\r\n0\r\n0\r\n\r\n",
	),
	alike(
		"trailers", "9112 7.1.2, 9110 6.5.1", bad, rawChunked,
		"5\r\nhello\r\n0\r\n\n"+rawGet(), "5\r\nhello\r\n0\r\nContent-Length: 0\r\n\r\n",
		"5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n0\r\nHost: evil\r\n\r\n",
		"5\r\nhello\r\n0\r\n"+authorization+"\r\n\r\n", "5\r\nhello\r\n0\r\nevil\r\n\r\n", "5\r\nhello\r\n0\r\n: evil\r\n\r\n",
		"5\r\nhello\r\n0\r\nX-Sum : evil\r\n\r\n", "5\r\nhello\r\n0\r\nX-Sum: a\r\n evil\r\n\r\n",
		"5\r\nhello\r\n0\r\nX-Sum: a\x00\r\n\r\n", "5\r\nhello\r\n0\r\nX-Sum: a\nY: evil\r\n\r\n",
	),
)
