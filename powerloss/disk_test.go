package powerloss_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opledger/opledger/powerloss"
)

func mount(t *testing.T, base, from string) *powerloss.Disk {
	t.Helper()
	d, err := powerloss.Mount(base, from)
	if err != nil {
		t.Fatalf("POWER LOSS CAN'T BE TESTED HERE: %v", err)
	}
	return d
}

// The test of the test: what was synced survives a cut, what was only written
// does not, and nothing can be written after it.
func TestOnlySyncedBytesSurvive(t *testing.T) {
	d := mount(t, t.TempDir(), "")
	t.Cleanup(func() {
		if err := d.Unmount(); err != nil {
			t.Error(err)
		}
	})
	write := func(name, text string, flags int, sync bool) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(d.Dir, name), os.O_RDWR|os.O_CREATE|flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if sync {
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write("written", "1234", 0, false)
	write("synced", "1234", 0, true)
	write("by flag", "1234", os.O_SYNC, false)
	write("more", "1234", 0, true)
	write("more", "5678", os.O_APPEND, false)
	write("over", "1234", 0, true)
	write("over", "ab", 0, false)
	write("shorter", "1234", 0, true)
	must(os.Truncate(filepath.Join(d.Dir, "shorter"), 1))
	must(os.Mkdir(filepath.Join(d.Dir, "folder"), 0o700))
	write("folder/new", "1234", 0, true)
	must(os.Rename(filepath.Join(d.Dir, "folder/new"), filepath.Join(d.Dir, "folder/name")))
	write("folder/old", "1234", 0, true)
	write("folder/unsynced", "9", 0, false)
	must(os.Rename(filepath.Join(d.Dir, "folder/unsynced"), filepath.Join(d.Dir, "folder/old")))
	write("gone", "1234", 0, true)
	must(os.Remove(filepath.Join(d.Dir, "gone")))
	if text, err := os.ReadFile(filepath.Join(d.Dir, "more")); err != nil || string(text) != "12345678" {
		t.Fatalf("before the cut: %q, %v", text, err)
	}
	d.Cut()
	for name, want := range map[string]string{
		"written": "", "synced": "1234", "by flag": "1234", "more": "1234", "over": "1234", "shorter": "1234",
		"folder/name": "1234", "folder/old": "",
	} {
		if got, err := os.ReadFile(filepath.Join(d.Durable, name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(d.Durable, "gone")); !os.IsNotExist(err) {
		t.Errorf("a removed file is there: %v", err)
	}
	if err := os.WriteFile(filepath.Join(d.Dir, "after"), []byte("x"), 0o600); err == nil {
		t.Error("written without power")
	}
}
