package edge_test

// fault is one way in which an upstream goes wrong, and the answer that the client gets.
type fault struct {
	name  string
	says  string // written when a request has been read
	hangs bool   // then nothing more, instead of closing
	twice bool   // GET may be tried a second time: the connection died before any byte came back
	cut   bool   // the client gets the beginning of a body, and then the end of the connection
	want  string // the code of the refusal, or status and body of the upstream's own answer; empty: upstream_failed
}

// In each entry of faults, the gateway has to notice something different.
var faults = []fault{
	{name: "closes before answering", twice: true},
	{name: "hangs before answering", hangs: true, want: "upstream_timeout"},
	{name: "closes in the fields", says: "HTTP/1.1 200 OK\r\nX: y\r\n"},
	{name: "hangs in the fields", says: "HTTP/1.1 200 OK\r\nX: y\r\n", hangs: true, want: "upstream_timeout"},
	{name: "closes before content", says: says("Content-Length: 5")},
	{name: "closes in content", says: says("Content-Length: 5") + "evi"},
	{name: "closes in a chunk", says: says("Transfer-Encoding: chunked") + "5\r\nevi"},
	{name: "closes between chunks", says: says("Transfer-Encoding: chunked") + "4\r\nevil\r\n"},
	{name: "hangs between chunks", says: says("Transfer-Encoding: chunked") + "4\r\nevil\r\n", hangs: true, want: "upstream_timeout"},

	{name: "garbage", says: "\x00\x01\x02\xff evil\r\n\r\n"},
	{name: "greets as SSH and waits", says: "SSH-2.0-OpenSSH_9.9\r\n", hangs: true},
	{name: "204 with a length", says: "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n", hangs: true},
	{name: "status that is no number", says: "HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n"},
	{name: "status of four digits", says: "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n"},
	{name: "status below 100", says: "HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n"},
	{name: "status past 599", says: "HTTP/1.1 999 OK\r\nContent-Length: 0\r\n\r\n"},
	{name: "field without a colon", says: says("evil", "Content-Length: 0")},
	{name: "NUL in a field", says: says("X: ev\x00il", "Content-Length: 0")},
	{name: "length and chunks", says: says("Content-Length: 5", "Transfer-Encoding: chunked") + helloChunks},
	{name: "two lengths", says: says("Content-Length: 2", "Content-Length: 5") + "hello"},
	{name: "length of letters", says: says("Content-Length: five") + "hello"},
	{name: "length past int64", says: says("Content-Length: 9223372036854775808") + "hello"},
	{name: "coding it was not asked for", says: says("Transfer-Encoding: gzip, chunked") + helloChunks},
	{name: "chunk size of letters", says: says("Transfer-Encoding: chunked") + "evil\r\n"},
	{name: "no line end after a chunk", says: says("Transfer-Encoding: chunked") + "2\r\nevil0\r\n\r\n"},
	{name: "fields of 1 MB", says: says("X: " + repeat("a", 1<<20))},
	{name: "announces too much content", says: says("Content-Length: 1073741824") + "evil"},
	{name: "closes in long content", says: says("Content-Length: 100000") + long[:90_000], cut: true},
	{name: "hangs in long content", says: says("Content-Length: 100000") + long[:90_000], hangs: true, want: "upstream_timeout", cut: true},
	{name: "closes at the beginning of long content", says: says("Content-Length: 100000"), cut: true},
	{name: "closes in a chunk of long content", says: says("Transfer-Encoding: chunked") + "186a0\r\n" + long[:90_000], cut: true},
	{name: "closes between chunks of long content", says: says("Transfer-Encoding: chunked") + "186a0\r\n" + long + "\r\n", cut: true},
	{name: "closes before the last line of long content", says: says("Transfer-Encoding: chunked") + "186a0\r\n" + long + "\r\n0\r\n", cut: true},
	{name: "hangs between chunks of long content", says: says("Transfer-Encoding: chunked") + "186a0\r\n" + long + "\r\n", hangs: true, want: "upstream_timeout", cut: true},
	{name: "sends a wrong chunk in long content", says: says("Transfer-Encoding: chunked") + "186a0\r\n" + long + "evil", cut: true},
	{name: "closes in a stream of events", says: events("Transfer-Encoding: chunked") + "6\r\ndata:", cut: true},
	{name: "closes between two events", says: events("Transfer-Encoding: chunked") + "8\r\ndata: 1\n\r\n", cut: true},
	{name: "chunks of too much content", says: says("Transfer-Encoding: chunked") + repeat("1000\r\n"+repeat("a", 4096)+"\r\n", 3*answerMax/4096), cut: true},
	{name: "too much content until it closes", says: says() + repeat("a", 3*answerMax), cut: true},
	{name: "switches protocols unasked", says: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: evil\r\n\r\n"},
	{name: "interim responses without end", says: repeat("HTTP/1.1 103 Early Hints\r\nLink: evil\r\n\r\n", 10000)},

	{name: "one interim response", says: "HTTP/1.1 100 Continue\r\n\r\n" + says("Content-Length: 2") + "[]", want: "200 []"},
	{name: "content until it closes", says: says() + "[]", want: "200 []"},
	{name: "HTTP/1.0", says: "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n[]", want: "200 []"},
	{name: "chunks", says: says("Transfer-Encoding: chunked") + "1\r\n[\r\n1\r\n]\r\n0\r\n\r\n", want: "200 []"},
	{name: "more than its length", says: says("Content-Length: 2") + "[]evil", want: "200 []"},
	{name: "a second response", says: says("Content-Length: 2") + "[]" + says("Content-Length: 4") + "evil", hangs: true, want: "200 []"},
	{
		name: "our own fields",
		says: says("Content-Length: 2", "X-RateLimit-Limit: evil", "X-RateLimit-Remaining: evil", "X-RateLimit-Reset: evil",
			"X-RateLimit-Used: evil", "RateLimit: evil", "RateLimit-Policy: evil", "X-Request-Id: evil", "X-Request-Cost: evil", "Retry-After: evil",
			"X-Key-Expires: evil", "Deprecation: evil", "Sunset: evil", "X-Stability: evil", "Server: evil", "Date: evil", "X-Gateway-Secret: evil") + "[]",
		want: "200 []",
	},
	{
		name: "hop-by-hop fields",
		says: says("Content-Length: 2", "Connection: X-Hop", "X-Hop: evil", "Keep-Alive: evil", "Proxy-Connection: evil",
			"Upgrade: evil", "TE: evil", "Trailer: X-evil", "Proxy-Authenticate: evil") + "[]", want: "200 []",
	},
	{
		name: "401, which is about the gateway",
		says: "HTTP/1.1 401 Evil\r\nWWW-Authenticate: evil\r\nContent-Length: 4\r\n\r\nevil", want: "upstream_refused",
	},
	{name: "its own 503", says: "HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", want: "503 {}"},
	{name: "its own 429", says: "HTTP/1.1 429 Slow\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", want: "429 {}"},
}

// long is content that passes through in parts.
var long = repeat("a", 100_000)

// events is the head of a stream of events.
func events(field string) string {
	return rawBare("HTTP/1.1 200 OK", "Content-Type: text/event-stream", field)
}
