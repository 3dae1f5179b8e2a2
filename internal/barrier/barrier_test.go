package barrier

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// watched is a store whose syncs are written down.
func watched(t *testing.T) (s *Store, dir string, synced func() []string) {
	t.Helper()
	root := t.TempDir()
	dir = filepath.Join(root, "LOG", "msgs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var names []string
	s = New(root, "LOG")
	s.disk = disk{
		data: func(f *os.File) error { names = append(names, filepath.Base(f.Name())); return nil },
		name: func(path string) error { names = append(names, filepath.Base(path)+"/"); return nil },
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, dir, func() []string {
		out := names
		names = nil
		return out
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("message"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustSync(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Sync("LOG"); err != nil {
		t.Fatal(err)
	}
}

// What was stored before the call is in the newest block that is known, or in one
// that has followed it.
func TestASyncCoversTheBlocksThatHaveFollowed(t *testing.T) {
	t.Parallel()
	s, dir, synced := watched(t)
	write(t, filepath.Join(dir, "9.blk"))
	write(t, filepath.Join(dir, "10.blk"))
	mustSync(t, s) // the first one syncs everything
	synced()
	for _, step := range []struct {
		more []string
		want []string
	}{
		{nil, []string{"10.blk"}},
		{[]string{"11.blk"}, []string{"10.blk", "11.blk", "msgs/"}},
		{[]string{"12.blk", "13.blk", "14.blk"}, []string{"11.blk", "12.blk", "13.blk", "14.blk", "msgs/"}},
		{nil, []string{"14.blk"}},
	} {
		for _, name := range step.more {
			write(t, filepath.Join(dir, name))
		}
		mustSync(t, s)
		if got := synced(); !slices.Equal(got, step.want) {
			t.Errorf("after %v: synced %v, want %v", step.more, got, step.want)
		}
	}
}

// A block that was put in another one's place, and a stream that was made anew, are
// not taken for what was there before.
func TestWhatWasReplacedIsSyncedAnew(t *testing.T) {
	t.Parallel()
	s, dir, synced := watched(t)
	block := filepath.Join(dir, "5.blk")
	write(t, block)
	mustSync(t, s)
	write(t, block+".new")
	if err := os.Rename(block+".new", block); err != nil {
		t.Fatal(err)
	}
	synced()
	mustSync(t, s)
	if got := synced(); len(got) == 0 || got[0] == "5.blk" {
		t.Errorf("a replaced block: synced %v, want everything", got)
	}
	mustSync(t, s)
	if got := synced(); !slices.Equal(got, []string{"5.blk"}) {
		t.Errorf("after it: synced %v", got)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync("LOG"); !errors.Is(err, ErrNoStream) {
		t.Errorf("a stream that is gone: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "1.blk"))
	mustSync(t, s)
	synced()
	mustSync(t, s)
	if got := synced(); !slices.Equal(got, []string{"1.blk"}) {
		t.Errorf("a stream made anew: synced %v", got)
	}
}

// A kernel tells of a page that it could not write once. Who asks again may be told
// that all is well.
func TestAfterAFailedSyncNothingIsDurableAnyMore(t *testing.T) {
	t.Parallel()
	s, dir, _ := watched(t)
	write(t, filepath.Join(dir, "1.blk"))
	mustSync(t, s)
	works := s.disk
	broken := errors.New("input/output error")
	s.disk.data = func(*os.File) error { return broken }
	if err := s.Sync("LOG"); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	s.disk = works
	if err := s.Sync("LOG"); !errors.Is(err, broken) {
		t.Errorf("the next sync says %v", err)
	}
	if err := s.Sync("OTHER"); !errors.Is(err, broken) {
		t.Errorf("the next sync of another stream says %v", err)
	}
}

// Of a stream from which something may be removed everything that was written is synced,
// and one that went away is no failure of the disk.
func TestOfOtherStreamsEverythingIsSynced(t *testing.T) {
	t.Parallel()
	s, dir, synced := watched(t)
	if err := s.Sync("OTHER"); !errors.Is(err, ErrNoStream) {
		t.Errorf("a stream that is not there: %v", err)
	}
	other := filepath.Join(filepath.Dir(filepath.Dir(dir)), "OTHER", "msgs")
	if err := os.MkdirAll(other, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(other, "1.blk"))
	for range 2 {
		synced()
		if err := s.Sync("OTHER"); err != nil {
			t.Fatal(err)
		}
		if got := synced(); len(got) != 1 {
			t.Errorf("synced the names %v, want those of the streams", got)
		}
	}
}

// A symbolic link in place of the folder is followed, the folders above are synced up
// to the top, and the newest blocks can be read from the disk.
func TestTheStoreIsMadeDurableWhereverItLies(t *testing.T) {
	t.Parallel()
	s, dir, _ := watched(t)
	write(t, filepath.Join(dir, "1.blk"))
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(s.dir, link); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(SyncTree(link, time.Time{}), SyncNames(dir, s.dir)); err != nil {
		t.Error(err)
	}
	for _, root := range []string{s.dir, link, filepath.Join(link, "nothing")} {
		if err := Forget(root); err != nil {
			t.Errorf("%s: %v", root, err)
		}
	}
}

func TestATreeIsSyncedAsFarAsItIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "1.blk"))
	for _, path := range []string{dir, filepath.Join(dir, "nothing")} {
		if err := SyncTree(path, time.Time{}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
