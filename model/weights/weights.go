// Package weights reads and writes SafeTensors: names, shapes and data of a model's tensors, from one file or from the
// shards of an index.
//
// The format (https://github.com/huggingface/safetensors) is 8 bytes of little endian header length, a JSON header,
// then the tensors' data without gaps. Files are mapped read-only; a tensor's Data is a view that is valid until Close.
package weights

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Tensor is a named array, row-major and little endian.
type Tensor struct {
	Name  string
	DType DType
	Shape []int  // empty for a scalar; must not be changed
	Data  []byte // Len()*DType.Size() bytes; read-only, valid until the file is closed
}

// Len returns the number of elements, the product of the shape.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Source provides tensors by name: a File or a Set.
type Source interface {
	Names() []string // sorted
	Tensor(name string) (Tensor, bool)
}

// File is an open .safetensors file. Its methods may be called concurrently, except Close, which must wait until no
// view is in use.
type File struct {
	path    string
	tensors map[string]Tensor
	meta    map[string]string
	mapping // zero for a file that was decoded from memory
}

// mapping is the data of a file in memory.
type mapping struct {
	data      []byte
	unmap     func() error // nil for data that is not mapped
	unchanged func() error // nil if data is a copy of the file
}

// Open maps the .safetensors file at path and checks its whole header.
func Open(path string) (*File, error) {
	m, err := mapFile(path)
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	f, err := parse(m.data)
	if err != nil {
		if advice := adviceBytes(m.data, path); advice != "" {
			err = errors.New("it is " + advice)
		}
		m.unmap() //nolint:errcheck // the parse error is what matters
		return nil, fmt.Errorf("read safetensors file %s: %w", path, err)
	}
	f.path, f.mapping = path, m
	return f, nil
}

// Decode reads a safetensors file that is already in memory. The tensors are
// views into data.
func Decode(data []byte) (*File, error) {
	f, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("read safetensors data: %w", err)
	}
	return f, nil
}

// Names returns the names of the tensors, sorted.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.tensors)) }

// Tensor returns the tensor called name.
func (f *File) Tensor(name string) (Tensor, bool) {
	t, ok := f.tensors[name]
	return t, ok
}

// Metadata returns a copy of the header's __metadata__, or nil if there is none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.meta) }

// Unchanged returns a *rescue.ChangedError if another process has written to the file since it was opened, so that data
// may mix two versions. Call it after reading everything.
func (f *File) Unchanged() error {
	if f.unchanged == nil {
		return nil
	}
	return f.unchanged()
}

// Close unmaps the file. Tensor data from it is invalid afterwards.
func (f *File) Close() error {
	f.tensors = nil
	if f.unmap == nil {
		return nil
	}
	unmap := f.unmap
	f.mapping = mapping{}
	if err := unmap(); err != nil {
		return fmt.Errorf("close weights %s: %w", f.path, err)
	}
	return nil
}
