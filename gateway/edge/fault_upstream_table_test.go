package edge_test

// fault is one way in which an upstream goes wrong, and the answer that the client gets.
type fault struct {
	name   string
	says   string // written when a request has been read
	hangs  bool   // then nothing more, instead of closing
	status int    // of the answer to GET
	code   string // its code; "" = the answer is the upstream's own
	body   string // of the upstream's own answer
	twice  bool   // GET may be tried a second time: the connection died before any byte came back
}

// In each entry of faults, the gateway has to notice something different.
var faults = []fault{
	{name: "closes before answering", status: 502, code: "upstream_failed", twice: true},
	{name: "hangs before answering", hangs: true, status: 504, code: "upstream_timeout"},
	{name: "closes in the status line", says: "HTTP/1.1 20", status: 502, code: "upstream_failed"},
	{name: "hangs in the status line", says: "HTTP/1.1 20", hangs: true, status: 504, code: "upstream_timeout"},
	{name: "closes in the fields", says: "HTTP/1.1 200 OK\r\nX: y\r\n", status: 502, code: "upstream_failed"},
	{name: "hangs in the fields", says: "HTTP/1.1 200 OK\r\nX: y\r\n", hangs: true, status: 504, code: "upstream_timeout"},
	{name: "closes before content", says: says("Content-Length: 5"), status: 502, code: "upstream_failed"},
	{name: "closes in content", says: says("Content-Length: 5") + "evi", status: 502, code: "upstream_failed"},
	{name: "hangs in content", says: says("Content-Length: 5") + "evi", hangs: true, status: 504, code: "upstream_timeout"},
	{name: "closes in a chunk", says: says("Transfer-Encoding: chunked") + "5\r\nevi", status: 502, code: "upstream_failed"},
	{name: "closes between chunks", says: says("Transfer-Encoding: chunked") + "4\r\nevil\r\n", status: 502, code: "upstream_failed"},
	{
		name: "hangs between chunks", says: says("Transfer-Encoding: chunked") + "4\r\nevil\r\n", hangs: true,
		status: 504, code: "upstream_timeout",
	},

	{name: "garbage", says: "\x00\x01\x02\xff evil\r\n\r\n", status: 502, code: "upstream_failed"},
	{name: "greets as SSH", says: "SSH-2.0-OpenSSH_9.9\r\n", status: 502, code: "upstream_failed"},
	{name: "greets as SSH and waits", says: "SSH-2.0-OpenSSH_9.9\r\n", hangs: true, status: 502, code: "upstream_failed"},
	{name: "speaks HTTP/2", says: "\x00\x00\x06\x04\x00\x00\x00\x00\x00", hangs: true, status: 502, code: "upstream_failed"},
	{
		name: "204 with a length", says: "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n", hangs: true, status: 502,
		code: "upstream_failed",
	},
	{
		name: "204 with chunks", says: "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
		status: 502, code: "upstream_failed",
	},
	{name: "alerts as TLS", says: "\x15\x03\x01\x00\x02\x02\x46", status: 502, code: "upstream_failed"},
	{name: "content without a head", says: "<html>evil</html>", status: 502, code: "upstream_failed"},
	{name: "status that is no number", says: "HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n", status: 502, code: "upstream_failed"},
	{name: "status of two digits", says: "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n", status: 502, code: "upstream_failed"},
	{name: "status of four digits", says: "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", status: 502, code: "upstream_failed"},
	{name: "status below 100", says: "HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n", status: 502, code: "upstream_failed"},
	{name: "status past 599", says: "HTTP/1.1 999 OK\r\nContent-Length: 0\r\n\r\n", status: 502, code: "upstream_failed"},
	{name: "version of HTTP/2", says: "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", status: 502, code: "upstream_failed"},
	{name: "field without a colon", says: says("evil", "Content-Length: 0"), status: 502, code: "upstream_failed"},
	{name: "NUL in a field", says: says("X: ev\x00il", "Content-Length: 0"), status: 502, code: "upstream_failed"},
	{
		name: "length and chunks", says: says("Content-Length: 5", "Transfer-Encoding: chunked") + helloChunks,
		status: 502, code: "upstream_failed",
	},
	{
		name: "chunks and length", says: says("Transfer-Encoding: chunked", "Content-Length: 5") + helloChunks,
		status: 502, code: "upstream_failed",
	},
	{name: "two lengths", says: says("Content-Length: 2", "Content-Length: 5") + "hello", status: 502, code: "upstream_failed"},
	{name: "list of lengths", says: says("Content-Length: 2, 5") + "hello", status: 502, code: "upstream_failed"},
	{name: "negative length", says: says("Content-Length: -1") + "hello", status: 502, code: "upstream_failed"},
	{name: "length of letters", says: says("Content-Length: five") + "hello", status: 502, code: "upstream_failed"},
	{name: "length past int64", says: says("Content-Length: 9223372036854775808") + "hello", status: 502, code: "upstream_failed"},
	{
		name: "coding it was not asked for", says: says("Transfer-Encoding: gzip, chunked") + helloChunks,
		status: 502, code: "upstream_failed",
	},
	{name: "chunk size of letters", says: says("Transfer-Encoding: chunked") + "evil\r\n", status: 502, code: "upstream_failed"},
	{
		name: "no line end after a chunk", says: says("Transfer-Encoding: chunked") + "2\r\nevil0\r\n\r\n",
		status: 502, code: "upstream_failed",
	},
	{name: "fields of 1 MB", says: says("X: " + repeat("a", 1<<20)), status: 502, code: "upstream_failed"},
	{name: "ten thousand fields", says: says(numbered("X-", 10000)...), status: 502, code: "upstream_failed"},
	{name: "announces too much content", says: says("Content-Length: 1073741824") + "evil", status: 502, code: "upstream_failed"},
	{
		name:   "chunks of too much content",
		says:   says("Transfer-Encoding: chunked") + repeat("1000\r\n"+repeat("a", 4096)+"\r\n", 3*answerMax/4096),
		status: 502, code: "upstream_failed",
	},
	{name: "too much content until it closes", says: says() + repeat("a", 3*answerMax), status: 502, code: "upstream_failed"},
	{
		name: "switches protocols unasked",
		says: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: evil\r\n\r\n", status: 502,
		code: "upstream_failed",
	},
	{
		name: "interim responses without end",
		says: repeat("HTTP/1.1 103 Early Hints\r\nLink: evil\r\n\r\n", 10000), status: 502,
		code: "upstream_failed",
	},
	{name: "interim response and nothing after it", says: "HTTP/1.1 100 Continue\r\n\r\n", status: 502, code: "upstream_failed"},

	{name: "one interim response", says: "HTTP/1.1 100 Continue\r\n\r\n" + says("Content-Length: 2") + "[]", status: 200, body: "[]"},
	{
		name: "early hints",
		says: "HTTP/1.1 103 Early Hints\r\nLink: evil\r\n\r\n" + says("Content-Length: 2") + "[]", status: 200,
		body: "[]",
	},
	{name: "content until it closes", says: says() + "[]", status: 200, body: "[]"},
	{name: "HTTP/1.0", says: "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n[]", status: 200, body: "[]"},
	{name: "chunks", says: says("Transfer-Encoding: chunked") + "1\r\n[\r\n1\r\n]\r\n0\r\n\r\n", status: 200, body: "[]"},
	{
		name:   "chunks and a trailer",
		says:   says("Transfer-Encoding: chunked", "Trailer: X-Sum") + "2\r\n[]\r\n0\r\nX-Sum: evil\r\n\r\n",
		status: 200, body: "[]",
	},
	{name: "more than its length", says: says("Content-Length: 2") + "[]evil", status: 200, body: "[]"},
	{
		name: "a second response", says: says("Content-Length: 2") + "[]" + says("Content-Length: 4") + "evil",
		hangs: true, status: 200, body: "[]",
	},
	{name: "our own fields", says: says("Content-Length: 2",
		"X-RateLimit-Limit: evil", "X-RateLimit-Remaining: evil", "X-RateLimit-Reset: evil",
		"RateLimit: evil", "RateLimit-Policy: evil", "X-Request-Id: evil") + "[]", status: 200, body: "[]"},
	{name: "hop-by-hop fields", says: says("Content-Length: 2",
		"Connection: X-Hop", "X-Hop: evil", "Keep-Alive: evil", "Proxy-Connection: evil",
		"Upgrade: evil", "TE: evil", "Trailer: X-evil", "Proxy-Authenticate: evil") + "[]", status: 200, body: "[]"},
	{
		name: "401, which is about the gateway", says: "HTTP/1.1 401 Evil\r\nWWW-Authenticate: evil\r\nContent-Length: 4\r\n\r\nevil",
		status: 502, code: "upstream_refused",
	},
	{
		name: "its own 503",
		says: "HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", status: 503,
		body: "{}",
	},
	{
		name: "its own 429",
		says: "HTTP/1.1 429 Slow\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", status: 429,
		body: "{}",
	},
}
