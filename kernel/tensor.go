package kernel

import (
	"fmt"
	"unsafe"
)

// Align is the alignment of every buffer in bytes: a cache line, and a vector register of AVX-512.
const Align = 64

// Tensor is a Type with memory.
type Tensor struct {
	Type
	mem []byte
}

// NewTensor returns a tensor of a type over memory of at least its size.
func NewTensor(t Type, mem []byte) Tensor {
	if int64(len(mem)) < t.Bytes() {
		panic(fmt.Sprintf("kernel: %v needs %d bytes, the buffer has %d", t, t.Bytes(), len(mem)))
	}
	return Tensor{t, mem[:t.Bytes()]}
}

// Bytes returns the elements as they are stored.
func (t Tensor) Bytes() []byte { return t.mem }

// F32 returns the elements of an f32 tensor; it panics for any other type.
func (t Tensor) F32() []float32 { return view[float32](t, F32) }

// F64 returns the elements of an f64 tensor; it panics for any other type.
func (t Tensor) F64() []float64 { return view[float64](t, F64) }

// I32 returns the elements of an i32 tensor; it panics for any other type.
func (t Tensor) I32() []int32 { return view[int32](t, I32) }

// U16 returns the bits of the elements of a bf16 or f16 tensor; it panics for any other type.
func (t Tensor) U16() []uint16 {
	if t.DType == F16 {
		return view[uint16](t, F16)
	}
	return view[uint16](t, BF16)
}

// Float is the constraint of the number types that CPU bodies compute in.
type Float interface{ float32 | float64 }

// byFloat returns the body for the number type that a tensor holds: single for f32, double for f64.
func byFloat[Body any](t Tensor, single, double Body) Body {
	if t.DType == F64 {
		return double
	}
	return single
}

// Floats returns the elements of an f32 or f64 tensor.
func Floats[F Float](t Tensor) []F {
	var f F
	if unsafe.Sizeof(f) == 4 {
		return view[F](t, F32)
	}
	return view[F](t, F64)
}

func view[E any](t Tensor, d DType) []E {
	if t.DType != d {
		panic(fmt.Sprintf("kernel: a tensor of %v was read as %v", t.DType, d))
	}
	n := t.Elems()
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(t.mem))), n)
}

// Alloc returns zeroed memory of n bytes at the alignment of every buffer.
func Alloc(n int64) []byte {
	raw := make([]byte, n+Align)
	skip := -int(uintptr(unsafe.Pointer(&raw[0]))) & (Align - 1)
	return raw[skip : int64(skip)+n : int64(skip)+n]
}

// AlignUp rounds bytes up to the alignment of buffers.
func AlignUp(n int64) int64 { return (n + Align - 1) &^ (Align - 1) }
