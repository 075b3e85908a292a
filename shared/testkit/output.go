package testkit

import (
	"bytes"
	"strings"
	"sync"
)

// Output keeps what a process or a log has written so far. It is safe for concurrent use, and its
// zero value is empty.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the output.
func (o *Output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Len is how many bytes were written.
func (o *Output) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Len()
}

// Lines returns the lines without their ends.
func (o *Output) Lines() []string {
	return strings.FieldsFunc(o.String(), func(r rune) bool { return r == '\n' })
}

// Reset empties the output.
func (o *Output) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Reset()
}

// tail is the end of the output, for messages.
func (o *Output) tail() string {
	text := o.String()
	return text[max(0, len(text)-4000):]
}
