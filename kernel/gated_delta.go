package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// GatedDelta is linear attention by the gated delta rule (Yang et al., "Gated Delta Networks: Improving Mamba2 with Delta Rule",
// 2024), as Qwen3-Next and Qwen3.5 have it: a matrix for each value head, which forgets, and is corrected by what it said wrongly.
//
//	qkv f[M,2*K*D+V*E], b f[M,V], a f[M,V], logA w[V], dt w[V], cu i32[S+1] -> o f[M,V*E]
//	q = normed(q) / sqrt(D), k = normed(k), normed(x) = x / sqrt(sum(x²) + 1e-6), each head by itself
//	g = exp(-exp(logA) * softplus(a + dt)),  beta = sigmoid(b)
//	S = g S,  e = v - Sᵀk,  S = S + k (beta e)ᵀ,  o = Sᵀq,  token by token; S [D,E] is zero before a sequence's first
//
// qkv holds the K heads of q, then those of k, then the V heads of v. Value head h reads key head h/(V/K). Sequence s has the rows
// cu[s]..cu[s+1]. A row that is in no sequence gives zeros.
type GatedDelta struct {
	KeyHeads, ValueHeads int
	KeySize              int // D
}

func (GatedDelta) Name() string { return "gated_delta" }

func (o GatedDelta) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "f[M,V]", "f[M,V]", "w[V]", "w[V]", "i32[S]")
	if err != nil {
		return nil, err
	}
	size, err := o.check(in, d, 0, 1, 2)
	if err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('M'), o.ValueHeads*size)}, nil
}

// check also gives the size of a value head.
func (o GatedDelta) check(in []Type, d Dims, floats ...int) (int, error) {
	if err := sameElements(in, floats...); err != nil {
		return 0, err
	}
	if o.KeyHeads <= 0 || o.ValueHeads <= 0 || o.ValueHeads%o.KeyHeads != 0 {
		return 0, fmt.Errorf("%d value heads over %d key heads, want a whole number for each", o.ValueHeads, o.KeyHeads)
	}
	if d.At('V') != o.ValueHeads {
		return 0, fmt.Errorf("input 1 is %v, want a column for each of %d value heads", in[1], o.ValueHeads)
	}
	values := d.At('W') - 2*o.KeyHeads*o.KeySize
	if o.KeySize < 1 || values < o.ValueHeads || values%o.ValueHeads != 0 {
		return 0, fmt.Errorf("input 0 is %v: it does not hold %d heads of q and of k of %d numbers each and %d heads of v", in[0], o.KeyHeads, o.KeySize, o.ValueHeads)
	}
	if d.At('S') < 1 {
		return 0, fmt.Errorf("the sequence bounds are %v, want one more than there are sequences", in[5])
	}
	return values / o.ValueHeads, nil
}

func (o GatedDelta) Grads() Backward {
	return Backward{
		Calls: []Call{{GatedDeltaGrad(o), []Ref{In(0), In(1), In(2), In(3), In(4), In(5), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), FromCall(0, 1), FromCall(0, 2), {}, {}, {}},
	}
}

func (o GatedDelta) Scratch(in []Type, workers int) int64 {
	return int64(workers) * o.forwardSlot(in[0])
}

func (o GatedDelta) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], gatedDelta[float32], gatedDelta[float64])(c, o, in, out)
}

// valueSize is E where qkv is of type t.
func (o GatedDelta) valueSize(t Type) int {
	return (t.Shape[1] - 2*o.KeyHeads*o.KeySize) / o.ValueHeads
}

// flops are those of a multiply-add for each number of the matrices, so many times for every token.
func (o GatedDelta) flops(qkv Type, times int) int64 {
	return 2 * int64(times) * int64(qkv.Shape[0]) * int64(o.ValueHeads) * int64(o.KeySize) * int64(o.valueSize(qkv))
}

func (o GatedDelta) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in, out), o.flops(in[0], 4)}
}

// GatedDeltaGrad are the gradients of GatedDelta for qkv, b and a.
//
//	the inputs, do f[M,V*E] -> dqkv f[M,W], db f[M,V], da f[M,V]
//
// With G the gradient of S behind a token, from the last token to the first:
//
//	G = G + q doᵀ,  dq = S do,  de = beta Gᵀk,  dbeta = eᵀ(Gᵀk),  dv = de
//	dk = beta G e - g S' de,  G = G - k deᵀ,  dg = <G, S'>,  G = g G
//
// S' is S before the token. States are recomputed, from those kept at every so many tokens.
type GatedDeltaGrad GatedDelta

func (GatedDeltaGrad) Name() string { return "gated_delta_grad" }

func (o GatedDeltaGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "f[M,V]", "f[M,V]", "w[V]", "w[V]", "i32[S]", "f[M,O]")
	if err != nil {
		return nil, err
	}
	size, err := GatedDelta(o).check(in, d, 0, 1, 2, 6)
	if err != nil {
		return nil, err
	}
	if d.At('O') != o.ValueHeads*size {
		return nil, fmt.Errorf("input 6 is %v, want %d columns, %d for each value head", in[6], o.ValueHeads*size, size)
	}
	return []Type{in[0], in[1], in[2]}, nil
}

func (o GatedDeltaGrad) Scratch(in []Type, workers int) int64 {
	return int64(workers) * GatedDelta(o).backwardSlot(in[0])
}

func (o GatedDeltaGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], gatedDeltaGrad[float32], gatedDeltaGrad[float64])(c, GatedDelta(o), in, out)
}

func (o GatedDeltaGrad) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in, out), GatedDelta(o).flops(in[0], 12)}
}

func (GatedDelta) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType, F32, F32, I32}, []DType{ComputeType}
}

func (o GatedDelta) CheckGPU(in, _ []Type, sm int) error {
	if E := o.valueSize(in[0]); !cuda.FitsGatedDelta(o.KeySize, E) {
		return fmt.Errorf("heads of %d for queries and keys and of %d for values: want multiples of 4, the former at most 128", o.KeySize, E)
	}
	if sm < 80 {
		return fmt.Errorf("compute capability %d.%d, want 8.0 or later", sm/10, sm%10)
	}
	return nil
}

func (o GatedDelta) scratch(qkv Type) cuda.GatedDeltaScratch {
	return cuda.NewGatedDeltaScratch(qkv.Shape[0], o.ValueHeads, o.KeySize, o.valueSize(qkv))
}

// ScratchGPU is what is prepared of a window of rows, and where there are several the states between them.
func (o GatedDelta) ScratchGPU(in, _ []Type, _ int) int64 { return o.scratch(in[0]).Bytes }

func (GatedDeltaGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType, F32, F32, I32, ComputeType}, []DType{ComputeType, ComputeType, ComputeType}
}

func (o GatedDeltaGrad) CheckGPU(in, out []Type, sm int) error {
	return GatedDelta(o).CheckGPU(in, out, sm)
}

func (o GatedDeltaGrad) scratch(qkv Type) cuda.GatedDeltaGradScratch {
	return cuda.NewGatedDeltaGradScratch(qkv.DType.String(), qkv.Shape[0], o.ValueHeads, o.KeySize, GatedDelta(o).valueSize(qkv))
}

// ScratchGPU is that of GatedDelta, the states before the chunks of a window of rows, and their gradients.
func (o GatedDeltaGrad) ScratchGPU(in, _ []Type, _ int) int64 { return o.scratch(in[0]).Bytes }

func (GatedDeltaCached) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType, F32, F32, I32, I32, F32}, []DType{ComputeType, F32}
}

func (o GatedDeltaCached) CheckGPU(in, out []Type, sm int) error { return o.Rule.CheckGPU(in, out, sm) }
