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

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
)

// The file names of a model folder.
const (
	SingleFile = "model.safetensors"
	IndexFile  = "model.safetensors.index.json"
)

// Set holds the tensors of a whole model folder, from one file or from shards.
type Set struct {
	files   []*File
	tensors map[string]Tensor
	whole   map[string]Whole
}

// OpenDir maps the model in dir: model.safetensors, or if that is absent the shards of model.safetensors.index.json.
// The index and the shards must name the same tensors in the same files.
func OpenDir(dir string) (*Set, error) {
	return openSet(folder{
		name: dir,
		read: func(name string) ([]byte, error) { return regular.ReadFile(filepath.Join(dir, name)) },
		open: func(name string) (*File, error) { return Open(filepath.Join(dir, name)) },
		stat: func(name string) error { _, err := os.Stat(filepath.Join(dir, name)); return err },
		list: func() ([]fs.DirEntry, error) { return os.ReadDir(dir) },
	})
}

// OpenFS does what OpenDir does for a folder of fsys (a model embedded in the binary), which it reads into memory.
func OpenFS(fsys fs.FS, dir string) (*Set, error) {
	read := func(name string) ([]byte, error) { return regular.ReadFS(fsys, path.Join(dir, name)) }
	return openSet(folder{
		name: dir,
		read: read,
		open: func(name string) (*File, error) {
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
		stat: func(name string) error { _, err := fs.Stat(fsys, path.Join(dir, name)); return err },
		list: func() ([]fs.DirEntry, error) { return fs.ReadDir(fsys, dir) },
	})
}

// Declare makes a set of tensors without data: those of specs have type d, those of codes U8. A plan needs no more of
// weights that are not present.
func Declare(specs []Spec, d DType, codes ...Spec) *Set {
	s := &Set{tensors: make(map[string]Tensor, len(specs)+len(codes))}
	for _, spec := range specs {
		s.tensors[spec.Name] = Tensor{Name: spec.Name, DType: d, Shape: spec.Shape}
	}
	for _, spec := range codes {
		s.tensors[spec.Name] = Tensor{Name: spec.Name, DType: U8, Shape: spec.Shape}
	}
	return s
}

// HasNone reports whether a folder contains no weights in any format.
func HasNone(dir string) bool {
	for _, name := range []string{SingleFile, IndexFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return AdviceDir(dir) == ""
}

// folder is a model folder on disk or in an fs.FS; its functions take file names without folders.
type folder struct {
	name string
	read func(name string) ([]byte, error)
	open func(name string) (*File, error)
	stat func(name string) error
	list func() ([]fs.DirEntry, error)
}

func openSet(d folder) (*Set, error) {
	err := d.stat(SingleFile)
	if err == nil {
		f, err := d.open(SingleFile)
		if err != nil {
			return nil, err
		}
		return &Set{files: []*File{f}, tensors: f.tensors}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	raw, err := d.read(IndexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, d.noWeights()
	}
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	index, err := parseIndex(raw)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(d.name, IndexFile), err)
	}
	return openShards(d, index)
}

// noWeights describes what a folder without SafeTensors contains instead.
func (d folder) noWeights() error {
	entries, _ := d.list() // on an error the file names are unknown
	if advice := adviceEntries(entries, d.name); advice != "" {
		return noWeightsError("open weights: " + d.name + " has no " + SingleFile + "; " + advice)
	}
	return fmt.Errorf("open weights: %s has neither %s nor %s: %w", d.name, SingleFile, IndexFile, fs.ErrNotExist)
}

// noWeightsError is an fs.ErrNotExist with advice.
type noWeightsError string

func (e noWeightsError) Error() string { return string(e) }
func (noWeightsError) Unwrap() error   { return fs.ErrNotExist }

func openShards(d folder, index map[string]string) (*Set, error) {
	shards := slices.Compact(slices.Sorted(maps.Values(index)))
	var absent []string
	for _, shard := range shards {
		if err := d.stat(shard); errors.Is(err, fs.ErrNotExist) {
			absent = append(absent, shard)
		} else if err != nil {
			return nil, fmt.Errorf("open weights: %w", err)
		}
	}
	if absent != nil {
		return nil, fmt.Errorf("open weights: %s lacks %d of the %d shards that %s names: %s: %w",
			d.name, len(absent), len(shards), IndexFile, strings.Join(absent, ", "), fs.ErrNotExist)
	}
	s := &Set{tensors: make(map[string]Tensor, len(index))}
	var wrong []string
	for _, shard := range shards {
		f, err := d.open(shard)
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
		return nil, fmt.Errorf("open weights: %s and its shards disagree:\n  %s", filepath.Join(d.name, IndexFile),
			strings.Join(wrong, "\n  "))
	}
	return s, nil
}

// parseIndex reads weight_map, which maps tensor names to shard files.
func parseIndex(raw []byte) (map[string]string, error) {
	if err := uniqueKeys(raw); err != nil {
		return nil, err
	}
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := jsonerr.Unmarshal(raw, &index); err != nil {
		return nil, err
	}
	if len(index.Map) == 0 {
		return nil, errors.New("weight_map is missing or empty")
	}
	for _, name := range slices.Sorted(maps.Keys(index.Map)) {
		shard := index.Map[name]
		// A plain file name only: the index must not reach outside its folder.
		if !filepath.IsLocal(shard) || strings.ContainsAny(shard, "/\\:\x00") ||
			!strings.HasSuffix(shard, ".safetensors") {
			return nil, fmt.Errorf("weight_map: tensor %q is in %q, which is not the plain name of a .safetensors file",
				name, shard)
		}
	}
	return index.Map, nil
}

// uniqueKeys returns an error for a repeated tensor name, which a map would hide.
func uniqueKeys(raw []byte) error {
	if wrong := jsonerr.Check(raw); wrong != nil {
		return wrong
	}
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

// Names returns the names of the tensors of all shards, sorted.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.tensors)) }

// Tensor returns the tensor called name.
func (s *Set) Tensor(name string) (Tensor, bool) {
	t, ok := s.tensors[name]
	return t, ok
}

// Rename changes the names by which Tensor finds tensors; Tensor.Name remains the file's. Two tensors with the same new
// name are an error.
func (s *Set) Rename(to func(name string) string) error {
	renamed := make(map[string]Tensor, len(s.tensors))
	for _, name := range s.Names() {
		if was, ok := renamed[to(name)]; ok {
			return fmt.Errorf("open weights: %q and %q are both %q", was.Name, name, to(name))
		}
		renamed[to(name)] = s.tensors[name]
	}
	s.tensors = renamed
	return nil
}

// Replace makes Tensor find t under a name in place of the file's tensor. Its data need not be the file's.
func (s *Set) Replace(name string, t Tensor) { s.tensors[name] = t }

// Split replaces tensors by parts of equal shape that lie one after the other in them. parts returns the parts' names
// and shape, or no names for a tensor that stays whole. No data is copied. A part's name must not be in use.
func (s *Set) Split(parts func(t Tensor) (names []string, shape []int, err error)) error {
	split, whole := make(map[string]Tensor, len(s.tensors)), map[string]Whole{}
	for _, name := range s.Names() {
		t := s.tensors[name]
		names, shape, err := parts(t)
		switch {
		case err != nil:
			return fmt.Errorf("open weights: %w", err)
		case names == nil:
			split[name] = t
			continue
		}
		one := Tensor{DType: t.DType, Shape: shape}
		size := one.Len() * t.DType.Size()
		if one.Len()*len(names) != t.Len() {
			return fmt.Errorf("open weights: %s has the shape %v, %d tensors of %v are not its size", name, t.Shape,
				len(names), shape)
		}
		for i, part := range names {
			if _, both := s.tensors[part]; both {
				return fmt.Errorf(
					"open weights: %s and %q are both there: experts are one tensor a layer or a tensor each", name,
					part)
			}
			one.Name = part
			if t.Data != nil {
				one.Data = t.Data[i*size : (i+1)*size : (i+1)*size]
			}
			split[part] = one
		}
		if len(names) > 1 {
			whole[t.Name] = Whole{t.Shape, names}
		}
	}
	s.tensors, s.whole = split, whole
	return nil
}

// Whole is a tensor of a file that Split has divided.
type Whole struct {
	Shape []int
	Parts []string // names of the parts, in order
}

// Wholes returns the divided tensors by their names in the files.
func (s *Set) Wholes() map[string]Whole { return s.whole }

// Unchanged returns the first error of File.Unchanged over the set's files.
func (s *Set) Unchanged() error {
	for _, f := range s.files {
		if err := f.Unchanged(); err != nil {
			return err
		}
	}
	return nil
}

// Close unmaps all files. Tensor data from the set is invalid afterwards.
func (s *Set) Close() error {
	s.tensors = nil
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
