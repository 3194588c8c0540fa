package kernel

import (
	"fmt"
	"strings"
)

// DType is the type in which an element is stored.
type DType uint8

const (
	F32 DType = iota + 1
	F64
	BF16
	F16
	I32
	U8
	// ComputeType stands for the type in which a device plan stores activations and operands of GEMMs, which the plan's
	// Precision decides. GPU bodies ask for it; no tensor has it.
	ComputeType
)

var dtypes = [...]struct {
	name string
	size int
}{F32: {"f32", 4}, F64: {"f64", 8}, BF16: {"bf16", 2}, F16: {"f16", 2}, I32: {"i32", 4}, U8: {"u8", 1},
	ComputeType: {"compute type", 0}}

// String returns the type's short name, such as "bf16".
func (d DType) String() string {
	if int(d) < len(dtypes) && dtypes[d].name != "" {
		return dtypes[d].name
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Size returns the bytes of one element.
func (d DType) Size() int { return dtypes[d].size }

// IsFloat reports whether elements are real numbers.
func (d DType) IsFloat() bool { return d >= F32 && d <= F16 }

// Type is a tensor's element type and shape, row-major. A scalar has no dimensions and one element.
type Type struct {
	DType DType
	Shape []int
}

// T returns a Type.
func T(d DType, shape ...int) Type { return Type{d, shape} }

// Elems returns the number of elements.
func (t Type) Elems() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes returns the memory of the elements in bytes, without padding.
func (t Type) Bytes() int64 { return int64(t.Elems()) * int64(t.DType.Size()) }

// Equal reports whether element type and shape are the same.
func (t Type) Equal(u Type) bool {
	if t.DType != u.DType || len(t.Shape) != len(u.Shape) {
		return false
	}
	for i, d := range t.Shape {
		if d != u.Shape[i] {
			return false
		}
	}
	return true
}

// String returns text such as "f32[128,576]".
func (t Type) String() string {
	dims := make([]string, len(t.Shape))
	for i, d := range t.Shape {
		dims[i] = fmt.Sprint(d)
	}
	return t.DType.String() + "[" + strings.Join(dims, ",") + "]"
}

// Want checks inputs against a pattern, one word per input: an element type ("f" for any of f32 and f64,
// "w" for any float, "i32", "u8", "f32"), then the shape in brackets, where equal letters must be equal
// sizes and a number is itself: Want(in, "f[M,C]", "w[C]"). It returns the sizes by letter.
func Want(in []Type, patterns ...string) (Dims, error) {
	if len(in) != len(patterns) {
		return Dims{}, fmt.Errorf("takes %d inputs (%s), got %d", len(patterns), strings.Join(patterns, " "), len(in))
	}
	var d Dims
	for i, p := range patterns {
		if err := d.match(in[i], p); err != nil {
			return d, fmt.Errorf("input %d is %v, want %s%s: %w", i, in[i], p, d.known(p), err)
		}
	}
	return d, nil
}

// Dims holds the sizes that the letters of a pattern stand for.
type Dims struct{ size [128]int }

// At returns the size that a letter stands for.
func (d *Dims) At(letter byte) int { return d.size[letter] - 1 }

func (d *Dims) known(p string) string {
	var s []string
	for _, c := range p[strings.IndexByte(p, '['):] {
		if c >= 'A' && c <= 'Z' && d.size[c] > 0 {
			s = append(s, fmt.Sprintf("%c=%d", c, d.size[c]-1))
		}
	}
	if s == nil {
		return ""
	}
	return " with " + strings.Join(s, " ")
}

func (d *Dims) match(t Type, p string) error {
	open := strings.IndexByte(p, '[')
	elem, dims := p[:open], strings.TrimSuffix(p[open+1:], "]")
	switch {
	case elem == "f" && (t.DType == F32 || t.DType == F64), elem == "w" && t.DType.IsFloat(), elem == t.DType.String():
	default:
		return fmt.Errorf("element type is %v", t.DType)
	}
	var want []string
	if dims != "" {
		want = strings.Split(dims, ",")
	}
	if len(want) != len(t.Shape) {
		return fmt.Errorf("it has %d dimensions", len(t.Shape))
	}
	for i, w := range want {
		c := w[0]
		switch {
		case c >= '0' && c <= '9':
			if fmt.Sprint(t.Shape[i]) != w {
				return fmt.Errorf("dimension %d is %d", i, t.Shape[i])
			}
		case d.size[c] == 0:
			d.size[c] = t.Shape[i] + 1
		case d.size[c] != t.Shape[i]+1:
			return fmt.Errorf("dimension %d is %d", i, t.Shape[i])
		}
	}
	return nil
}

// sameFloats checks that there are n inputs of one type that bodies compute in.
func sameFloats(in []Type, n int) (Type, error) {
	if len(in) != n {
		return Type{}, fmt.Errorf("takes %d inputs, got %d", n, len(in))
	}
	for i, t := range in {
		if t.DType != F32 && t.DType != F64 {
			return Type{}, fmt.Errorf("input %d is %v, want f32 or f64", i, t)
		}
		if !t.Equal(in[0]) {
			return Type{}, fmt.Errorf("input %d is %v, input 0 is %v: they must be the same", i, t, in[0])
		}
	}
	return in[0], nil
}
