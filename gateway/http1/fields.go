package http1

import "bytes"

// Field is a header field. Its slices point into the head that it was read from.
type Field struct {
	Name, Value []byte

	// IsNamed is true for a field that Connection lists: it is for one hop only (RFC 9110, section
	// 7.6.1).
	IsNamed bool
}

// kind says how HTTP treats a field.
type kind uint8

const (
	endToEnd      kind = iota // returned as a Field
	hopByHop                  // dropped
	connection                // Connection: it names further hop-by-hop fields
	contentLength             // this kind and the three below determine the framing or the routing of a message
	transferCoding
	host
	expect
)

// kinds has all fields that are not end-to-end.
var kinds = func() (n Names[kind]) {
	// RFC 9110, section 7.6.1, and fields that old programs treat as hop-by-hop.
	n.Add(hopByHop, "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "http2-settings",
		"proxy-authenticate", "proxy-authorization", "proxy-authentication-info")
	n.Add(connection, "connection")
	n.Add(contentLength, "content-length")
	n.Add(transferCoding, "transfer-encoding")
	n.Add(host, "host")
	n.Add(expect, "expect")
	return n
}()

// Names is a table by the names of fields, which have no case. The zero value is empty.
type Names[V any] [32][]named[V] // by the length of the name

type named[V any] struct {
	name  string
	value V
}

// Add stores a value under each of the names. A name has fewer than 32 bytes.
func (n *Names[V]) Add(value V, names ...string) {
	for _, name := range names {
		n[len(name)] = append(n[len(name)], named[V]{name, value})
	}
}

// Of returns the value of a name, or the zero value.
func (n *Names[V]) Of(name []byte) (value V) {
	for _, known := range n[min(len(name), len(n)-1)] {
		if EqualFold(name, known.name) {
			return known.value
		}
	}
	return value
}

// fields are the header fields of a message, with the content of Connection.
type fields struct {
	// Fields are the fields that are neither hop-by-hop nor used for framing.
	Fields []Field

	named [][]byte // names that Connection lists
	framing
}

// framing is the part of the fields without slices, so clearing it is cheap.
type framing struct {
	closes      bool // Connection: close
	keepsAlive  bool // Connection: keep-alive
	hasLength   bool
	isChunked   bool
	length      int64
	count, size int
}

// namedMax limits the names in Connection, because each is compared with each field.
const namedMax = 16

// read reads the lines of a head after its first one. own handles the fields that only requests or
// only responses have.
//
// If there are too many fields, or they are too large, it returns an error but still reads
// Authorization, because the refusal depends on it.
func (f *fields) read(rest []byte, l *Limits, own func(kind, []byte) error) error {
	isTooLarge := false
	for {
		var line []byte
		line, rest = cutLine(rest)
		if len(line) == 0 {
			break
		}
		f.count++
		f.size += len(line)
		isTooLarge = isTooLarge || f.count > l.FieldsMax || f.size > l.FieldBytesMax
		name, value, ok := cutField(line)
		switch {
		case isTooLarge && !(ok && f.isStillRead(name, l)):
			continue
		case !ok:
			return errField
		}
		if err := f.add(name, value, own); err != nil {
			return err
		}
	}
	if isTooLarge {
		return errFieldsTooLarge
	}
	for i := range f.Fields {
		f.Fields[i].IsNamed = f.isNamed(f.Fields[i].Name)
	}
	return nil
}

// isStillRead reports whether a field is read although there are too many fields. The refusal shows
// the limits of the key that is in Authorization. FieldsMax also limits how often a client can send
// that field.
func (f *fields) isStillRead(name []byte, l *Limits) bool {
	return EqualFold(name, "authorization") && len(f.Fields) <= l.FieldsMax
}

func (f *fields) add(name, value []byte, own func(kind, []byte) error) error {
	switch k := kinds.Of(name); k {
	case endToEnd:
		f.Fields = append(f.Fields, Field{Name: name, Value: value})
	case hopByHop:
	case connection:
		return f.readConnection(value)
	case contentLength:
		// A list of equal lengths is refused too, although RFC 9112, section 6.3, allows a
		// recipient to accept it.
		n, ok := ParseDigits(value)
		if !ok || f.hasLength {
			return errLength
		}
		f.hasLength, f.length = true, n
	case transferCoding:
		if f.isChunked || !EqualFold(value, "chunked") {
			return errCoding
		}
		f.isChunked = true
	default:
		return own(k, value)
	}
	return nil
}

// readConnection reads a Connection field (RFC 9110, section 7.6.1).
func (f *fields) readConnection(list []byte) error {
	for len(list) > 0 {
		var option []byte
		option, list = nextElement(list)
		switch {
		case EqualFold(option, "close"):
			f.closes = true
		case EqualFold(option, "keep-alive"):
			f.keepsAlive = true
		case len(f.named) == namedMax:
			return errFieldsTooLarge
		case len(option) > 0:
			f.named = append(f.named, option)
		}
	}
	return nil
}

// Field returns the value of a field that is not hop-by-hop. It is nil if the field is absent or
// not the only one of its name.
func (f *fields) Field(name string) (value []byte) {
	for _, one := range f.Fields {
		if EqualFold(one.Name, name) {
			if value != nil {
				return nil
			}
			value = one.Value
		}
	}
	return value
}

// Length returns the value of Content-Length, also in a response to HEAD, or -1 if there is no
// Content-Length.
func (f *fields) Length() int64 {
	if !f.hasLength {
		return -1
	}
	return f.length
}

func (f *fields) isNamed(name []byte) bool {
	for _, n := range f.named {
		if len(n) == len(name) && bytes.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// reset clears the fields. Slices keep their capacity.
func (f *fields) reset() {
	clear(f.Fields)
	clear(f.named)
	f.Fields, f.named, f.framing = f.Fields[:0], f.named[:0], framing{}
}
