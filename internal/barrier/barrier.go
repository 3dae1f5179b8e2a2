// Package barrier makes durable what an embedded server has written.
//
// A server that syncs every message pays for each one alone. In this mode it only
// writes: each message is in a file of its stream before it is acknowledged, as
// without any sync. What the process that runs the server lets out of its hands, it
// syncs first, for all that wait at the same moment with one sync of the disk.
//
// It rests on two properties of the server's file store (nats-server 2.15), and the
// power-loss test holds both: a message is written to the newest block before it is
// acknowledged or delivered, and a block is written no more once the next one is
// there. Blocks are named <number>.blk in the folder msgs of the stream.
package barrier

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrNoStream says that there are no files of the stream.
var ErrNoStream = errors.New("barrier: no files of the stream")

// Store are the files of a server's streams. It is safe for concurrent use.
type Store struct {
	dir string

	mu    sync.Mutex
	tails map[string]*tail
	// synced is when another stream was synced last.
	synced map[string]time.Time
	// failed is the first error of a sync. What the disk holds after it nobody
	// knows, and a sync that comes later may succeed without having written
	// (a kernel reports a lost page once): so nothing is durable any more.
	failed error
	disk   disk
}

// disk is what is asked of the disk; tests watch it.
type disk struct {
	data func(*os.File) error
	name func(path string) error
}

// New returns a Store on a folder that holds a folder for each stream. What is in it
// must be durable; see SyncTree. logs are the streams from which nothing is ever
// removed; of the others the server may write old blocks anew.
func New(dir string, logs ...string) *Store {
	s := &Store{dir: dir, tails: make(map[string]*tail), synced: make(map[string]time.Time), disk: disk{datasync, syncFile}}
	for _, l := range logs {
		s.tails[l] = &tail{dir: filepath.Join(dir, l)}
	}
	return s
}

// Sync returns nil when every message that a stream had stored before the call is
// durable. The error wraps ErrNoStream where the stream is gone; after any other
// error nothing is known of what is durable, and every later call fails as well.
func (s *Store) Sync(stream string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	var err error
	if t := s.tails[stream]; t != nil {
		err = t.sync(s.disk)
	} else {
		err = s.syncAll(stream)
	}
	if errors.Is(err, fs.ErrNotExist) { // it went away meanwhile
		err = errors.Join(ErrNoStream, err)
	}
	if err != nil {
		err = fmt.Errorf("barrier: sync %s: %w", stream, err)
		if !errors.Is(err, ErrNoStream) {
			s.failed = err
		}
	}
	return err
}

// Tick is more than the stamps of files can be behind the clock.
const Tick = 2 * time.Second

// syncAll syncs whatever was written since the last time.
func (s *Store) syncAll(stream string) error {
	dir, began := filepath.Join(s.dir, stream), time.Now()
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	since := s.synced[stream]
	if !since.IsZero() {
		since = since.Add(-Tick)
	}
	if err := errors.Join(SyncTree(dir, since), s.disk.name(s.dir)); err != nil {
		return err
	}
	s.synced[stream] = began
	return nil
}

// Close gives the files back.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, t := range s.tails {
		errs = append(errs, t.close())
	}
	clear(s.tails)
	if s.failed == nil {
		s.failed = fmt.Errorf("barrier: %w", os.ErrClosed)
	}
	return errors.Join(errs...)
}

// tail is the newest block of a stream; everything before it is durable.
type tail struct {
	dir    string
	number int
	block  *os.File
}

func (t *tail) blocks() string { return filepath.Join(t.dir, "msgs") }

func (t *tail) path(number int) string {
	return filepath.Join(t.blocks(), strconv.Itoa(number)+".blk")
}

func (t *tail) close() error {
	if t.block == nil {
		return nil
	}
	err := t.block.Close()
	t.block = nil
	return err
}

// sync syncs the newest block and those that have followed it. Whether there is a
// next one is found out before a block is synced: if there is none, everything that
// was stored before is in this block or an earlier one; if there is, this block is
// complete.
func (t *tail) sync(d disk) error {
	same, err := t.same()
	if err != nil {
		return err
	}
	if !same {
		return t.begin(d)
	}
	for news := false; ; news = true {
		next, err := os.Open(t.path(t.number + 1))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		last := err != nil
		if err := d.data(t.block); err != nil {
			if !last {
				err = errors.Join(err, next.Close())
			}
			return err
		}
		if last {
			if news {
				return d.name(t.blocks()) // the names of the new blocks
			}
			return nil
		}
		if err := t.block.Close(); err != nil {
			return errors.Join(err, next.Close())
		}
		t.block = next
		t.number++
	}
}

// same reports whether the newest block that is known is still the one under its
// name.
func (t *tail) same() (bool, error) {
	if t.block == nil {
		return false, nil
	}
	there, err := os.Stat(t.path(t.number))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ours, err := t.block.Stat()
	return err == nil && os.SameFile(ours, there), err
}

// begin syncs the whole stream and finds its newest block.
func (t *tail) begin(d disk) error {
	if err := t.close(); err != nil {
		return err
	}
	if err := t.newest(); err != nil {
		return err
	}
	block, err := os.Open(t.path(t.number))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		t.block = block
	}
	return errors.Join(SyncTree(t.dir, time.Time{}), d.name(filepath.Dir(t.dir)))
}

// newest finds the number of the newest block, 0 if there is none.
func (t *tail) newest() error {
	entries, err := os.ReadDir(t.blocks())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNoStream, t.dir)
	}
	if err != nil {
		return err
	}
	t.number = 0
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), ".blk")
		if n, err := strconv.Atoi(name); is && err == nil {
			t.number = max(t.number, n)
		}
	}
	return nil
}

// SyncTree syncs every file below dir that was changed at or after a time, and every
// folder. What goes away meanwhile needs no sync; a dir that is not there is none.
func SyncTree(dir string, since time.Time) error {
	dir, err := filepath.EvalSymlinks(dir) // a walk does not follow it
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			err = syncEntry(path, e, since)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// SyncNames syncs the folders from dir up to top, in which the names of new folders
// stand.
func SyncNames(dir, top string) error {
	for {
		err := syncFile(dir)
		if err != nil && (dir != top || !errors.Is(err, fs.ErrPermission)) {
			return err // the folder above ours may be nobody's to read
		}
		if dir == top || dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// Forget has the newest blocks of every stream read from the disk, not from memory.
// After a sync that failed a kernel may keep what it could not write, as if it had:
// whoever reads it would take it for durable. Call it after SyncTree and before the
// files are read.
func Forget(dir string) error {
	streams, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, s := range streams {
		t := tail{dir: filepath.Join(dir, s.Name())}
		err := t.newest()
		if errors.Is(err, ErrNoStream) {
			continue
		}
		if err != nil {
			return err
		}
		for n := max(t.number-1, 1); n <= t.number; n++ {
			if err := forget(t.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func forget(path string) error {
	f, err := os.Open(path) //nolint:gosec // below the store's own folder
	if err != nil {
		return err
	}
	return errors.Join(dropCache(f), f.Close())
}

func syncEntry(path string, e fs.DirEntry, since time.Time) error {
	if e.IsDir() {
		return syncFile(path)
	}
	info, err := e.Info()
	if err != nil || !info.Mode().IsRegular() || info.ModTime().Before(since) {
		return err
	}
	return syncFile(path)
}

// syncFile syncs a file or a folder.
func syncFile(path string) error {
	f, err := os.Open(path) //nolint:gosec // below the store's own folder
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
