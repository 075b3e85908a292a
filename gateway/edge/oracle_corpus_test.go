package edge_test

import (
	"strconv"
	"strings"

	"petgate/shared/core/apikey"
)

// attack is one input of the corpus: bytes on one connection, and the result that they must have.
//
// want lists verdicts, one for each request, separated by "; ". A verdict is either the code of a
// refusal or, for a request that is admitted and routed, what the upstream must see of it: method,
// target and length of content. If two verdicts are right, "|" separates them. "close" at the end
// says that the connection ends although no request was refused for its framing. "gone" says that
// the client closes there, in the middle of a request. More bytes may follow the last verdict: they
// must neither be answered nor reach the upstream.
//
// rfc names the section that decides. "ours" means that the gateway itself decides, and no RFC.
type attack struct{ name, rfc, want, bytes string }

// alike returns attacks of one kind, which have the same verdicts: a request for each text.
func alike(name, rfc, want string, request func(string) string, texts ...string) (all []attack) {
	for _, text := range texts {
		all = append(all, attack{name, rfc, want, request(text)})
	}
	return all
}

// themes is the whole corpus.
var themes = map[string][]attack{
	"framing": framing, "chunks": chunks, "syntax": syntax, "targets": targets, "hosts": hosts,
	"credentials": credentials, "fields": fields, "pipelines": pipelines,
}

// Verdicts that occur often.
const (
	ok     = "GET /v1/pets 0"
	posted = "POST /v1/pets 5"
	bad    = "bad_request"
	gone   = "gone"
)

// The sizes that the rigs allow: smaller than the product's, so that what exceeds them stays small.
const (
	bodyMax   = 64 << 10
	targetMax = 8 << 10
	fieldsMax = 32 << 10
)

const helloChunks = "5\r\nhello\r\n0\r\n\r\n"

// Tokens of the keys that every rig's directory knows, apart from unknownToken. They are the same
// in every run, so that what a fuzzer finds can be played again.
var (
	token          = mintToken(apikey.Live, 1)
	testToken      = mintToken(apikey.Test, 2)
	unknownToken   = mintToken(apikey.Live, 3)
	revokedToken   = mintToken(apikey.Live, 4)
	expiredToken   = mintToken(apikey.Live, 5)
	bannedToken    = mintToken(apikey.Live, 6)
	suspendedToken = mintToken(apikey.Live, 7)
	limitlessToken = mintToken(apikey.Live, 8)
	elsewhereToken = mintToken(apikey.Live, 9)
	usedUpToken    = mintToken(apikey.Live, 10)
	readerToken    = mintToken(apikey.Live, 11)
	rotatedToken   = mintToken(apikey.Live, 12)
	scraperToken   = mintToken(apikey.Live, 13)
	unpaidToken    = mintToken(apikey.Live, 14)
	otherToken     = mintToken(apikey.Live, 15)
	renamedToken   = mintWith("acme", apikey.Live, 16) // of a key that was made under another prefix
	foreignToken   = mintWith("acme", apikey.Live, 17) // of no key

	authorization = "Authorization: Bearer " + token
)

func mintToken(env apikey.Environment, seed byte) string {
	return mintWith(apikey.DefaultPrefix, env, seed)
}

func mintWith(prefix string, env apikey.Environment, seed byte) string {
	minted, err := apikey.Draw(apikey.Beginning(prefix, env), counting(seed))
	if err != nil {
		panic("bug: " + err.Error())
	}
	return minted
}

// counting is a source of bytes that are not secret: start, start+1, …
type counting byte

func (c counting) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(c) + byte(i)
	}
	return len(p), nil
}

// mistyped changes the last but one character of a token's random part.
func mistyped(token string) string {
	at := len(token) - 8
	return token[:at] + string(token[at]^1) + token[at+1:]
}

// rawBare writes a request line and fields as they are.
func rawBare(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }

// keyless is a request without a key.
func keyless(line string, fields ...string) string {
	return rawBare(append([]string{line, "Host: a"}, fields...)...)
}

// rawStart is a request with a valid key, a good host and the given request line.
func rawStart(line string, fields ...string) string {
	return keyless(line, append([]string{authorization}, fields...)...)
}

func rawLine(line string) string { return rawStart(line) }

func rawGet(fields ...string) string { return rawStart("GET /v1/pets HTTP/1.1", fields...) }

// rawPost is the head of a POST; the fields must frame the content that the caller appends.
func rawPost(fields ...string) string {
	return rawStart("POST /v1/pets HTTP/1.1", append([]string{"Content-Type: application/json"}, fields...)...)
}

// rawHello and rawHelloChunks have these fields and five bytes of content.
func rawHello(fields string) string       { return rawPost(fields) + "hello" }
func rawHelloChunks(fields string) string { return rawPost(fields) + helloChunks }

func rawChunked(content string) string { return rawPost("Transfer-Encoding: chunked") + content }

func rawTarget(target string) string { return rawStart("GET " + target + " HTTP/1.1") }

func rawHost(field string) string { return rawBare("GET /v1/pets HTTP/1.1", field, authorization) }

func hostIs(host string) string { return rawHost("Host: " + host) }

func rawKey(fields ...string) string { return keyless("GET /v1/pets HTTP/1.1", fields...) }

// rawBearer is a request with this token.
func rawBearer(token string) string { return rawKey("Authorization: Bearer " + token) }

func verbatim(request string) string { return request }

// one is for a request with one field.
func one(request func(fields ...string) string) func(field string) string {
	return func(field string) string { return request(field) }
}

// longTarget is a target of n bytes that has a route.
func longTarget(n int) string {
	const start = "/v1/pets?a="
	return start + repeat("b", n-len(start))
}

func numbered(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = prefix + strconv.Itoa(i) + ": y"
	}
	return all
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }
func upper(s string) string         { return strings.ToUpper(s) }
func decimal(n int) string          { return strconv.Itoa(n) }
func hexadecimal(n int) string      { return strconv.FormatInt(int64(n), 16) }
