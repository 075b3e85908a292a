package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"maps"
	"path"
	"slices"
	"time"
)

// archive returns the files as a tar.gz below one directory. It has them in the order of their names, as root's, with one time.
func (f files) archive(directory string, modified time.Time) ([]byte, error) {
	var buf bytes.Buffer
	zipped := gzip.NewWriter(&buf)
	w := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(f)) {
		header := tar.Header{
			Typeflag: tar.TypeReg, Name: path.Join(directory, name), Mode: int64(f[name].mode), Size: int64(len(f[name].content)),
			ModTime: modified, Format: tar.FormatUSTAR,
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
