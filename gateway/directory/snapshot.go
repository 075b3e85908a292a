package directory

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/durable"
	"petgate/shared/keystore"
)

const (
	snapshotMagic = "petgate directory snapshot 5\n"
	snapshotEvery = time.Minute
	frameBytes    = 64 << 10
	frameBytesMax = 64 << 20 // a larger frame is invalid

	changedBytesMin = 1 << 20 // of changes, before a file is replaced
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snapshot is the snapshot's file: a magic line, then frames with a length, a checksum and records. Each checksum
// continues the previous one, so a missing or misplaced frame is detected. Later changes follow the end record, one frame
// for each batch of events. They are on disk before the heartbeat that confirms them.
type snapshot struct {
	path   string        // empty: there is no snapshot
	wanted chan struct{} // wakes the writer after a load

	mu         sync.Mutex
	file       *frames  // nil: the file on disk is not what this process has loaded
	generation int      // of the state; a new file of an earlier generation is discarded
	taking     bool     // a new file is being written…
	meanwhile  [][]byte // …and these changes must be appended to it
	stale      string   // path of a file that is older than what is in force: not removed yet; empty: there is none
	changed    int      // bytes of changes in the file
}

// frames writes frames.
type frames struct {
	*os.File
	to   *bufio.Writer
	sum  uint32
	size int
}

func (f *frames) write(records []byte) error {
	f.sum = crc32.Update(f.sum, castagnoli, records)
	var header [8]byte
	binary.LittleEndian.PutUint32(header[:], uint32(len(records)))
	binary.LittleEndian.PutUint32(header[4:], f.sum)
	f.size += len(header) + len(records)
	f.to.Write(header[:])
	_, err := f.to.Write(records) // a buffer keeps its first error
	return err
}

// invalidate removes the file before a load is confirmed, because the file does not contain that load.
func (s *snapshot) invalidate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
	s.discard()
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// isOutdated reports whether a new file should be written: there is no file, or changes take more than half of it.
func (s *snapshot) isOutdated() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation > 0 && (s.file == nil || s.changed > max(s.file.size/2, changedBytesMin))
}

// discard removes the file. If that fails, clean tries again. The lock must be held.
func (s *snapshot) discard() {
	s.shut()
	if s.path != "" {
		s.stale = s.path
		_ = s.removeStale() // clean tries again
	}
}

// removeStale removes the file that is older than the state in force, if there is one. The lock must be held.
func (s *snapshot) removeStale() error {
	if s.stale == "" {
		return nil
	}
	err := durable.Remove(s.stale)
	if err == nil {
		s.stale = ""
	}
	return err
}

// clean tries again to remove a file that is older than the state in force. It returns an error if that fails.
func (s *snapshot) clean() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removeStale()
}

// append adds records to the file. Changes are on disk when it returns. If it fails, it removes the file, because a
// gateway that restarts from an old file would admit requests whose refusal was confirmed.
func (s *snapshot) append(records []byte, isChange bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taking && isChange {
		s.meanwhile = append(s.meanwhile, records)
	}
	if s.file == nil {
		return nil
	}
	err := s.file.write(records)
	if err == nil {
		err = s.file.to.Flush()
	}
	if err == nil && isChange {
		s.changed += len(records)
		err = s.file.Sync()
	}
	if err != nil {
		s.discard()
		return fmt.Errorf("directory: append to snapshot: %w", err)
	}
	return nil
}

// record adds the changes of a tail to the snapshot.
func (d *Directory) record(c *changes) {
	if d.snapshot.path == "" {
		return
	}
	if err := d.snapshot.append(c.appendTo(appendHead(nil, d.head())), true); err != nil {
		d.cfg.Log.Error("directory: running without a snapshot until the next one is written", "error", err)
	}
}

// recordHead adds the current head, with the last contact, to the snapshot.
func (d *Directory) recordHead() {
	if d.snapshot.path == "" {
		return
	}
	if err := d.snapshot.append(appendHead(nil, d.head()), false); err != nil {
		d.cfg.Log.Error("directory: running without a snapshot until the next one is written", "error", err)
	}
}

func (d *Directory) head() head {
	h := head{gateway: d.cfg.GatewayID, gateways: d.gateways.Load(), maxAge: d.maxAge.Load()}
	if at := d.position.Load(); at != nil {
		h.position = *at
	}
	if seen := d.seen.Load(); seen != nil {
		h.seen = seen.UnixMilli()
	}
	return h
}

// writeSnapshots takes a snapshot after each load, and again when many changes have been appended to it.
func (d *Directory) writeSnapshots(ctx context.Context) {
	if d.snapshot.path == "" {
		return
	}
	tick := time.NewTicker(snapshotEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-d.snapshot.wanted:
			err = d.takeSnapshot()
		case <-tick.C:
			if d.snapshot.isOutdated() {
				err = d.takeSnapshot()
			} else {
				d.recordHead()
			}
		case <-ctx.Done():
			return
		}
		if err != nil {
			d.cfg.Log.Error("directory: cannot write the snapshot; trying again in a minute", "path", d.cfg.Snapshot, "error", err)
		}
	}
}

// takeSnapshot writes a new file and replaces the old one with it.
func (d *Directory) takeSnapshot() error {
	s := &d.snapshot
	d.mu.Lock() // so that the image is consistent; later changes are appended
	image := d.state.Load()
	keys, tenants, plans := image.keys.len, image.tenants.len, map[string]plan.Limits{}
	for name, record := range image.plans {
		plans[name] = record.now.Load().Limits
	}
	s.mu.Lock()
	s.taking, s.meanwhile = true, nil
	generation := s.generation
	s.mu.Unlock()
	d.mu.Unlock()

	f, err := createFrames(s.path)
	if err == nil {
		err = f.writeState(d.head(), image, keys, tenants, plans)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.taking = false
	if err == nil && generation == s.generation {
		for _, records := range s.meanwhile {
			err = errors.Join(err, f.write(records))
		}
		if err = errors.Join(err, f.to.Flush()); err == nil {
			s.shut()
			if err = durable.Replace(f.File, s.path); err == nil {
				s.file, s.meanwhile, s.changed, s.stale = f, nil, 0, ""
				return nil
			}
			s.discard() // the new file may have the name by now, without the directory being on disk
		}
	}
	s.meanwhile = nil
	if f != nil {
		f.Close()
		os.Remove(f.Name())
	}
	return err
}

func createFrames(path string) (*frames, error) {
	file, err := durable.Create(path)
	if err != nil {
		return nil, err
	}
	f := &frames{File: file, to: bufio.NewWriter(file)}
	_, err = f.to.WriteString(snapshotMagic)
	return f, err
}

func (f *frames) writeState(h head, s *state, keys, tenants int, plans map[string]plan.Limits) error {
	b := appendHead(make([]byte, 0, frameBytes+1024), h)
	for name, limits := range plans {
		b = appendPlan(b, name, limits)
	}
	flush := func(least int) error {
		if len(b) < least {
			return nil
		}
		err := f.write(b)
		b = b[:0]
		return err
	}
	for ref := range uint32(tenants) {
		t := s.tenants.at(ref)
		now := t.terms.Load()
		b = appendTenant(b, &keystore.TenantRow{ID: t.id, Plan: now.plan.name, Override: now.override, Suspended: now.suspended, UsedSince: now.usedSince})
		if err := flush(frameBytes); err != nil {
			return err
		}
	}
	for ref := range uint32(keys) {
		k := s.keys.at(ref)
		row := keystore.KeyRow{
			Hash: k.hash, ID: k.id, Tenant: s.tenants.at(k.tenant).id, Environment: apikey.Environment(k.environment),
			Scopes: apikey.Scopes(k.scopes.Load()), Allow: s.allow(k), Name: *s.names.at(k.name.Load()), ReplacedBy: s.successor(k),
			ExpiresAt: instant.Millis(k.expiresAt.Load()), RevokedAt: instant.Millis(k.revokedAt.Load()),
			GraceEndsAt: instant.Millis(k.graceEndsAt.Load()),
		}
		b = appendKey(b, &row)
		if ban := s.ban(k); ban.Until != 0 {
			b = appendBan(b, *ban)
		}
		if err := flush(frameBytes); err != nil {
			return err
		}
	}
	b = append(b, tagEnd)
	if err := flush(0); err != nil {
		return err
	}
	if err := f.to.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

// remove removes the file before the gateway signs off.
func (s *snapshot) remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut()
	if s.path != "" {
		s.stale = s.path
	}
	return s.removeStale()
}

func (s *snapshot) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut()
}

// shut closes the file. The lock must be held.
func (s *snapshot) shut() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// readSnapshot reads the records of a gateway's snapshot; later records replace earlier ones. An incomplete last frame was not
// confirmed and is ignored. Any other error makes the file invalid.
func readSnapshot(path, gateway string, to keystore.Rows) (head, error) {
	h, err := readFrames(path, gateway, to)
	if err != nil {
		return head{}, fmt.Errorf("directory: snapshot: %w", err)
	}
	return h, nil
}

// errOtherGateway means that another gateway wrote the snapshot.
var errOtherGateway = errors.New("written by another gateway")

func readFrames(path, gateway string, to keystore.Rows) (h head, err error) {
	file, err := os.Open(path)
	if err != nil {
		return h, err
	}
	defer file.Close()
	from := bufio.NewReaderSize(file, frameBytes)
	magic := make([]byte, len(snapshotMagic))
	if _, err := io.ReadFull(from, magic); err != nil || string(magic) != snapshotMagic {
		return h, errors.New("not a snapshot of this version")
	}
	var sum uint32
	var frame []byte
	var d decoder
	complete := false
	for {
		if frame, err = readFrame(from, frame, &sum); err != nil {
			break
		}
		d.left = frame
		for len(d.left) > 0 {
			if err := d.record(to, &h, &complete); err != nil {
				return h, err
			}
			if h.gateway != gateway {
				return h, fmt.Errorf("%w: by %q, this is %q", errOtherGateway, h.gateway, gateway)
			}
		}
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return h, err
	}
	if !complete {
		return h, errors.New("it is cut off")
	}
	return h, nil
}

// mayStart reports whether this gateway might start from the file: it exists, and no other gateway wrote it.
func mayStart(path, gateway string) bool {
	if _, err := os.Lstat(path); err != nil {
		return false // there is no file to remove: on a read-only file system, even the removal of a missing file fails
	}
	nothing := keystore.Rows{
		Plan: func(keystore.Plan) {}, Tenant: func(*keystore.TenantRow) {}, Key: func(*keystore.KeyRow) {},
		Ban: func(keystore.BanRow) {},
	}
	_, err := readSnapshot(path, gateway, nothing)
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
