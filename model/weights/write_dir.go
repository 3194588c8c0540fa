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
	shards, total, err := split(tensors, maxShard)
	if err != nil {
		return fmt.Errorf("write model to %s: %w", dir, err)
	}
	if len(shards) <= 1 {
		return WriteEach(filepath.Join(dir, SingleFile), tensors, meta, data)
	}
	index := struct {
		Metadata map[string]int64  `json:"metadata"`
		Map      map[string]string `json:"weight_map"`
	}{map[string]int64{"total_size": total}, map[string]string{}}
	for i, shard := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		if err := WriteEach(filepath.Join(dir, name), shard, meta, data); err != nil {
			return err
		}
		for _, t := range shard {
			index.Map[t.Name] = name
		}
	}
	path := filepath.Join(dir, IndexFile)
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(index); err != nil { // encoding/json sorts the names
		return err
	}
	if err := atomicfile.Write(path, raw.Bytes()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
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
