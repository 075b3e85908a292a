// Command dist writes what a release consists of: an archive for each system, with an SPDX document
// of its contents beside it, packages for Debian and Fedora, and SHA256SUMS. `make dist` runs it.
//
// The files depend on the source, the version and the Go release alone. Two builds in different
// directories give equal files, so anybody can check an archive. Their times are SOURCE_DATE_EPOCH
// (reproducible-builds.org), or 1970.
//
// With --notices, it only writes the licences of what the programs are made of. The images have
// them too.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"petgate/shared/service"
)

// programs are what an archive has in bin/.
var programs = []string{"gateway", "petsvc", "keyadmin"}

// pages are what people read, and what the pages link to. They keep their paths, below
// share/doc/petgate. The archive is laid out for /usr/local.
const pages = "LICENSE *.md docs/*.* docs/adr/*.md bench/README.md " +
	"deploy/docker/roles.sql deploy/grafana/*.json deploy/haproxy/* deploy/prometheus/*.yml " +
	"deploy/kubernetes/*.json deploy/kubernetes/*/*.yaml deploy/kubernetes/*/*/*.yaml " +
	"shared/api/openapi.yaml shared/api/clients/*/README.md shared/api/clients/*/*.ts " +
	"shared/api/clients/go/client.go shared/api/clients/go/error.go " +
	"shared/api/clients/go/types.gen.go shared/api/clients/go/wait.go " + units

// data are the files that an operator hands to another program. An archive has them in
// share/petgate too: systems without documentation leave out share/doc.
const data = "deploy/docker/roles.sql deploy/prometheus/rules.yml"

// units are systemd's. On Linux, an archive has them in lib/systemd/system too.
const units = "deploy/systemd/petgate-*"

// completions are the paths in an archive of keyadmin's completion.
var completions = map[string]string{
	"bash": "share/bash-completion/completions/keyadmin",
	"zsh":  "share/zsh/site-functions/_keyadmin",
	"fish": "share/fish/vendor_completions.d/keyadmin.fish",
}

// release is one run of the command.
type release struct {
	commit  string
	version string
	created time.Time
	out     string // directory of the results
	work    string // directory of the built programs
	sums    []string
}

// target is a system that the programs are built for.
type target struct{ os, arch string }

func main() {
	out := flag.String("out", "dist", "directory of the results; files in it are replaced")
	targets := flag.String("targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "systems to build for")
	only := flag.String("notices", "", "write only licences and notices, to this directory")
	flag.Parse()
	err := error(nil)
	if *only != "" {
		err = writeNotices(*only)
	} else {
		err = run(*out, *targets)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(out, targets string) error {
	r := release{commit: os.Getenv("COMMIT"), created: time.Unix(0, 0).UTC(), out: out}
	if strings.ContainsAny(r.commit, "/ ") {
		return fmt.Errorf("COMMIT is %q: use a word that can be a part of a file name", r.commit)
	}
	r.version = service.VersionOf(r.commit)
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH is %q: use seconds since 1970", text)
		}
		r.created = time.Unix(seconds, 0).UTC()
	}
	var err error
	if r.work, err = os.MkdirTemp("", "petgate-dist-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	shared, err := r.sharedFiles()
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(targets, ",") {
		system, arch, ok := strings.Cut(name, "/")
		if !ok {
			return fmt.Errorf("%q is not a system such as linux/amd64", name)
		}
		if err := r.pack(target{system, arch}, shared); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	slices.Sort(r.sums)
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(strings.Join(r.sums, "")), 0o644)
}

// build builds the programs for a system, unless it has done so before, and returns their
// directory.
func (r *release) build(t target) (dir string, err error) {
	dir = filepath.Join(r.work, t.os+"-"+t.arch)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	args := []string{
		"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X petgate/shared/service.commit=" + r.commit,
		"-o", dir + "/",
	}
	for _, program := range programs {
		args = append(args, "./"+program)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = t.environ()
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, text)
	}
	return dir, nil
}

// environ is the environment of the go command: other settings of the developer must not change the
// result. GOFLAGS is not empty: the go command would then take what `go env -w` has set.
func (t target) environ() []string {
	return append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOEXPERIMENT=", "GOFIPS140=off",
		"GOAMD64=v1", "GOARM64=v8.0", "GOOS="+t.os, "GOARCH="+t.arch)
}

// sharedFiles returns the files that are the same for all systems. keyadmin itself writes its
// completions, so it is built for this machine first.
func (r *release) sharedFiles() (files, error) {
	dir, err := r.build(target{runtime.GOOS, runtime.GOARCH})
	if err != nil {
		return nil, err
	}
	shared := files{}
	for pattern := range strings.FieldsSeq(pages) {
		found, _ := filepath.Glob(pattern) // the patterns are well formed
		for _, page := range found {
			text, err := os.ReadFile(page)
			if err != nil {
				return nil, err
			}
			shared["share/doc/petgate/"+page] = file{text, 0o644}
			if pattern == units {
				shared["lib/systemd/system/"+path.Base(page)] = file{text, 0o644}
			}
		}
	}
	for from := range strings.FieldsSeq(data) {
		shared["share/petgate/"+path.Base(from)] = shared["share/doc/petgate/"+from]
	}
	for shell, to := range completions {
		text, err := exec.Command(filepath.Join(dir, "keyadmin"), "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("keyadmin completion %s: %w", shell, err)
		}
		shared[to] = file{text, 0o644}
	}
	return shared, nil
}

// pack writes the archive of a system and its SPDX document.
func (r *release) pack(t target, shared files) error {
	dir, err := r.build(t)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("petgate-%s-%s-%s", r.version, t.os, t.arch)
	content := files{}
	for to, f := range shared {
		if t.os == "linux" || !strings.HasPrefix(to, "lib/systemd/") {
			content[to] = f
		}
	}
	third, err := noticesOf(t)
	if err != nil {
		return err
	}
	maps.Copy(content, third.files)
	for _, program := range programs {
		text, err := os.ReadFile(filepath.Join(dir, program))
		if err != nil {
			return err
		}
		content["bin/"+program] = file{text, 0o755}
	}
	archive, err := content.archive(name, r.created)
	if err != nil {
		return err
	}
	document, err := r.bill(name, fmt.Sprintf("%x", sha256.Sum256(archive)), third.modules)
	if err != nil {
		return err
	}
	if t.os == "linux" {
		if err := r.writePackages(t, content); err != nil {
			return err
		}
	}
	return errors.Join(r.write(name+".tar.gz", archive), r.write(name+".spdx.json", document))
}

// write writes a result and notes its sum.
func (r *release) write(name string, content []byte) error {
	r.sums = append(r.sums, fmt.Sprintf("%x  %s\n", sha256.Sum256(content), name))
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

// files are the contents of an archive, by path.
type files map[string]file

type file struct {
	content []byte
	mode    fs.FileMode
}

// archive returns the files as a tar.gz below one directory. It has them in the order of their
// names, as root's, with one time.
func (f files) archive(directory string, modified time.Time) ([]byte, error) {
	var buf bytes.Buffer
	zipped := gzip.NewWriter(&buf)
	w := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(f)) {
		header := tar.Header{
			Typeflag: tar.TypeReg,
			Name:     path.Join(directory, name),
			Mode:     int64(f[name].mode),
			Size:     int64(len(f[name].content)),
			ModTime:  modified, Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f[name].content); err != nil {
			return nil, err
		}
	}
	err := errors.Join(w.Close(), zipped.Close())
	return buf.Bytes(), err
}
