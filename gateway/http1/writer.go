package http1

import (
	"bufio"
	"strconv"
)

// PartWriter writes a body in parts. Each part is sent at once.
type PartWriter struct {
	To        *bufio.Writer
	IsChunked bool // otherwise the head has announced the length, or the connection ends with the body
}

// Write writes a part, with what is buffered before it.
func (w *PartWriter) Write(part []byte) error {
	if w.IsChunked && len(part) > 0 {
		_, _ = w.To.Write(
			append(strconv.AppendUint(w.To.AvailableBuffer(), uint64(len(part)), 16), crlf...),
		) // Flush returns the error
	}
	_, _ = w.To.Write(part)
	if w.IsChunked && len(part) > 0 {
		_, _ = w.To.Write(crlf)
	}
	return w.To.Flush()
}

// End ends the body. Without it, a chunked body is not whole.
func (w *PartWriter) End() error {
	if w.IsChunked {
		_, _ = w.To.WriteString("0\r\n\r\n")
	}
	return w.To.Flush()
}

// FieldList has the fields of a message that is being made. It is used again, so that they allocate
// nothing.
type FieldList struct {
	Fields []Field
	Text   []byte // the values that were made for them
}

// Add adds a field.
func (l *FieldList) Add(name, value []byte) {
	l.Fields = append(l.Fields, Field{Name: name, Value: value})
}

// AddText adds a field whose value was appended to Text.
func (l *FieldList) AddText(name, text []byte) {
	l.Add(name, text[len(l.Text):])
	l.Text = text
}

// AddInt adds a field with a number.
func (l *FieldList) AddInt(name []byte, n int64) { l.AddText(name, strconv.AppendInt(l.Text, n, 10)) }

// AppendFields appends fields as the lines of a head, unchanged.
func AppendFields(dst []byte, fields []Field) []byte {
	for _, f := range fields {
		dst = append(append(dst, f.Name...), ':', ' ')
		dst = append(append(dst, f.Value...), crlf...)
	}
	return dst
}
