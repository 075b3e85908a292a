package service

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// inspect looks for what the values of settings do not show: addresses that cannot be opened, files
// that cannot be written, variables that are not settings.
func inspect(settings Program, name string) (problems []string) {
	prefix := strings.ToUpper(name) + "_"
	public, admin := settings.Addresses()
	// A program that answers at the admin port is this one: its ports are taken, by itself.
	if _, _, err := Readiness(admin, settings.Common().AdminTLS.isSet()); err != nil {
		for _, at := range []struct{ address, setting string }{
			{public, "LISTEN or --listen"},
			{admin, "ADMIN_LISTEN or --admin-listen"},
		} {
			ln, err := Listen(at.address, prefix+at.setting)
			if err != nil {
				problems = append(problems, err.Error())
				continue
			}
			defer ln.Close() // only after the other address was tried: the two must differ
		}
	}
	for _, path := range settings.Written() {
		if path == "" {
			continue
		}
		if err := tryDirectory(filepath.Dir(path)); err != nil {
			problems = append(problems,
				path+" cannot be written: make its directory one that this user may write: "+err.Error())
		}
	}
	for _, variable := range unknown(settings, []string{prefix}, os.Environ()) {
		problems = append(problems, variable+" is not a setting: correct its name or remove it")
	}
	return problems
}

// tryDirectory reports whether a file can be made in a directory, or in the nearest one above it
// that exists.
func tryDirectory(dir string) error {
	file, err := os.CreateTemp(dir, ".check-*")
	if parent := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && parent != dir {
		return tryDirectory(parent)
	}
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// ofKubernetes are the variables that Kubernetes sets for a service: for one named gateway,
// GATEWAY_SERVICE_HOST and GATEWAY_PORT_80_TCP.
var ofKubernetes = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_\w+)$`)

// unknown returns the variables of environ that begin with one of the prefixes and are not settings
// of the program.
func unknown(settings Program, prefixes, environ []string) (found []string) {
	p := newReader(settings, CommandLine{})
	var known []string
	for _, flag := range p.Model.Flags {
		known = append(known, flag.Envs...)
	}
	for _, flag := range p.secrets {
		known = append(known, flag.Envs[0], flag.Envs[0]+"_FILE")
	}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		isOurs := slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if isOurs && !slices.Contains(known, name) && !ofKubernetes.MatchString(name) {
			found = append(found, name)
		}
	}
	return found
}
