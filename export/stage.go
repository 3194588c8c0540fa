package export

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	runlock "github.com/tierlora/tierlora/train/checkpoint"
)

// staged calls make with a temporary folder, then renames that to outDir.
func staged(outDir string, make func(dir string) error) error {
	outDir = filepath.Clean(outDir)
	if err := os.MkdirAll(filepath.Dir(outDir), 0o755); err != nil {
		return err
	}
	return unfinished(outDir, func(dir string) error {
		if err := make(dir); err != nil {
			return err
		}
		return install(dir, outDir)
	})
}

// unfinished calls make with a temporary folder beside out. It removes what an earlier process left there; a lock
// distinguishes that from a process that is still working.
func unfinished(out string, make func(dir string) error) (err error) {
	partial := filepath.Join(filepath.Dir(out), ".partial-"+filepath.Base(out))
	lock, err := runlock.Acquire(partial)
	if held := (*runlock.HeldError)(nil); errors.As(err, &held) {
		return fmt.Errorf("process %d on %s is writing it: wait for it to end", held.Holder.PID, held.Holder.Host)
	}
	if err != nil {
		return err
	}
	dir := filepath.Join(partial, "new")
	defer func() {
		os.RemoveAll(dir) //nolint:errcheck // nobody reads it
		err = errors.Join(err, lock.Release())
		os.Remove(partial) //nolint:errcheck // it was there before where an earlier process was cut short
	}()
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return make(dir)
}

// refuseOthers returns an error if a folder has one of the files with other content. Equal files may come from a merge
// that was interrupted while it moved its files.
func refuseOthers(files map[string][]byte, dir string) error {
	for name, data := range files {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		if old, err := regular.ReadFile(path); err != nil || !bytes.Equal(old, data) {
			return fmt.Errorf("it holds %s already; name another folder", name)
		}
	}
	return nil
}

// install renames a finished folder, or moves its files into an existing folder of that name. The files by which
// readers recognise a model come last.
func install(from, outDir string) error {
	there, err := os.Lstat(outDir)
	if err == nil && there.IsDir() {
		err = os.Remove(outDir) // succeeds if it is empty
	}
	if err == nil && there.IsDir() || errors.Is(err, fs.ErrNotExist) {
		if err := atomicfile.Rename(from, outDir); err != nil {
			return err
		}
		return atomicfile.SyncDir(filepath.Dir(outDir))
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.SortStableFunc(names, func(a, b string) int { return lastness(a) - lastness(b) })
	for _, name := range names {
		if err := atomicfile.Install(filepath.Join(from, name), filepath.Join(outDir, name)); err != nil {
			return err
		}
	}
	return atomicfile.SyncDir(outDir)
}

// lastness orders files: weights after the rest, then the files that make a folder a model.
func lastness(name string) int {
	switch {
	case name == "model.safetensors" || name == "model.safetensors.index.json" || name == "adapter_model.safetensors" ||
		name == "adapters.safetensors", name == modelfileName:
		return 2
	case filepath.Ext(name) == ".safetensors", filepath.Ext(name) == ".gguf":
		return 1
	}
	return 0
}
