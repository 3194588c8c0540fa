package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// WriteDir stores a model in dir: model.safetensors if all tensors fit into maxShard bytes, else shards of at most that
// size (a larger tensor gets a shard of its own) and then the index. The layout depends only on names and sizes: equal
// input gives equal files. For data see WriteEach; nil = the tensors' own Data. A folder that already contains weights
// is an error.
func WriteDir(dir string, tensors []Tensor, meta map[string]string, maxShard int64, data Data) error {
	for _, name := range []string{SingleFile, IndexFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("write model to %s: it holds %s already (%w)", dir, name, errors.Join(err, fs.ErrExist))
		}
	}
	if data == nil {
		data = ownData
	}
	shards, index, err := Shards(tensors, maxShard)
	if err != nil {
		return fmt.Errorf("write model to %s: %w", dir, err)
	}
	for _, shard := range shards {
		if err := WriteEach(filepath.Join(dir, shard.Name), shard.Tensors, meta, data); err != nil {
			return err
		}
	}
	if index == nil {
		return nil
	}
	path := filepath.Join(dir, IndexFile)
	if err := atomicfile.Write(path, index); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Shard is a file with some of a model's tensors.
type Shard struct {
	Name    string
	Tensors []Tensor // sorted by name
	Bytes   int64    // of the tensors' data
}

// Shards returns the files in which WriteDir writes tensors, and the contents of the index; nil = a single file needs
// none.
func Shards(tensors []Tensor, maxShard int64) ([]Shard, []byte, error) {
	parts, total, err := split(tensors, maxShard)
	if err != nil {
		return nil, nil, err
	}
	index := struct {
		Metadata map[string]int64  `json:"metadata"`
		Map      map[string]string `json:"weight_map"`
	}{map[string]int64{"total_size": total}, map[string]string{}}
	shards := make([]Shard, max(1, len(parts)))
	shards[0].Name = SingleFile
	for i, part := range parts {
		if len(parts) > 1 {
			shards[i].Name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(parts))
		}
		shards[i].Tensors = part
		for _, t := range part {
			size, _ := byteSize(t.DType, t.Shape)
			shards[i].Bytes += int64(size)
			index.Map[t.Name] = shards[i].Name
		}
	}
	if len(parts) <= 1 {
		return shards, nil, nil
	}
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err = enc.Encode(index) // encoding/json sorts the names
	return shards, raw.Bytes(), err
}

// split divides the tensors, sorted by name, into runs of at most limit bytes.
func split(tensors []Tensor, limit int64) (shards [][]Tensor, total int64, err error) {
	sorted := slices.Clone(tensors)
	slices.SortFunc(sorted, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	var used int64
	for i, t := range sorted {
		size, ok := byteSize(t.DType, t.Shape)
		switch {
		case !ok || total > math.MaxInt64-int64(size):
			return nil, 0, fmt.Errorf("tensor %q: the size of shape %v overflows or is negative", t.Name, t.Shape)
		case i > 0 && t.Name == sorted[i-1].Name:
			return nil, 0, fmt.Errorf("duplicate tensor %q", t.Name)
		}
		if i == 0 || used+int64(size) > limit {
			shards, used = append(shards, nil), 0
		}
		last := len(shards) - 1
		shards[last] = append(shards[last], t)
		used += int64(size)
		total += int64(size)
	}
	return shards, total, nil
}
