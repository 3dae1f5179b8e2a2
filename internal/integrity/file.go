package integrity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// format is the version of the file.
const format = 1

// file is the content of a mark's file.
type file struct {
	Format int `json:"format"`
	Mark
	// Clean: written when the process stopped in order, so that nothing of its
	// own lies behind it.
	Clean bool `json:"clean"`
}

// Load reads a mark. It returns nil if there is no file. One that can't be read
// is an error: who does not know what the log was must not go on as if there had
// been nothing.
func Load(path string) (*Mark, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the operator names it
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("integrity: high-water mark: %w", err)
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil || f.Format != format || f.Ledger == "" || f.Rolling == "" {
		return nil, fmt.Errorf("integrity: the high-water mark in %s can't be read; restore it, or move it away: "+
			"then the log is checked against itself only", path)
	}
	return &f.Mark, nil
}

// Save writes a mark so that a crash or a power loss leaves either the one before
// or this one: a new file, synced, takes the place of the old one, and the folder
// is synced.
func Save(path string, m Mark, clean bool) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("integrity: high-water mark: %w", err)
		}
	}()
	data, err := json.MarshalIndent(file{Format: format, Mark: m, Clean: clean}, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(append(data, '\n'))
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	d, err := os.Open(dir) //nolint:gosec // the operator names it
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
