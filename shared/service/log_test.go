package service_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"petgate/shared/service"
)

func TestLogIsJSON(t *testing.T) {
	var out bytes.Buffer
	service.NewLog(&out, false, slog.LevelInfo, "prog").Info("hello\nworld", "n", 1)
	var line struct {
		Time, Msg, Program string
		N                  int
	}
	err := json.Unmarshal(out.Bytes(), &line)
	if _, timeErr := time.Parse("2006-01-02T15:04:05.000Z", line.Time); err != nil || timeErr != nil ||
		line.Msg != "hello\nworld" || line.Program != "prog" || line.N != 1 {
		t.Errorf("%s: %v, %v", &out, err, timeErr)
	}
}

func TestLogForPeople(t *testing.T) {
	var out bytes.Buffer
	log := service.NewLog(&out, true, slog.LevelInfo, "prog").With("gateway", "gw-1")
	log.Debug("not shown")
	log.Error("bad\x1b[2J", "error", errors.New("it \"fails\"\n"))
	time, rest, _ := strings.Cut(out.String(), " ")
	if want := `level=ERROR msg="bad\x1b[2J" gateway=gw-1 error="it \"fails\"\n"` + "\n"; len(time) != len("time=15:04:05") || rest != want {
		t.Errorf("%q, want a time of day and %q", out.String(), want)
	}
}

func TestLogFormat(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for format, want := range map[string]bool{"auto": false, "text": true, "json": false} {
		s, _, done, _, errs := load("--log-format", format)
		if done || s.LogFormat.IsText(file) != want {
			t.Errorf("%s: text %t, want %t: %s", format, s.LogFormat.IsText(file), want, errs)
		}
	}
	if _, code, _, _, errs := load("--log-format=xml"); code != 2 || !strings.Contains(errs, "use auto, text or json") {
		t.Errorf("xml: exit code %d, %s", code, errs)
	}
}

func TestRequestText(t *testing.T) {
	lines := `{"time":"2026-11-22T12:00:05.123Z","level":"INFO","msg":"request","method":"GET","path":"/v1/pets","status":200,"outcome":"ok","micros":612}
{"time":"2026-11-22T12:00:06Z","msg":"request","method":"GET","path":"/v1/\u001b[2J","status":429,"outcome":"minute_quota_exceeded","micros":49}
{"time":"2026-11-22T12:00:07Z","msg":"request","status":400,"outcome":"bad_request","micros":0}
{"time":"2026-11-22T12:00:08Z","msg":"request","program":"petsvc","method":"POST","operation":"createPet","outcome":"created","status":201,"micros":1500}
`
	at := func(second int) string {
		return time.Date(2026, 11, 22, 12, 0, second, 0, time.UTC).Local().Format(time.TimeOnly)
	}
	want := at(5) + " GET /v1/pets 200 0.6 ms\n" +
		at(6) + " GET /v1/?[2J 429 minute_quota_exceeded 0.0 ms\n" +
		at(7) + " - - 400 bad_request 0.0 ms\n" +
		at(8) + " POST createPet 201 created 1.5 ms\n"
	var out bytes.Buffer
	if n, err := (service.RequestText{To: &out}).Write([]byte(lines)); n != len(lines) || err != nil {
		t.Fatal(n, err)
	}
	if out.String() != want {
		t.Errorf("written:\n%s, want\n%s", out.String(), want)
	}
}
