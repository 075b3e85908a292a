// Package snapshot keeps what a gateway knows of the key database in a file, so that it can serve
// after a restart while the database is unreachable.
//
// The file is a magic line, and then frames with a length, a checksum and records. Each checksum
// continues the previous one, so a missing or misplaced frame is detected. Later changes follow the
// end record, one frame for each batch of events. They are on disk before the heartbeat that
// confirms them.
//
// A file that lacks a change that is in force must not outlive its confirmation: the gateway would
// admit a revoked key after a restart. Such a file is stale, and Clean returns an error until it is
// removed.
package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"petgate/shared/durable"
	"petgate/shared/keystore"
)

const (
	magic         = "petgate directory snapshot 9\n"
	frameBytes    = 64 << 10
	frameBytesMax = 64 << 20 // a larger frame is invalid

	changedBytesMin = 1 << 20 // of changes, before a file is replaced
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// standing says what the file on disk has.
type standing uint8

const (
	inherited standing = iota // what an earlier process has left, and nothing was loaded since
	stale                     // less than what is in force, if it is still there
	gone                      // nothing: it is removed
	current                   // all that this process has loaded
)

// File is a gateway's snapshot. One goroutine at a time uses it.
type File struct {
	path, gateway string
	processes     processes // without the lock, no file is kept
	standing      standing
	to            *frames // the file, if it is current
	changed       int     // bytes of changes in the file
}

// Open locks the snapshot of a gateway for this process. With an empty path, none is kept. If the
// lock fails, none is kept either, and Open also returns the cause. A file of this gateway is then
// stale: a later process could start from it.
func Open(path, gateway, incarnation string) (f *File, err error) {
	f = &File{path: path, gateway: gateway}
	if path == "" {
		return f, nil
	}
	f.processes, err = openProcesses(path+".lock", incarnation)
	if err != nil && f.mayStart() {
		f.standing = stale
	}
	return f, err
}

// IsKept reports whether this process keeps a snapshot.
func (f *File) IsKept() bool { return f.processes.file != nil }

// Ended returns the incarnations of this gateway's earlier processes that have certainly ended.
func (f *File) Ended() []string { return f.processes.ended }

// Clean removes a stale file, if there is one.
func (f *File) Clean() error {
	if f.standing != stale {
		return nil
	}
	err := durable.Remove(f.path)
	if err == nil {
		f.standing = gone
	}
	return err
}

// Remove removes the file, if it is kept. If it cannot, the file is stale.
func (f *File) Remove() error {
	if f.IsKept() {
		f.shut()
		f.standing = stale
	}
	return f.Clean()
}

func (f *File) shut() {
	if f.to != nil {
		f.to.Close()
		f.to = nil
	}
}

// Close closes the file, which stays, and releases the lock.
func (f *File) Close() {
	f.shut()
	f.processes.close()
}

// IsOutdated reports whether a new file should be written: something was loaded and there is no
// file of it, or changes take more than half of the file.
func (f *File) IsOutdated() bool {
	switch f.standing {
	case inherited:
		return false
	case current:
		return f.changed > max(f.to.size/2, changedBytesMin)
	}
	return true
}

// begin returns a coder that has written a head.
func (f *File) begin(h Head) *coder {
	c := &coder{bytes: []byte{tagHead}}
	h.gateway = f.gateway
	c.head(&h)
	return c
}

// Append adds a head and changes to the file. They are on disk when it returns; without changes,
// perhaps later. If it fails, it removes the file.
func (f *File) Append(h Head, changes func(keystore.Rows)) error {
	if f.standing != current {
		return nil
	}
	c := f.begin(h)
	if changes != nil {
		changes(c.writeRows(func() {}))
	}
	f.to.write(c.bytes)
	err := f.to.buffer.Flush()
	if err == nil && changes != nil {
		f.changed += len(c.bytes)
		err = f.to.Sync()
	}
	if err != nil {
		return fmt.Errorf("snapshot: append: %w", errors.Join(err, f.Remove()))
	}
	return nil
}

// Replace writes a new file with all rows of an image. The file replaces the old one.
func (f *File) Replace(h Head, image func(keystore.Rows)) error {
	next, err := createFrames(f.path)
	if err == nil {
		err = next.writeImage(f.begin(h), image)
	}
	if err == nil {
		f.shut()
		if err = durable.Replace(next.File, f.path); err == nil {
			f.to, f.standing, f.changed = next, current, 0
			return nil
		}
		_ = f.Remove() // the new file may have its name already, but perhaps not on disk; Clean tries again
	}
	if next != nil {
		next.Close()
		os.Remove(next.Name())
	}
	return err
}

// frames writes frames to a file.
type frames struct {
	*os.File
	buffer *bufio.Writer // keeps its first error, until Flush
	sum    uint32
	size   int
}

func createFrames(path string) (*frames, error) {
	file, err := durable.Create(path)
	if err != nil {
		return nil, err
	}
	f := &frames{File: file, buffer: bufio.NewWriter(file)}
	_, err = f.buffer.WriteString(magic)
	return f, err
}

func (f *frames) write(records []byte) {
	f.sum = crc32.Update(f.sum, castagnoli, records)
	var header [8]byte
	binary.LittleEndian.PutUint32(header[:], uint32(len(records)))
	binary.LittleEndian.PutUint32(header[4:], f.sum)
	f.size += len(header) + len(records)
	f.buffer.Write(header[:])
	f.buffer.Write(records)
}

// writeImage writes what c has, and then an image, in frames of about frameBytes.
func (f *frames) writeImage(c *coder, image func(keystore.Rows)) error {
	image(c.writeRows(func() {
		if len(c.bytes) >= frameBytes {
			f.write(c.bytes)
			c.bytes = c.bytes[:0]
		}
	}))
	f.write(append(c.bytes, tagEnd))
	return f.buffer.Flush()
}

// errOtherGateway means that another gateway wrote the snapshot.
var errOtherGateway = errors.New("written by another gateway")

// Read reads the file; later records replace earlier ones. An incomplete last frame was not
// confirmed and is ignored. Any other error makes the file invalid.
func (f *File) Read(to keystore.Rows) (h Head, err error) {
	file, err := os.Open(f.path)
	if err != nil {
		return h, err
	}
	defer file.Close()
	from := bufio.NewReaderSize(file, frameBytes)
	begins := make([]byte, len(magic))
	if _, err := io.ReadFull(from, begins); err != nil || string(begins) != magic {
		return h, errors.New("not a snapshot of this version")
	}
	var sum uint32
	var frame []byte
	r := reader{coder: coder{reads: true}, to: to}
	for {
		if frame, err = readFrame(from, frame, &sum); err != nil {
			break
		}
		r.bytes = frame
		for len(r.bytes) > 0 {
			if !r.record() {
				return h, errors.New("a record cannot be read")
			}
			if r.head.gateway != f.gateway {
				return h, fmt.Errorf("%w: by %q, this is %q", errOtherGateway, r.head.gateway, f.gateway)
			}
		}
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return h, err
	}
	if !r.isComplete {
		return h, errors.New("it is cut off")
	}
	return r.head, nil
}

// mayStart reports whether this gateway might start from the file: it exists, and no other gateway
// wrote it.
func (f *File) mayStart() bool {
	if _, err := os.Lstat(f.path); err != nil {
		return false // there is no file to remove: on a read-only file system, even the removal of a missing file fails
	}
	var ignored coder
	_, err := f.Read(ignored.writeRows(func() { ignored.bytes = nil }))
	return !errors.Is(err, errOtherGateway)
}

func readFrame(from io.Reader, into []byte, sum *uint32) ([]byte, error) {
	var header [8]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return into, err
	}
	size := binary.LittleEndian.Uint32(header[:])
	if size > frameBytesMax {
		return into, errors.New("checksum does not match")
	}
	if uint32(cap(into)) < size {
		into = make([]byte, size)
	}
	into = into[:size]
	if _, err := io.ReadFull(from, into); err != nil {
		return into, err
	}
	*sum = crc32.Update(*sum, castagnoli, into)
	if binary.LittleEndian.Uint32(header[4:]) != *sum {
		return into, errors.New("checksum does not match")
	}
	return into, nil
}
