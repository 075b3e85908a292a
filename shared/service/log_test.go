package service_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
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
