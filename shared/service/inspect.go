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

// inspect looks for what the values of settings do not show: addresses that cannot be opened, files that cannot be written, variables
// that are not settings.
func inspect(settings Program, name string) (problems []string) {
	prefix := strings.ToUpper(name) + "_"
	public, admin := settings.Addresses()
	if _, _, err := Readiness(admin, settings.Common().AdminTLS.isSet()); err != nil { // otherwise the program that runs has them
		for _, at := range []struct{ address, setting string }{{public, "LISTEN or --listen"}, {admin, "ADMIN_LISTEN or --admin-listen"}} {
			ln, err := Listen(at.address, prefix+at.setting)
			if err != nil {
				problems = append(problems, err.Error())
				continue
			}
			defer ln.Close() // not before the other address is open, too
		}
	}
	for _, path := range settings.Written() {
		if path == "" {
			continue
		}
		if err := tryDirectory(filepath.Dir(path)); err != nil {
			problems = append(problems, path+" cannot be written: make its directory one that this user may write: "+err.Error())
		}
	}
	for _, variable := range unknown(settings, []string{prefix}, os.Environ()) {
		problems = append(problems, variable+" is not a setting: correct its name or remove it")
	}
	return problems
}

// tryDirectory reports whether a file can be made in a directory, or in the nearest one above it that exists.
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

// ofKubernetes are the variables that Kubernetes sets for a service: for one named gateway, GATEWAY_SERVICE_HOST and GATEWAY_PORT_80_TCP.
var ofKubernetes = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_\w+)$`)

// unknown returns the variables of environ that begin with one of the prefixes and are not settings of the program, or whose names differ
// from a setting's by one or two characters, or by the product's name in place of the first prefix. It adds that setting.
func unknown(settings Program, prefixes, environ []string) (found []string) {
	p := newParser(settings, CommandLine{})
	var known []string
	for _, flag := range p.Model.Flags {
		known = append(known, flag.Envs...)
	}
	for _, flag := range p.secrets {
		known = append(known, flag.Envs[0], flag.Envs[0]+"_FILE")
	}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		hasPrefix := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if slices.Contains(known, name) || ofKubernetes.MatchString(name) {
			continue
		}
		near := slices.IndexFunc(known, func(setting string) bool {
			return distance(name, setting) <= 2 || name == strings.Replace(setting, prefixes[0], "PETGATE_", 1)
		})
		switch {
		case near >= 0 && len(name) > 6: // a short name is near to many
			found = append(found, name+" (did you mean "+known[near]+"?)")
		case slices.ContainsFunc(prefixes, hasPrefix):
			found = append(found, name)
		}
	}
	return found
}

// distance is how many characters must be added, removed or replaced to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
