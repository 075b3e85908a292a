package usage

import (
	"bytes"
	"encoding/gob"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"petgate/shared/core/instant"
	"petgate/shared/durable"
	"petgate/shared/keystore"
)

// file keeps usage while the database does not take it. The lock of the Counter guards it.
type file struct {
	path       string // empty: none is kept
	exists     bool
	earlier    []earlier
	log        *slog.Logger
	complaints rate.Sometimes
}

// earlier is what an earlier process has counted and the database perhaps lacks.
type earlier struct {
	Process  keystore.Registration
	Unstored backlog
	Through  instant.Millis // every request that it decided on before is in the database or here
	Ended    bool           // all of its requests are
}

var errNoFile = errors.New("no snapshot is kept: set GATEWAY_SNAPSHOT to a file of this gateway alone")

// newFile reads the file, if there is one.
func newFile(path string, log *slog.Logger) *file {
	f := &file{path: path, log: log, complaints: rate.Sometimes{Interval: time.Minute}}
	if path == "" {
		return f
	}
	if err := f.read(); err != nil {
		log.Error("usage: what an earlier process counted is lost", "path", path, "error", err)
	}
	return f
}

func (f *file) read() error {
	content, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f.exists = true
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(content)).Decode(&f.earlier)
	}
	return err
}

// write writes what earlier processes have left, and what this one has counted. If there is
// neither, the file stays as it is.
func (f *file) write(own earlier) error {
	if f.path == "" {
		return errNoFile
	}
	all := slices.Clone(f.earlier)
	if !own.Unstored.isEmpty() {
		all = append(all, own)
	}
	if len(all) == 0 {
		return nil
	}
	var content bytes.Buffer
	if err := gob.NewEncoder(&content).Encode(all); err != nil {
		return err
	}
	f.exists = true
	return durable.Write(f.path, content.Bytes())
}

// renew makes an existing file hold what waits now, or removes it if nothing else waits.
func (f *file) renew(own earlier, waits bool) error {
	if !f.exists {
		return nil
	}
	if waits || len(f.earlier) > 0 {
		err := f.write(own)
		if err == nil {
			return nil
		}
		f.complain(err)
	}
	err := durable.Remove(f.path)
	f.exists = err != nil
	return err
}

func (f *file) complain(err error) {
	f.complaints.Do(func() {
		f.log.Error("usage: what waits for the database is only in memory", "path", f.path, "error", err)
	})
}
