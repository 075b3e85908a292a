// Package apikey is the format of tokens, the secret strings that clients send.
//
// A token is a prefix, such as ptg, then `_live_` or `_test_`, 32 random base62 characters (190
// bits), and the CRC-32 of all these in 6 base62 characters. The prefix says where a token belongs;
// it decides nothing. The checksum tells a mistyped token from an unknown one without a lookup.
// Only a token's SHA-256 is stored. 190 bits of entropy cannot be guessed, so neither salt nor a
// slow hash would add security.
//
// All functions are pure and safe for concurrent use.
package apikey

import (
	"bytes"
	"crypto/sha256"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"regexp"
	"slices"
)

// Environment separates live keys from test keys. A gateway serves one environment and refuses keys
// of the other.
type Environment uint8

// The environments. The zero value stands for no environment.
const (
	Live Environment = iota + 1
	Test
)

var environments = [...]string{"none", "live", "test"}

func (e Environment) String() string { return environments[e] }

// UnmarshalText reads "live" or "test".
func (e *Environment) UnmarshalText(text []byte) error {
	at := slices.Index(environments[:], string(text))
	if at < int(Live) {
		return fmt.Errorf("%q is not an environment: use live or test", text)
	}
	*e = Environment(at)
	return nil
}

// MarshalText writes the environment's name.
func (e Environment) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// Value is the environment's name, as a database keeps it.
func (e Environment) Value() (driver.Value, error) { return e.String(), nil }

// Scan reads what Value wrote.
func (e *Environment) Scan(column any) error {
	text, isText := column.(string)
	if !isText {
		return fmt.Errorf("an environment is a text column, not %T", column)
	}
	return e.UnmarshalText([]byte(text))
}

// DefaultPrefix is the prefix of the tokens of installations that choose none.
const DefaultPrefix = "ptg"

// CheckPrefix returns an error if tokens cannot have this prefix.
func CheckPrefix(prefix string) error {
	if !isPrefix([]byte(prefix)) {
		return fmt.Errorf("%q is not a prefix of keys: use 2 to 10 lower-case letters", prefix)
	}
	return nil
}

func isPrefix(text []byte) bool {
	for _, c := range text {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return 2 <= len(text) && len(text) <= 10
}

// Beginning returns what the tokens of an environment begin with.
func Beginning(prefix string, env Environment) string { return prefix + "_" + env.String() + "_" }

const (
	randomLen   = 32
	checksumLen = 6

	// hintLen is the number of a token's last characters that its record shows.
	hintLen = 4
)

// Why Parse refuses a token. The texts are for the client.
var (
	ErrPrefix   = errors.New("a key begins with a prefix and _live_ or _test_, as in ptg_live_")
	ErrLength   = errors.New("a key has 38 characters after its prefix: this one is cut off, or more than a key")
	ErrAlphabet = errors.New("a key has only letters and digits after its prefix")
	ErrChecksum = errors.New("checksum does not match: the key is mistyped or cut off")
)

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Draw draws a new secret: what it begins with, 32 random characters, and a checksum of both. It
// fails only if random does. Show a secret once, and store only its Sum.
func Draw(beginning string, random io.Reader) (string, error) {
	token := []byte(beginning)
	bodyLen := len(token) + randomLen
	var draw [64]byte
	for len(token) < bodyLen {
		if _, err := io.ReadFull(random, draw[:]); err != nil {
			return "", fmt.Errorf("apikey: draw random bytes: %w", err)
		}
		for _, b := range draw {
			// Six bits at a time; the two values past the alphabet are skipped. A modulus would
			// favour some characters.
			b &= 63
			if int(b) < len(alphabet) && len(token) < bodyLen {
				token = append(token, alphabet[b])
			}
		}
	}
	return string(appendChecksum(token, token)), nil
}

// Parse checks a token's form and checksum and returns its environment. It allocates nothing. A nil
// error does not mean that the key exists.
func Parse(token []byte) (Environment, error) {
	prefix, rest, _ := bytes.Cut(token, []byte{'_'})
	name, secret, isWhole := bytes.Cut(rest, []byte{'_'})
	var env Environment
	switch string(name) {
	case "live":
		env = Live
	case "test":
		env = Test
	}
	if env == 0 || !isWhole || !isPrefix(prefix) {
		return 0, ErrPrefix
	}
	for _, c := range secret {
		if !isBase62[c] {
			return 0, ErrAlphabet
		}
	}
	if len(secret) != randomLen+checksumLen {
		return 0, ErrLength
	}
	var want [checksumLen]byte
	bodyLen := len(token) - checksumLen
	if string(appendChecksum(want[:0], token[:bodyLen])) != string(token[bodyLen:]) {
		return 0, ErrChecksum
	}
	return env, nil
}

// secretPart matches the beginning of a token with so many of its random characters that it must
// not be shown.
var secretPart = regexp.MustCompile(`[a-z]{2}_(?:live|test)_[0-9A-Za-z]{8}`)

// IsIn reports whether a text has a token or much of one, with any prefix. Such a text is neither
// logged nor repeated.
func IsIn(text []byte) bool {
	return (bytes.Contains(text, []byte("_live_")) || bytes.Contains(text, []byte("_test_"))) && secretPart.Match(text)
}

// isBase62 is a table, because every request has a token.
var isBase62 = func() (table [256]bool) {
	for _, c := range alphabet {
		table[c] = true
	}
	return table
}()

// appendChecksum appends the CRC-32 (IEEE) of body in six base62 digits, most significant first;
// 62^6 > 2^32.
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
