package kernel

import (
	"fmt"
	"unsafe"

	"github.com/tierlora/tierlora/kernel/simd"
)

// converter returns what fills dst with the elements from i on of a tensor stored as any float type.
func converter[F Float](t Tensor) func(dst []F, i int) {
	switch t.DType {
	case F32:
		src := t.F32()
		return func(dst []F, i int) { convert(dst, src[i:]) }
	case F64:
		src := t.F64()
		return func(dst []F, i int) { convert(dst, src[i:]) }
	case BF16:
		src, toFloat := t.U16(), simd.Best[F]().FromBF16
		return func(dst []F, i int) { toFloat(dst, src[i:]) }
	}
	src, toFloat := t.U16(), simd.Best[F]().FromF16
	return func(dst []F, i int) { toFloat(dst, src[i:]) }
}

// frozenRow is a small frozen weight in a body's type, and the work that makes it so at the start of every
// run: nothing where it is stored in that type.
func frozenRow[F Float](t Tensor) (row []F, load func()) {
	var f F
	if (t.DType == F32 || t.DType == F64) && uintptr(t.DType.Size()) == unsafe.Sizeof(f) {
		return Floats[F](t), nil
	}
	row = make([]F, t.Elems())
	convertRow := converter[F](t)
	return row, func() { convertRow(row, 0) }
}

// after returns work that runs first, if there is such, and then work.
func after(first, work func()) func() {
	if first == nil {
		return work
	}
	return func() { first(); work() }
}

// carve views the start of memory as n elements.
func carve[E float32 | float64 | int32](mem []byte, n int) []E {
	var e E
	if n == 0 {
		return nil
	}
	_ = mem[n*int(unsafe.Sizeof(e))-1]
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}

func convert[F, S Float](dst []F, src []S) {
	src = src[:len(dst)]
	for j := range dst {
		dst[j] = F(src[j])
	}
}

// sameElements checks that inputs are of one element type; the pattern "f" allows each f32 or f64.
func sameElements(in []Type, which ...int) error {
	for _, i := range which[1:] {
		if in[i].DType != in[which[0]].DType {
			return fmt.Errorf("input %d is %v, input %d is %v: they must hold the same type of number", i, in[i],
				which[0], in[which[0]])
		}
	}
	return nil
}

// ToBF16 rounds to the nearest bf16, ties to even; a NaN stays one.
func ToBF16(x float32) uint16 { return simd.ToBF16(x) }

// FromBF16 returns the value of a bf16.
func FromBF16(b uint16) float32 { return simd.FromBF16(b) }

// ToF16 rounds to the nearest IEEE binary16, ties to even; above 65504 and its half step to infinity, and a NaN stays
// one.
func ToF16(x float32) uint16 { return simd.ToF16(x) }

// FromF16 returns the value of an IEEE binary16.
func FromF16(v uint16) float32 { return simd.FromF16(v) }
