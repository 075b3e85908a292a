package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packagers are the kinds of packages for Linux.
var packagers = []string{"deb", "rpm"}

// packaged is the content of a package: that of an archive, below /usr in place of /usr/local.
func packaged(archived files) files {
	root := files{}
	for path, f := range archived {
		if strings.HasPrefix(path, "lib/systemd/system/") {
			f.content = []byte(strings.ReplaceAll(string(f.content), "/usr/local/bin/", "/usr/bin/"))
		}
		root["usr/"+path] = f
	}
	root["usr/share/doc/petgate/copyright"] = archived["share/doc/petgate/LICENSE"] // where Debian looks for it
	root["usr/share/zsh/vendor-completions/_keyadmin"] = archived[completions["zsh"]]
	for _, program := range []string{"gateway", "petsvc"} {
		text := fmt.Sprintf("# Settings of the %s, as NAME=value: see `%[1]s --help`.\n", program)
		root["etc/"+program+".env"] = file{[]byte(text), 0o600}
	}
	return root
}

// writePackages writes the packages of a system. nfpm has its modules in a go.mod of its own: they
// are no part of the product.
func (r *release) writePackages(t target, archived files) error {
	root := filepath.Join(r.work, "root-"+t.arch)
	for path, f := range packaged(archived) {
		to := filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, f.content, f.mode)); err != nil {
			return err
		}
		if err := os.Chmod(to, f.mode); err != nil { // whatever the umask is
			return err
		}
	}
	for _, packager := range packagers {
		name := fmt.Sprintf("petgate-%s-%s.%s", r.version, t.arch, packager)
		path := filepath.Join(r.work, name)
		cmd := exec.Command("go", "tool", "-modfile=deploy/dist/package/nfpm.mod", "nfpm", "package",
			"--config", "deploy/dist/package/nfpm.yaml", "--packager", packager, "--target", path)
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath", "VERSION="+r.version, "ARCH="+t.arch,
			"ROOT="+root, fmt.Sprint("SOURCE_DATE_EPOCH=", r.created.Unix()))
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nfpm: %w\n%s", err, text)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := r.write(name, content); err != nil {
			return err
		}
	}
	return nil
}
