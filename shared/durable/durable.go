// Package durable changes files so that a reader, a crash and a loss of power find either the old
// file or the new one, whole.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the file at path with one that its owner alone may read, and creates its
// directory. Two processes must not write the same path at once.
func Write(path string, content []byte) error {
	file, err := Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(content)
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return Replace(file, path)
}

// Create opens an empty file beside path, to be given to Replace. An unfinished one of an earlier
// process is overwritten.
func Create(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

// Replace gives a complete file the name path, in place of a file that has it. The file stays open.
// After an error the file is gone, unless only the last step failed: then path may be the old file
// after a loss of power.
func Replace(file *os.File, path string) error {
	err := file.Sync()
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return syncDirectory(path)
}

// Publish gives a complete file the name path. If there is a file of that name, it stays, and the
// error wraps fs.ErrExist. It needs a file system with hard links: only a link never replaces a
// file. The file's earlier name is gone afterwards.
func Publish(file *os.File, path string) error {
	err := file.Sync()
	if err == nil {
		err = os.Link(file.Name(), path)
	}
	err = errors.Join(err, os.Remove(file.Name()))
	if err != nil {
		return err
	}
	return syncDirectory(path)
}

// Remove removes a file, if it is there.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := syncDirectory(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncDirectory writes the names in path's directory to the disk.
func syncDirectory(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
