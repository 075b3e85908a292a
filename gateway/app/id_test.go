package app

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"petgate/shared/testkit/must"
)

func TestGatewayID(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	host, err := os.Hostname()
	must.Do(t, err)
	one, other := filepath.Join(t.TempDir(), "var/s"), filepath.Join(t.TempDir(), "var/s")
	id := func(c Config) string {
		c.Listen = "127.0.0.1:8080"
		return c.gatewayID(log)
	}
	first := id(Config{Snapshot: one})
	if !strings.HasPrefix(first, host+"-127.0.0.1:8080-") || id(Config{Snapshot: one}) != first {
		t.Errorf("%q is not the name after a restart: %q", first, id(Config{Snapshot: one}))
	}
	if elsewhere := id(Config{Snapshot: other}); elsewhere == first {
		t.Errorf("a host of the same name has the same ID %q", elsewhere)
	}
	if set := id(Config{Snapshot: one, ID: "gw-1"}); set != "gw-1" {
		t.Errorf("the name that was set is %q", set)
	}
	if out.Len() != 0 {
		t.Errorf("warned: %s", &out)
	}
	if alone := id(Config{}); alone != host+"-127.0.0.1:8080" {
		t.Errorf("without a snapshot: %q", alone)
	}
	must.Do(t, os.WriteFile(one+".id", []byte("half"), 0o600))
	if broken := id(Config{Snapshot: one}); broken != host+"-127.0.0.1:8080" || !strings.Contains(out.String(), "GATEWAY_ID") {
		t.Errorf("with a damaged file: %q, %s", broken, &out)
	}
}

// Gateways that start at the same time in one directory agree on its suffix.
func TestSuffixIsWrittenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.id")
	var suffixes sync.Map
	var starting sync.WaitGroup
	for range 16 {
		starting.Go(func() {
			suffix, err := keptSuffix(path)
			if err != nil {
				t.Error(err)
			}
			suffixes.Store(suffix, true)
		})
	}
	starting.Wait()
	n := 0
	suffixes.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d suffixes", n)
	}
	if files, _ := filepath.Glob(path + "*"); len(files) != 1 {
		t.Errorf("files are left over: %q", files)
	}
}
