package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"path"
	"slices"
	"time"
)

// archive returns the files as a tar.gz with one directory. It has them in the order of their names, as root's, with one time.
func (f files) archive(directory string, modified time.Time) ([]byte, error) {
	var buf bytes.Buffer
	zipped := gzip.NewWriter(&buf)
	w := tar.NewWriter(zipped)
	for _, name := range append([]string{""}, f.directories()...) {
		header := tar.Header{
			Typeflag: tar.TypeDir, Name: path.Join(directory, name) + "/", Mode: 0o755, ModTime: modified, Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
	}
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
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := zipped.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
