package main

import (
	"bytes"
	"strings"
	"testing"

	"petgate/shared/service"
)

// The help has the settings that this command uses, and none of those that it sets itself.
func TestHelp(t *testing.T) {
	var help, problems bytes.Buffer
	if code, done := service.Load(&settings{}, "local", about, []string{"--help"}, &help, &problems); code != 0 || !done {
		t.Fatalf("exit code %d: %s", code, &problems)
	}
	for text, want := range map[string]bool{
		"--listen=": true, "--admin-listen=": true, "--ban-after=": true, "GATEWAY_UPSTREAM_SECRET": true,
		"--upstreams": true, "--api=": true, "--drain-delay": false, "GATEWAY_CONSOLE)": false, "DATABASE_URL": false, "REDIS_URL": false, "--redis-prefix": false,
	} {
		if strings.Contains(help.String(), text) != want {
			t.Errorf("%q in the help: %t, want %t\n%s", text, !want, want, &help)
		}
	}
}
