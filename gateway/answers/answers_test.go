package answers

import (
	"strings"
	"testing"

	"petgate/gateway/http1"
)

// request returns the request with this first line and these fields.
func request(t *testing.T, line string, fields ...string) *http1.Request {
	t.Helper()
	q := &http1.Request{}
	head := line + " HTTP/1.1\r\nHost: a\r\n" + strings.Join(append(fields, "\r\n"), "\r\n")
	if len(fields) == 0 {
		head = line + " HTTP/1.1\r\nHost: a\r\n\r\n"
	}
	if err := q.Read([]byte(head), &http1.Limits{TargetBytesMax: 1000, FieldBytesMax: 1000, FieldsMax: 10}); err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	return q
}

// field returns the values of a field.
func field(fields []http1.Field, name string) string {
	var values []string
	for _, f := range fields {
		if string(f.Name) == name {
			values = append(values, string(f.Value))
		}
	}
	return strings.Join(values, " AND ")
}
