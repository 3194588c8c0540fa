//go:build gpu

package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

func (Add) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

func (Add) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	return g.Launch(cuda.Elementwise("elementwise_add", n), out[0].Ptr, in[0].Ptr, in[1].Ptr, n)
}

// AddLowBits is a residual sum that is stored with a tail, eight more bits than ComputeType has (cuda/tail.cuh), for plans of a
// GPU whose ComputeType is not fp32. Carried: a has a tail. b may be stored as fp32.
//
//	a, b f[M,C], tail u8[M,C] if Carried -> y f[M,C] = a + b, its tail u8[M,C]
type AddLowBits struct{ Carried bool }

// noTail is the tail of a number that ComputeType holds.
const noTail = 0x80

func (AddLowBits) Name() string { return "add" }

func (o AddLowBits) Shape(in []Type) ([]Type, error) {
	patterns := []string{"f[M,C]", "f[M,C]"}
	if o.Carried {
		patterns = append(patterns, "u8[M,C]")
	}
	if _, err := Want(in, patterns...); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	return []Type{in[0], T(U8, in[0].Shape...)}, nil
}

func (o AddLowBits) InPlace() []Alias {
	at := []Alias{{0, 0}, {0, 1}}
	if o.Carried {
		at = append(at, Alias{1, 2})
	}
	return at
}

// CPU stores the sum whole.
func (AddLowBits) CPU(c *CPU, in, out []Tensor) func() {
	add, tail := Add{}.CPU(c, in[:2], out[:1]), out[1].Bytes()
	return func() {
		add()
		for i := range tail {
			tail[i] = noTail
		}
	}
}

// term is the type in which the second term of a residual sum is read: fp32 if it is stored so.
func term(stored DType) DType {
	if stored == F32 {
		return F32
	}
	return ComputeType
}

func (o AddLowBits) Stored(in []DType) (want, out []DType) {
	want = []DType{ComputeType, term(in[1])}
	if o.Carried {
		want = append(want, U8)
	}
	return want, []DType{ComputeType, U8}
}

func (o AddLowBits) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n, tail := int64(out[0].Elems()), gpu.Ptr(0)
	if o.Carried {
		tail = in[2].Ptr
	}
	entry := "elementwise_add_tail"
	if in[1].DType == F32 {
		entry = "elementwise_add_wide_tail"
	}
	return g.Launch(cuda.Elementwise(entry, n), out[0].Ptr, out[1].Ptr, in[0].Ptr, tail, in[1].Ptr, n)
}

func (AddTo) Stored(in []DType) (want, out []DType) {
	return []DType{in[0], in[0]}, []DType{in[0]}
}

func (AddTo) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	switch out[0].DType {
	case F32:
		return g.Launch(cuda.Elementwise("elementwise_axpy_f32", n), out[0].Ptr, in[1].Ptr, float32(1), n)
	case g.Precision.Stored(ComputeType):
		return g.Launch(cuda.Elementwise("elementwise_axpy", n), out[0].Ptr, in[1].Ptr, float32(1), n)
	}
	return nil, fmt.Errorf("add to %v: f32 and %v are supported on the GPU with precision %v", out[0].Type, g.Precision.Stored(ComputeType), g.Precision)
}
