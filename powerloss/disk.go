// Package powerloss cuts the power under a running ledger.
//
// It mounts a file system that keeps two copies of everything: what was written,
// which its user reads, and what is durable, which only fsync (and writes to files
// opened with O_SYNC) brings up to date. A cut freezes the durable copy and lets
// every further call fail; the ledger is then started again on the durable copy
// alone. It is for tests, and a module of its own, so that the product does not
// depend on FUSE.
//
// It is harsher than a kernel, which writes back by itself after a while, and
// milder in one thing: a new or changed name is durable at once. A torn cut is as
// unkind as a disk may be: of what was not synced some sectors survive, and others
// before them do not.
package powerloss

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Disk is a mounted file system that forgets what was not synced.
type Disk struct {
	// Dir is where it is mounted.
	Dir string
	// Durable is the folder with what a cut leaves.
	Durable string

	live   string
	server *fuse.Server
	// unmount is unmounting, once.
	unmount func() error

	// power is held for reading by every call, and for writing by Cut.
	power sync.RWMutex
	off   bool

	mu    sync.Mutex
	files map[uint64]*shadow
	syncs int
}

// shadow is the durable side of a file, and the copy that is read.
type shadow struct {
	mu      sync.Mutex
	f, live *os.File
	// dirty are the bytes that were written since the last sync.
	dirty []span
}

type span struct{ from, to int64 }

// Mount mounts a disk that holds what is in the folder from, or nothing if that
// is empty. base is a folder for the two copies and the mount point. It needs
// /dev/fuse and root.
func Mount(base, from string) (*Disk, error) {
	d := &Disk{
		Dir: filepath.Join(base, "disk"), Durable: filepath.Join(base, "durable"), live: filepath.Join(base, "live"),
		files: make(map[uint64]*shadow),
	}
	for _, dir := range []string{d.Dir, d.Durable, d.live} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("powerloss: %w", err)
		}
		if from == "" || dir == d.Dir {
			continue
		}
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			return nil, fmt.Errorf("powerloss: %w", err)
		}
	}
	root := &fs.LoopbackRoot{Path: d.live}
	top := &node{LoopbackNode: fs.LoopbackNode{RootData: root}, d: d}
	root.RootNode = top
	var err error
	d.server, err = fs.Mount(d.Dir, top, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMount: true, FsName: "powerloss", Name: "powerloss", AllowOther: false,
	}})
	if err != nil {
		return nil, fmt.Errorf("powerloss: mount: %w (needs /dev/fuse and root)", err)
	}
	d.unmount = sync.OnceValue(d.unmounting)
	return d, nil
}

// Cut takes the power away: from now on every call fails, and Durable is what is
// left.
func (d *Disk) Cut() {
	d.power.Lock()
	defer d.power.Unlock()
	d.off = true
}

// sector is what a disk writes as a whole or not at all.
const sector = 512

// CutTorn is Cut, and of what was not synced each sector survives by chance.
func (d *Disk) CutTorn(rnd *rand.Rand) error {
	d.Cut()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.files {
		if err := s.tear(rnd); err != nil {
			return fmt.Errorf("powerloss: tear: %w", err)
		}
	}
	return nil
}

func (s *shadow) tear(rnd *rand.Rand) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	buf := make([]byte, sector)
	for _, w := range s.dirty {
		for from := w.from; from < w.to; {
			to := min(from-from%sector+sector, w.to)
			n, err := s.live.ReadAt(buf[:to-from], from)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if rnd.IntN(2) == 0 {
				if _, err := s.f.WriteAt(buf[:n], from); err != nil {
					return err
				}
			}
			from = to
		}
	}
	s.dirty = nil
	return nil
}

// Syncs counts the syncs so far.
func (d *Disk) Syncs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// Unmount ends a disk that nobody uses any more. Doing it once more does nothing.
func (d *Disk) Unmount() error {
	return d.unmount()
}

func (d *Disk) unmounting() error {
	err := d.server.Unmount()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.files {
		err = errors.Join(err, s.f.Close(), s.live.Close())
	}
	return err
}

// on runs a call while there is power.
func (d *Disk) on(call func() syscall.Errno) syscall.Errno {
	d.power.RLock()
	defer d.power.RUnlock()
	if d.off {
		return syscall.EIO
	}
	return call()
}

// shadowOf returns the durable side of a file that is open as fd.
func (d *Disk) shadowOf(path string, ino uint64) (*shadow, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.files[ino]; s != nil {
		return s, 0
	}
	f, err := os.OpenFile(filepath.Join(d.Durable, path), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // below its own folder
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	live, err := os.Open(filepath.Join(d.live, path)) //nolint:gosec // as above
	if err != nil {
		return nil, fs.ToErrno(errors.Join(err, f.Close()))
	}
	s := &shadow{f: f, live: live}
	d.files[ino] = s
	return s, 0
}

// forget lets go of the durable side of a file whose name is going.
func (d *Disk) forget(path string) {
	var st syscall.Stat_t
	if syscall.Lstat(filepath.Join(d.live, path), &st) != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, st.Ino) // handles that are open keep theirs
}

// sync makes what was written to a file durable.
func (d *Disk) sync(s *shadow, live int) syscall.Errno {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st syscall.Stat_t
	if err := syscall.Fstat(live, &st); err != nil {
		return fs.ToErrno(err)
	}
	for _, w := range s.dirty {
		buf := make([]byte, max(min(w.to, st.Size)-w.from, 0))
		n, err := syscall.Pread(live, buf, w.from)
		if err != nil {
			return fs.ToErrno(err)
		}
		if _, err := s.f.WriteAt(buf[:n], w.from); err != nil {
			return fs.ToErrno(err)
		}
	}
	s.dirty = s.dirty[:0]
	d.mu.Lock()
	d.syncs++
	d.mu.Unlock()
	return fs.ToErrno(s.f.Truncate(st.Size))
}

// node is a file or a folder.
type node struct {
	fs.LoopbackNode
	d *Disk
}

func (n *node) rel(name string) string {
	return filepath.Join(n.Path(n.Root()), name)
}

// openFlags are those of the copy that is read: a sync reads it, too, and where a
// write goes the kernel says.
func openFlags(flags uint32) int {
	return int(flags&^(syscall.O_APPEND|syscall.O_SYNC|syscall.O_ACCMODE)) | syscall.O_RDWR
}

// Create makes a file; its name is durable at once, its content is not.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (child *fs.Inode, h fs.FileHandle, _ uint32, errno syscall.Errno) {
	errno = n.d.on(func() syscall.Errno {
		path := n.rel(name)
		fd, err := syscall.Open(filepath.Join(n.d.live, path), openFlags(flags)|syscall.O_CREAT, mode)
		if err != nil {
			return fs.ToErrno(err)
		}
		var st syscall.Stat_t
		if err := syscall.Fstat(fd, &st); err != nil {
			return fs.ToErrno(errors.Join(err, syscall.Close(fd)))
		}
		s, errno := n.d.shadowOf(path, st.Ino)
		if errno != 0 {
			_ = syscall.Close(fd)
			return errno
		}
		out.FromStat(&st)
		child = n.child(ctx, &st)
		h = &handle{d: n.d, s: s, fd: fd, always: flags&syscall.O_DSYNC != 0}
		return 0
	})
	return child, h, 0, errno
}

// Lookup finds a name.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	var st syscall.Stat_t
	if err := syscall.Lstat(filepath.Join(n.d.live, n.rel(name)), &st); err != nil {
		return nil, fs.ToErrno(err)
	}
	out.FromStat(&st)
	return n.child(ctx, &st), 0
}

func (n *node) child(ctx context.Context, st *syscall.Stat_t) *fs.Inode {
	child := &node{LoopbackNode: fs.LoopbackNode{RootData: n.RootData}, d: n.d}
	return n.NewInode(ctx, child, fs.StableAttr{Mode: st.Mode, Ino: st.Ino})
}

// Link, Symlink and Mknod are not needed, and would not be durable.
func (n *node) Link(context.Context, fs.InodeEmbedder, string, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.ENOTSUP
}

// Symlink is not needed.
func (n *node) Symlink(context.Context, string, string, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.ENOTSUP
}

// Mknod is not needed.
func (n *node) Mknod(context.Context, string, uint32, uint32, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.ENOTSUP
}

// Open opens a file.
func (n *node) Open(_ context.Context, flags uint32) (h fs.FileHandle, _ uint32, errno syscall.Errno) {
	errno = n.d.on(func() syscall.Errno {
		path := n.rel("")
		fd, err := syscall.Open(filepath.Join(n.d.live, path), openFlags(flags), 0)
		if err != nil {
			return fs.ToErrno(err)
		}
		var st syscall.Stat_t
		if err := syscall.Fstat(fd, &st); err != nil {
			return fs.ToErrno(errors.Join(err, syscall.Close(fd)))
		}
		s, errno := n.d.shadowOf(path, st.Ino)
		if errno != 0 {
			_ = syscall.Close(fd)
			return errno
		}
		h = &handle{d: n.d, s: s, fd: fd, always: flags&syscall.O_DSYNC != 0}
		return 0
	})
	return h, 0, errno
}

// Mkdir makes a folder.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (child *fs.Inode, errno syscall.Errno) {
	errno = n.d.on(func() syscall.Errno {
		path := n.rel(name)
		for _, root := range []string{n.d.live, n.d.Durable} {
			if err := syscall.Mkdir(filepath.Join(root, path), mode); err != nil {
				return fs.ToErrno(err)
			}
		}
		var errno syscall.Errno
		child, errno = n.Lookup(ctx, name, out)
		return errno
	})
	return child, errno
}

// Rmdir removes a folder.
func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	return n.both(func(root string) error { return syscall.Rmdir(filepath.Join(root, n.rel(name))) })
}

// Unlink removes a file.
func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	return n.d.on(func() syscall.Errno {
		n.d.forget(n.rel(name))
		for _, root := range []string{n.d.live, n.d.Durable} {
			if err := syscall.Unlink(filepath.Join(root, n.rel(name))); err != nil {
				return fs.ToErrno(err)
			}
		}
		return 0
	})
}

// Rename moves a name; the content that was not synced stays undurable.
func (n *node) Rename(_ context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	target, ok := to.(*node)
	if !ok || flags != 0 {
		return syscall.ENOSYS
	}
	return n.d.on(func() syscall.Errno {
		n.d.forget(target.rel(newName))
		for _, root := range []string{n.d.live, n.d.Durable} {
			if err := syscall.Rename(filepath.Join(root, n.rel(name)), filepath.Join(root, target.rel(newName))); err != nil {
				return fs.ToErrno(err)
			}
		}
		return 0
	})
}

func (n *node) both(call func(root string) error) syscall.Errno {
	return n.d.on(func() syscall.Errno {
		for _, root := range []string{n.d.live, n.d.Durable} {
			if err := call(root); err != nil {
				return fs.ToErrno(err)
			}
		}
		return 0
	})
}

// Fsync of a folder: names are durable at once.
func (n *node) Fsync(_ context.Context, h fs.FileHandle, _ uint32) syscall.Errno {
	if f, ok := h.(*handle); ok {
		return f.fsync()
	}
	return n.d.on(func() syscall.Errno { return 0 })
}

// Getattr tells about a file.
func (n *node) Getattr(_ context.Context, h fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	var st syscall.Stat_t
	var err error
	if f, ok := h.(*handle); ok {
		err = syscall.Fstat(f.fd, &st)
	} else {
		err = syscall.Lstat(filepath.Join(n.d.live, n.rel("")), &st)
	}
	if err != nil {
		return fs.ToErrno(err)
	}
	out.FromStat(&st)
	return 0
}

// Setattr truncates a file, and passes over what matters to nobody here.
func (n *node) Setattr(ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	errno := n.d.on(func() syscall.Errno {
		size, ok := in.GetSize()
		if !ok {
			return 0
		}
		if f, open := h.(*handle); open {
			return fs.ToErrno(syscall.Ftruncate(f.fd, int64(size)))
		}
		return fs.ToErrno(syscall.Truncate(filepath.Join(n.d.live, n.rel("")), int64(size)))
	})
	if errno != 0 {
		return errno
	}
	return n.Getattr(ctx, h, out)
}

// handle is an open file.
type handle struct {
	d  *Disk
	s  *shadow
	fd int
	// always: every write is synced.
	always bool
}

// Read reads what was written.
func (f *handle) Read(_ context.Context, buf []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := syscall.Pread(f.fd, buf, off)
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(buf[:n]), 0
}

// Write writes what is durable later, or never.
func (f *handle) Write(_ context.Context, data []byte, off int64) (written uint32, errno syscall.Errno) {
	errno = f.d.on(func() syscall.Errno {
		n, err := syscall.Pwrite(f.fd, data, off)
		if err != nil {
			return fs.ToErrno(err)
		}
		written = uint32(n)
		f.s.mu.Lock()
		f.s.dirty = append(f.s.dirty, span{off, off + int64(n)})
		f.s.mu.Unlock()
		if f.always {
			return f.d.sync(f.s, f.fd)
		}
		return 0
	})
	return written, errno
}

func (f *handle) fsync() syscall.Errno {
	return f.d.on(func() syscall.Errno { return f.d.sync(f.s, f.fd) })
}

// Fsync makes what was written durable.
func (f *handle) Fsync(context.Context, uint32) syscall.Errno { return f.fsync() }

// Flush is a close; it syncs nothing.
func (f *handle) Flush(context.Context) syscall.Errno { return 0 }

// Release gives the file back.
func (f *handle) Release(context.Context) syscall.Errno { return fs.ToErrno(syscall.Close(f.fd)) }
