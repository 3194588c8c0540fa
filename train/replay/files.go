package replay

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/regular"
)

// Sums returns the SHA-256 of each file in hexadecimal.
func Sums(files map[string][]byte) map[string]string {
	sums := make(map[string]string, len(files))
	for name, data := range files {
		sums[name] = HashBytes(data)
	}
	return sums
}

// Adapter returns the SHA-256 of the adapter's weights, or of a whole model's; "" in manifests of older programs.
func (m Manifest) Adapter() string { return Weights(m.Files) }

// Weights returns, from the SHA-256 of the files of a folder, that of its weights: the adapter's file, the model's, or
// the hash of the hashes of a model's shards in their order; "" = it has none.
func Weights(files map[string]string) string {
	for _, name := range []string{adapter.WeightsFile, "model.safetensors"} {
		if sum := files[name]; sum != "" {
			return sum
		}
	}
	var shards []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasPrefix(name, "model-") && strings.HasSuffix(name, ".safetensors") {
			shards = append(shards, files[name])
		}
	}
	if shards == nil {
		return ""
	}
	return HashBytes([]byte(strings.Join(shards, " ")))
}

// trained returns the SHA-256 of the adapter's weights after the last step; "" in manifests of older programs.
func (m Manifest) trained() string { return cmp.Or(m.LastAdapter, m.Adapter()) }

// FilesVerdict reports whether the files of a run are still as it wrote them.
type FilesVerdict struct {
	// number of files compared with the manifest's hashes; 0 = the manifest has none
	Compared int      `json:"compared"`
	Changed  []Change `json:"different"` // SHA-256 of changed files; Now is "" if the file is gone
	// files of a checkpoint whose folder no longer exists, which is not a difference
	Gone []string `json:"checkpoint_removed"`
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

// hashFile returns the SHA-256 of a file's bytes in hexadecimal.
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
