// Package checkpoint stores a run's checkpoints and locks its folder. A checkpoint is a folder that appears under its
// name only when all of its files are on the disk, with a size and a SHA-256 of each. One process at a time owns a
// run's folder. The package depends on no model.
package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// Files of a checkpoint that this package knows by name.
const (
	StateFile = "trainer_state.json" // a State
	SumFile   = "checkpoint.json"    // size and SHA-256 of every other file
)

type fileSum struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

type summary struct {
	Format int       `json:"format"`
	Step   int       `json:"step"`
	Files  []fileSum `json:"files"`
}

const format = 1

// Name returns the folder name of a step's checkpoint.
func Name(step int) string { return "checkpoint-" + strconv.Itoa(step) }

// Names of folders that are not checkpoints: incomplete ones, ones to be deleted, and ones moved aside for a newer one.
const (
	partialPrefix = ".partial-"
	deadPrefix    = ".dead-"
	asidePrefix   = ".aside-"
)

// Stream is a file of a checkpoint that is written while it is generated, so that its bytes are never all in memory.
type Stream struct {
	Name  string
	Bytes int64 // least size in bytes; 0 = unknown
	Write func(io.Writer) error
}

// Save writes dir/checkpoint-<step> with the given files, which must include trainer_state.json, and the streams. The
// folder appears under its name only when all of it is on the disk, and replaces a checkpoint of the same step. If the
// disk has too little space, Save returns an *atomicfile.FullError and earlier checkpoints stay intact.
func Save(dir string, step int, files map[string][]byte, streams ...Stream) error {
	if err := save(dir, step, files, streams); err != nil {
		return fmt.Errorf("save %s: %w", filepath.Join(dir, Name(step)), err)
	}
	return nil
}

func save(dir string, step int, files map[string][]byte, streams []Stream) error {
	if _, ok := files[StateFile]; !ok {
		return fmt.Errorf("no %s among its files", StateFile)
	}
	for name, data := range files {
		streams = append(streams,
			Stream{name, int64(len(data)), func(w io.Writer) error { _, err := w.Write(data); return err }})
	}
	slices.SortFunc(streams, func(a, b Stream) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range streams {
		if !simpleName(s.Name) || s.Name == SumFile {
			return fmt.Errorf("%q can't be the name of a file in it", s.Name)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := RemoveLeftovers(dir); err != nil {
		return err
	}
	if err := fits(dir, step, streams); err != nil {
		return err
	}
	partial, err := os.MkdirTemp(dir, partialPrefix)
	if err != nil {
		return atomicfile.Room(err, filepath.Join(dir, Name(step)), 0)
	}
	defer os.RemoveAll(partial)
	if err := os.Chmod(partial, 0o755); err != nil {
		return err
	}
	all := summary{Format: format, Step: step}
	for _, s := range streams {
		sum, err := writeSynced(partial, s)
		if err != nil {
			return err
		}
		all.Files = append(all.Files, sum)
	}
	list, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if _, err := writeSynced(partial,
		Stream{SumFile, int64(len(list)),
			func(w io.Writer) error { _, err := w.Write(append(list, '\n')); return err }}); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(partial); err != nil {
		return err
	}
	return install(dir, partial, Name(step))
}

// install gives the finished folder its name. An older folder of that name is moved aside first and deleted last: if
// the process crashes in between, Latest still finds it.
func install(dir, partial, name string) error {
	target, aside := filepath.Join(dir, name), filepath.Join(dir, asidePrefix+name)
	err := atomicfile.Rename(target, aside)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := atomicfile.Rename(partial, target); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(dir); err != nil {
		return err
	}
	return os.RemoveAll(aside)
}

// RemoveLeftovers deletes what a killed process left in a run's folder, and restores a checkpoint that it had moved
// aside.
func RemoveLeftovers(dir string) error {
	if err := restoreAside(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), partialPrefix) || strings.HasPrefix(e.Name(), deadPrefix) ||
			strings.HasPrefix(e.Name(), asidePrefix) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// restoreAside restores a checkpoint that was moved aside for a newer one which was never completed.
func restoreAside(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), asidePrefix)
		if !ok {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			if err := atomicfile.Rename(filepath.Join(dir, e.Name()), filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fits returns an *atomicfile.FullError if the disk has too little space for a checkpoint, before any of it is written.
func fits(dir string, step int, streams []Stream) error {
	var needed int64
	for _, s := range streams {
		needed += s.Bytes
	}
	if free, ok := diskFree(dir); ok && free < needed {
		return &atomicfile.FullError{Path: filepath.Join(dir, Name(step)), Needed: needed, Free: free}
	}
	return nil
}

// diskFree returns the number of bytes that may be written into a folder; tests replace it to simulate a full disk.
var diskFree = atomicfile.Free

// writeSynced writes a new file and returns its size and hash.
func writeSynced(dir string, s Stream) (fileSum, error) {
	path := filepath.Join(dir, s.Name)
	f, err := atomicfile.Create(path, 0o644)
	if err != nil {
		return fileSum{}, atomicfile.Room(err, path, s.Bytes)
	}
	hash, size := sha256.New(), counter(0)
	err = s.Write(io.MultiWriter(f, hash, &size))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return fileSum{s.Name, int64(size), hex.EncodeToString(hash.Sum(nil))},
		atomicfile.Room(err, path, max(s.Bytes, int64(size)))
}

// counter counts the bytes written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// Prune deletes all but the newest keep checkpoints of dir; 0 keeps all. The checkpoint named best (a folder name, or
// "") is never deleted and not counted.
func Prune(dir string, keep int, best string) error {
	steps, err := Steps(dir)
	if err != nil || keep < 1 {
		return err
	}
	steps = slices.DeleteFunc(steps, func(step int) bool { return Name(step) == best })
	for _, step := range steps[:max(0, len(steps)-keep)] {
		// rename first, so that a crash leaves no incomplete checkpoint under its name
		name := Name(step)
		dead := filepath.Join(dir, deadPrefix+name)
		if err := atomicfile.Rename(filepath.Join(dir, name), dead); err != nil {
			return fmt.Errorf("delete old checkpoint: %w", err)
		}
		if err := os.RemoveAll(dead); err != nil {
			return fmt.Errorf("delete old checkpoint: %w", err)
		}
	}
	return nil
}
