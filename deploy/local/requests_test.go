package main

import (
	"bytes"
	"testing"
	"time"
)

func TestRequestPrinter(t *testing.T) {
	lines := `{"time":"2026-11-22T12:00:05.123Z","level":"INFO","msg":"request","method":"GET","path":"/v1/pets","status":200,"outcome":"ok","micros":612}
{"time":"2026-11-22T12:00:06Z","msg":"request","method":"GET","path":"/v1/\u001b[2J","status":429,"outcome":"minute_quota_exceeded","micros":49}
{"time":"2026-11-22T12:00:07Z","msg":"request","status":400,"outcome":"bad_request","micros":0}
`
	at := func(second int) string {
		return time.Date(2026, 11, 22, 12, 0, second, 0, time.UTC).Local().Format(time.TimeOnly)
	}
	want := at(5) + " GET /v1/pets 200 0.6 ms\n" +
		at(6) + " GET /v1/?[2J 429 minute_quota_exceeded 0.0 ms\n" +
		at(7) + " - - 400 bad_request 0.0 ms\n"
	var file, terminal bytes.Buffer
	if n, err := (requestPrinter{&file, &terminal}).Write([]byte(lines)); n != len(lines) || err != nil {
		t.Fatal(n, err)
	}
	if file.String() != lines {
		t.Errorf("the file has %q", file.String())
	}
	if terminal.String() != want {
		t.Errorf("the terminal has\n%s, want\n%s", terminal.String(), want)
	}
}
