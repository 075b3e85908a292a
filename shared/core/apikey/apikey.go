// Package apikey is the format of tokens, the secret strings that clients send.
//
// A token is `ptg_live_` or `ptg_test_`, 32 random base62 characters (190 bits), and the CRC-32 of all these in 6 base62
// characters. The checksum tells a mistyped token from an unknown one without a lookup. Only a token's SHA-256 is stored.
// 190 bits of entropy cannot be guessed, so neither salt nor a slow hash would add security.
//
// All functions are pure and safe for concurrent use.
package apikey

import (
	"crypto/sha256"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Environment separates live keys from test keys. A gateway serves one environment and refuses keys of the other.
type Environment uint8

// The environments. The zero value stands for no environment.
const (
	Live Environment = iota + 1
	Test
)

// ParseEnvironment reads "live" or "test".
func ParseEnvironment(text string) (Environment, error) {
	switch text {
	case "live":
		return Live, nil
	case "test":
		return Test, nil
	}
	return 0, fmt.Errorf("%q is not an environment: use live or test", text)
}

// UnmarshalText reads "live" or "test".
func (e *Environment) UnmarshalText(text []byte) (err error) {
	*e, err = ParseEnvironment(string(text))
	return err
}

func (e Environment) String() string {
	switch e {
	case Live:
		return "live"
	case Test:
		return "test"
	}
	return "none"
}

// Value is the environment's name, as a database keeps it.
func (e Environment) Value() (driver.Value, error) { return e.String(), nil }

// Scan reads what Value wrote.
func (e *Environment) Scan(column any) (err error) {
	text, isText := column.(string)
	if !isText {
		return fmt.Errorf("an environment is a text column, not %T", column)
	}
	*e, err = ParseEnvironment(text)
	return err
}

const (
	livePrefix  = "ptg_live_"
	testPrefix  = "ptg_test_"
	prefixLen   = len(livePrefix)
	randomLen   = 32
	checksumLen = 6
	bodyLen     = prefixLen + randomLen

	// TokenLen is the length of every token in bytes.
	TokenLen = bodyLen + checksumLen

	// hintLen is the number of a token's last characters that its record shows.
	hintLen = 4
)

// Why Parse refuses a token. The texts are for the client.
var (
	ErrPrefix   = errors.New("a key begins with ptg_live_ or ptg_test_")
	ErrLength   = errors.New("a key has 47 characters")
	ErrAlphabet = errors.New("a key has only letters and digits after its prefix")
	ErrChecksum = errors.New("checksum does not match: the key is mistyped or cut off")
)

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Mint draws a new token for env. It fails only if random does. The token is a secret: show it once and store only its Sum.
func Mint(env Environment, random io.Reader) (string, error) {
	switch env {
	case Live:
		return Draw(livePrefix, random)
	case Test:
		return Draw(testPrefix, random)
	}
	panic("bug: minting a key for no environment")
}

// Draw draws a new secret: a prefix, 32 random characters, and a checksum of both. It fails only if random does.
func Draw(prefix string, random io.Reader) (string, error) {
	token := append(make([]byte, 0, TokenLen), prefix...)
	bodyLen := len(prefix) + randomLen
	var draw [64]byte
	for len(token) < bodyLen {
		if _, err := io.ReadFull(random, draw[:]); err != nil {
			return "", fmt.Errorf("apikey: draw random bytes: %w", err)
		}
		for _, b := range draw {
			// Six bits at a time; the two values past the alphabet are skipped. A modulus would favour some characters.
			if b &= 63; int(b) < len(alphabet) && len(token) < bodyLen {
				token = append(token, alphabet[b])
			}
		}
	}
	return string(appendChecksum(token, token)), nil
}

// Parse checks a token's form and checksum and returns its environment. It allocates nothing. A nil error does not mean that
// the key exists.
func Parse(token []byte) (Environment, error) {
	if len(token) < prefixLen {
		return 0, ErrPrefix
	}
	var env Environment
	switch string(token[:prefixLen]) {
	case livePrefix:
		env = Live
	case testPrefix:
		env = Test
	default:
		return 0, ErrPrefix
	}
	for _, c := range token[prefixLen:] {
		if !isBase62(c) {
			return 0, ErrAlphabet
		}
	}
	if len(token) != TokenLen {
		return 0, ErrLength
	}
	var want [checksumLen]byte
	if string(appendChecksum(want[:0], token[:bodyLen])) != string(token[bodyLen:]) {
		return 0, ErrChecksum
	}
	return env, nil
}

func isBase62(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// appendChecksum appends the CRC-32 (IEEE) of body in six base62 digits, most significant first; 62^6 > 2^32.
func appendChecksum(dst, body []byte) []byte {
	sum := crc32.ChecksumIEEE(body)
	var digits [checksumLen]byte
	for i := checksumLen - 1; i >= 0; i-- {
		digits[i] = alphabet[sum%62]
		sum /= 62
	}
	return append(dst, digits[:]...)
}

// Hash is the SHA-256 of a token, the only part of it that is stored.
type Hash [sha256.Size]byte

// Sum returns the token's hash.
func Sum(token []byte) Hash { return sha256.Sum256(token) }

// Hint returns the end of a minted token, by which an operator recognises it.
func Hint(token string) string { return token[len(token)-hintLen:] }
