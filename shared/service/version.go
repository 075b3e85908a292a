package service

import (
	"runtime/debug"
	"strings"
)

// Release is the version of this source tree. It stands only here: programs, archives, packages and
// images take it from this constant.
const Release = "1.0.0"

// commit is set by the linker: -X petgate/shared/service.commit=… . It names the source of a
// build. For a build of the release itself it is empty, or the tag.
var commit string

// Commit returns what the linker has set, else the commit that the go command recorded, else
// nothing.
func Commit() string {
	if commit != "" {
		return commit
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return ""
}

// Version returns the version of this program.
func Version() string { return VersionOf(Commit()) }

// VersionOf returns the version of a build from a commit. The commit is build metadata (Semantic
// Versioning 2.0.0, section 10): it tells two builds apart, and has no order. The tag of the
// release adds nothing. Packages for Fedora may not have a hyphen in their version.
func VersionOf(commit string) string {
	commit = strings.TrimPrefix(commit, "v"+Release)
	if commit == "" {
		return Release
	}
	return Release + "+" + strings.ReplaceAll(strings.TrimPrefix(commit, "-"), "-", ".")
}
