package service_test

import (
	"testing"

	"petgate/shared/service"
	"petgate/shared/testkit/must"
)

// A build of the tag has the version of the release, every other one adds its commit.
func TestVersionOf(t *testing.T) {
	for commit, want := range map[string]string{
		"":                                     service.Release,
		"v" + service.Release:                  service.Release,
		"1a2b3c4d":                             service.Release + "+1a2b3c4d",
		"1a2b3c4d-dirty":                       service.Release + "+1a2b3c4d.dirty",
		"v" + service.Release + "-3-g1a2b3c4d": service.Release + "+3.g1a2b3c4d",
		"v" + service.Release + "-dirty":       service.Release + "+dirty",
	} {
		must.Equal(t, service.VersionOf(commit), want, "the version of a build of %q", commit)
	}
}
