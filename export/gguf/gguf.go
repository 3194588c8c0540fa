// Package gguf reads and writes GGUF version 3, the file of llama.cpp and what is built on it: key-values, tensors by
// name, and their blocks of quantised numbers. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Mark is what a GGUF file of version 3 begins with: the magic number and the version.
const Mark = "GGUF\x03\x00\x00\x00"

const (
	magic     = "GGUF"
	version   = 3
	alignment = 32 // bytes, of where tensors begin
	maxName   = 63 // bytes of a tensor's name, ggml's limit
	maxDims   = 4
)

// KV is a key and its value: bool, uint32, int32, uint64, float32, string, or a list of bool, int32, uint32, float32,
// uint8 or string.
type KV struct {
	Key   string
	Value any
}

// Tensor is a tensor's place in a file. Shape is as ggml has it: the row length first.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int
}

// Len is the number of elements.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes is how many bytes the tensor takes.
func (t Tensor) Bytes() int64 {
	return int64(t.Len()) / int64(t.Type.Block()) * int64(t.Type.BlockBytes())
}

// Header is what a file says before its tensors' bytes.
type Header struct {
	KVs     []KV
	Tensors []Tensor
}

// Value is the value of a key; nil = there is none.
func (h Header) Value(key string) any {
	for _, kv := range h.KVs {
		if kv.Key == key {
			return kv.Value
		}
	}
	return nil
}

// The types of values, as files number them.
const (
	kindUint8   = 0
	kindInt32   = 5
	kindUint32  = 4
	kindFloat32 = 6
	kindBool    = 7
	kindString  = 8
	kindArray   = 9
	kindUint64  = 10
)

// encode is the header's bytes, padded to where the first tensor begins, and the tensors' offsets behind it.
func (h Header) encode() ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	b := le.AppendUint32([]byte(magic), version)
	b = le.AppendUint64(b, uint64(len(h.Tensors)))
	b = le.AppendUint64(b, uint64(len(h.KVs)))
	for _, kv := range h.KVs {
		var err error
		if b, err = appendValue(appendString(b, kv.Key), kv.Value); err != nil {
			return nil, fmt.Errorf("key %s: %w", kv.Key, err)
		}
	}
	offset := uint64(0)
	for _, t := range h.Tensors {
		b = le.AppendUint32(appendString(b, t.Name), uint32(len(t.Shape)))
		for _, d := range t.Shape {
			b = le.AppendUint64(b, uint64(d))
		}
		b = le.AppendUint64(le.AppendUint32(b, uint32(t.Type)), offset)
		offset += uint64(padded(t.Bytes()))
	}
	return append(b, make([]byte, padded(int64(len(b)))-int64(len(b)))...), nil
}

func padded(n int64) int64 { return (n + alignment - 1) / alignment * alignment }

// check refuses what ggml does not read.
func (h Header) check() error {
	names := map[string]bool{}
	for _, t := range h.Tensors {
		switch {
		case t.Name == "" || len(t.Name) > maxName:
			return fmt.Errorf("tensor %q: a name has 1 to %d bytes", t.Name, maxName)
		case names[t.Name]:
			return fmt.Errorf("tensor %s stands there twice", t.Name)
		case len(t.Shape) < 1 || len(t.Shape) > maxDims:
			return fmt.Errorf("tensor %s has %d dimensions, which must be 1 to %d", t.Name, len(t.Shape), maxDims)
		case t.Type.Block() == 0:
			return fmt.Errorf("tensor %s: %v is not written", t.Name, t.Type)
		}
		for _, d := range t.Shape {
			if d < 1 {
				return fmt.Errorf("tensor %s has the shape %v: every dimension must be 1 or more", t.Name, t.Shape)
			}
		}
		if t.Shape[0]%t.Type.Block() != 0 {
			return fmt.Errorf("tensor %s: rows of %d numbers are no whole number of blocks of %d, which %v has", t.Name,
				t.Shape[0], t.Type.Block(), t.Type)
		}
		names[t.Name] = true
	}
	keys := map[string]bool{}
	for _, kv := range h.KVs {
		if kv.Key == "" || keys[kv.Key] {
			return fmt.Errorf("key %q is empty or stands there twice", kv.Key)
		}
		keys[kv.Key] = true
	}
	return nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func appendValue(b []byte, value any) ([]byte, error) {
	le := binary.LittleEndian
	switch v := value.(type) {
	case bool:
		return append(le.AppendUint32(b, kindBool), boolByte(v)), nil
	case uint32:
		return le.AppendUint32(le.AppendUint32(b, kindUint32), v), nil
	case int32:
		return le.AppendUint32(le.AppendUint32(b, kindInt32), uint32(v)), nil
	case uint64:
		return le.AppendUint64(le.AppendUint32(b, kindUint64), v), nil
	case float32:
		return le.AppendUint32(le.AppendUint32(b, kindFloat32), math.Float32bits(v)), nil
	case string:
		return appendString(le.AppendUint32(b, kindString), v), nil
	case []bool:
		return appendList(b, kindBool, v, func(b []byte, x bool) []byte { return append(b, boolByte(x)) }), nil
	case []uint8:
		return append(le.AppendUint64(le.AppendUint32(le.AppendUint32(b, kindArray), kindUint8), uint64(len(v))), v...),
			nil
	case []int32:
		return appendList(b, kindInt32, v, func(b []byte, x int32) []byte { return le.AppendUint32(b, uint32(x)) }), nil
	case []uint32:
		return appendList(b, kindUint32, v, le.AppendUint32), nil
	case []float32:
		return appendList(b, kindFloat32, v, func(b []byte, x float32) []byte {
			return le.AppendUint32(b, math.Float32bits(x))
		}), nil
	case []string:
		return appendList(b, kindString, v, appendString), nil
	case nil:
		return nil, errors.New("there is no value")
	}
	return nil, fmt.Errorf("a value of type %T is not written", value)
}

func appendList[T any](b []byte, kind uint32, list []T, element func([]byte, T) []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(le.AppendUint32(le.AppendUint32(b, kindArray), kind), uint64(len(list)))
	for _, x := range list {
		b = element(b, x)
	}
	return b
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}
