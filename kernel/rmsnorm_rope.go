package kernel

import "fmt"

// RMSNormRoPE norms heads and rotates them in one kernel, for plans of a GPU.
//
//	x f[M,H*D], w w[D], table f[P,T], positions i32[M] -> y f[M,H*D] = rope(norm(x)), rstd f[M*H]
type RMSNormRoPE struct {
	Norm   RMSNorm
	Rotate RoPE
}

func (RMSNormRoPE) Name() string { return "rmsnorm_rope" }

func (o RMSNormRoPE) Shape(in []Type) ([]Type, error) {
	if len(in) != 4 {
		return nil, fmt.Errorf("takes 4 inputs, got %d", len(in))
	}
	out, err := o.Norm.Shape(in[:2])
	if err != nil {
		return nil, err
	}
	y, err := o.Rotate.Shape([]Type{out[0], in[2], in[3]})
	return append(y, out[1:]...), err
}

func (o RMSNormRoPE) CPU(c *CPU, in, out []Tensor) func() {
	norm, rotate := o.Norm.CPU(c, in[:2], out), o.Rotate.CPU(c, []Tensor{out[0], in[2], in[3]}, out[:1])
	return func() { norm(); rotate() }
}

// RMSNormRoPEGrad is the gradient of RMSNormRoPE for its first input. Rotate is the rotation back.
//
//	x f[M,H*D], w w[D], rstd f[M*H], dy f[M,H*D], table f[P,T], positions i32[M] -> dx f[M,H*D]
type RMSNormRoPEGrad struct {
	Norm   RMSNormGrad
	Rotate RoPE
}

func (RMSNormRoPEGrad) Name() string { return "rmsnorm_rope_grad" }

func (o RMSNormRoPEGrad) Shape(in []Type) ([]Type, error) {
	if len(in) != 6 {
		return nil, fmt.Errorf("takes 6 inputs, got %d", len(in))
	}
	if _, err := o.Rotate.Shape(in[3:]); err != nil {
		return nil, err
	}
	return o.Norm.Shape(in[:4])
}

func (RMSNormRoPEGrad) InPlace() []Alias { return []Alias{{0, 3}} }

func (o RMSNormRoPEGrad) CPU(c *CPU, in, out []Tensor) func() {
	rotate := o.Rotate.CPU(c, in[3:], out)
	grad := o.Norm.CPU(c, []Tensor{in[0], in[1], in[2], out[0]}, out)
	return func() { rotate(); grad() }
}

func (o RMSNormRoPE) Cost(in, out []Type, c Content) Cost {
	rotate := o.Rotate.Cost([]Type{in[0], in[2], in[3]}, in[:1], c)
	return Cost{rotate.Bytes + in[1].Bytes() + out[1].Bytes(), rotate.FLOPs + 4*int64(in[0].Elems())}
}

func (o RMSNormRoPEGrad) Cost(in, out []Type, c Content) Cost {
	rotate := o.Rotate.Cost([]Type{in[3], in[4], in[5]}, out, c)
	return Cost{rotate.Bytes + moved(in[:3]), rotate.FLOPs + 7*int64(in[0].Elems())}
}

func (RMSNormRoPE) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, F32, I32}, []DType{ComputeType, F32}
}

func (RMSNormRoPEGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, F32, ComputeType, F32, I32}, []DType{ComputeType}
}
