package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The file names of a model folder.
const (
	SingleFile = "model.safetensors"
	IndexFile  = "model.safetensors.index.json"
)

// Set is the tensors of a whole model folder, from one file or from shards.
type Set struct {
	files   []*File
	tensors map[string]Tensor
}

// OpenDir maps the model in dir: model.safetensors, or when that is absent the
// shards of model.safetensors.index.json. The index and the shards must name
// the same tensors in the same files.
func OpenDir(dir string) (*Set, error) {
	return openSet(dir,
		func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) },
		func(name string) (*File, error) { return Open(filepath.Join(dir, name)) },
		func(name string) error { _, err := os.Stat(filepath.Join(dir, name)); return err })
}

// OpenFS is OpenDir for a folder of fsys (a model embedded in the binary),
// read into memory instead of mapped.
func OpenFS(fsys fs.FS, dir string) (*Set, error) {
	read := func(name string) ([]byte, error) { return fs.ReadFile(fsys, path.Join(dir, name)) }
	return openSet(dir, read,
		func(name string) (*File, error) {
			data, err := read(name)
			if err != nil {
				return nil, fmt.Errorf("open weights: %w", err)
			}
			f, err := parse(data)
			if err != nil {
				return nil, fmt.Errorf("read safetensors file %s: %w", path.Join(dir, name), err)
			}
			return f, nil
		},
		func(name string) error { _, err := fs.Stat(fsys, path.Join(dir, name)); return err })
}

func openSet(dir string, read func(string) ([]byte, error), open func(string) (*File, error), stat func(string) error) (*Set, error) {
	err := stat(SingleFile)
	if err == nil {
		f, err := open(SingleFile)
		if err != nil {
			return nil, err
		}
		return &Set{files: []*File{f}, tensors: f.tensors}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	raw, err := read(IndexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open weights: %s has neither %s nor %s: %w", dir, SingleFile, IndexFile, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	index, err := parseIndex(raw)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, IndexFile), err)
	}
	return openShards(dir, index, open, stat)
}

func openShards(dir string, index map[string]string, open func(string) (*File, error), stat func(string) error) (*Set, error) {
	shards := slices.Compact(slices.Sorted(maps.Values(index)))
	var absent []string
	for _, shard := range shards {
		if err := stat(shard); errors.Is(err, fs.ErrNotExist) {
			absent = append(absent, shard)
		} else if err != nil {
			return nil, fmt.Errorf("open weights: %w", err)
		}
	}
	if absent != nil {
		return nil, fmt.Errorf("open weights: %s lacks %d of the %d shards that %s names: %s: %w",
			dir, len(absent), len(shards), IndexFile, strings.Join(absent, ", "), fs.ErrNotExist)
	}
	s := &Set{tensors: make(map[string]Tensor, len(index))}
	var wrong []string
	for _, shard := range shards {
		f, err := open(shard)
		if err != nil {
			s.Close() //nolint:errcheck // the open error is what matters
			return nil, err
		}
		s.files = append(s.files, f)
		for _, name := range f.Names() {
			switch want, ok := index[name]; {
			case !ok:
				wrong = append(wrong, fmt.Sprintf("%s holds %q, which the index does not name", shard, name))
			case want != shard:
				wrong = append(wrong, fmt.Sprintf("%s holds %q, which the index puts into %s", shard, name, want))
			default:
				s.tensors[name] = f.tensors[name]
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(index)) {
		if _, ok := s.tensors[name]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s lacks %q", index[name], name))
		}
	}
	if wrong != nil {
		s.Close() //nolint:errcheck // the disagreement is what matters
		return nil, fmt.Errorf("open weights: %s and its shards disagree:\n  %s", filepath.Join(dir, IndexFile), strings.Join(wrong, "\n  "))
	}
	return s, nil
}

// parseIndex reads weight_map: tensor name to shard file name.
func parseIndex(raw []byte) (map[string]string, error) {
	if err := uniqueKeys(raw); err != nil {
		return nil, err
	}
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, err
	}
	if len(index.Map) == 0 {
		return nil, errors.New("weight_map is missing or empty")
	}
	for _, name := range slices.Sorted(maps.Keys(index.Map)) {
		shard := index.Map[name]
		// A plain file name only: the index must not reach outside its folder.
		if !filepath.IsLocal(shard) || strings.ContainsAny(shard, "/\\:\x00") || !strings.HasSuffix(shard, ".safetensors") {
			return nil, fmt.Errorf("weight_map: tensor %q is in %q, which is not the plain name of a .safetensors file", name, shard)
		}
	}
	return index.Map, nil
}

// uniqueKeys refuses a repeated tensor name, which a map would swallow.
func uniqueKeys(raw []byte) error {
	p := headerParser{dec: json.NewDecoder(bytes.NewReader(raw))}
	return p.object(func(key string) error {
		if key != "weight_map" {
			var skip json.RawMessage
			return p.dec.Decode(&skip)
		}
		if err := p.object(func(string) error { _, err := p.str(); return err }); err != nil {
			return fmt.Errorf("weight_map: %w", err)
		}
		return nil
	})
}

// Names lists the tensors of all shards, sorted.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.tensors)) }

// Tensor returns the tensor called name.
func (s *Set) Tensor(name string) (Tensor, bool) {
	t, ok := s.tensors[name]
	return t, ok
}

// Close unmaps all files. Every Data taken from the set is invalid afterwards.
func (s *Set) Close() error {
	s.tensors = nil
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
