package train

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/train/checkpoint"
)

func sumsOf(files map[string][]byte) map[string]string {
	sums := make(map[string]string, len(files))
	for name, data := range files {
		sums[name] = hashBytes(data)
	}
	return sums
}

// withCheckpoint adds to the hashes of the adapter's folder those of the newest checkpoint that equal ones of another
// run: its other files are copies, or hold times.
func (r *running) withCheckpoint(sums map[string]string) (map[string]string, error) {
	if r.result.Checkpoint == "" {
		return sums, nil
	}
	saved, err := checkpoint.Sums(r.result.Checkpoint)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{adapter.WeightsFile, optimizerFile} {
		if sum := saved[name]; sum != "" {
			sums[path.Join(filepath.Base(r.result.Checkpoint), name)] = sum
		}
	}
	return sums, nil
}

// adapterEquals compares the adapter in memory with the one that the manifest is of; nil = it says nothing of it.
func (r *running) adapterEquals(was Manifest) (*bool, error) {
	if was.Adapter() == "" {
		return nil, nil
	}
	files, err := r.saver.adapterFiles()
	if err != nil {
		return nil, err
	}
	equal := hashBytes(files[adapter.WeightsFile]) == was.Adapter()
	return &equal, nil
}

// Adapter is the SHA-256 of the adapter's weights; "" in manifests of older programs.
func (m Manifest) Adapter() string { return m.Files[adapter.WeightsFile] }

// FilesVerdict says whether the files that a run left are still what it wrote.
type FilesVerdict struct {
	Compared int      `json:"compared"`           // with the manifest's hashes; 0 = the manifest has none
	Changed  []Change `json:"different"`          // SHA-256; Now is "" where the file is gone
	Gone     []string `json:"checkpoint_removed"` // of a checkpoint whose folder is not there any more, which is no difference
}

// CheckFiles compares the files of a run's folder with the hashes in its manifest.
func CheckFiles(dir string, was Manifest) (FilesVerdict, error) {
	v := FilesVerdict{Changed: []Change{}, Gone: []string{}}
	for _, name := range slices.Sorted(maps.Keys(was.Files)) {
		if !filepath.IsLocal(name) || strings.Contains(name, `\`) {
			return v, fmt.Errorf("%s: files_sha256: %q is no path in the run's folder", ManifestFile, name)
		}
		file := filepath.Join(dir, filepath.FromSlash(name))
		if folder := filepath.Dir(file); folder != filepath.Clean(dir) {
			if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
				v.Gone = append(v.Gone, name)
				continue
			}
		}
		now, err := hashFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return v, fmt.Errorf("compare %s with %s: %w", name, ManifestFile, err)
		}
		v.Compared++
		if now != was.Files[name] {
			v.Changed = append(v.Changed, Change{name, was.Files[name], now})
		}
	}
	return v, nil
}

// hashFile is the SHA-256 of a file's bytes.
func hashFile(path string) (string, error) {
	f, err := regular.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // read only
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
