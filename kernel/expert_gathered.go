package kernel

import "fmt"

// ExpertWeightGradGathered is ExpertWeightGrad of rows that GatherTokens would make, read where they are: b's row r is the row
// source[r]/PerToken of x, or zero where there is none.
//
//	a f[S,N], x f[M,K], source i32[S], starts i32[E+1] -> dw f[E*N,K];  dw_e = Alpha a_eᵀ b_e; Alpha 0 stands for 1
type ExpertWeightGradGathered struct {
	Experts, PerToken int
	Alpha             float64
}

func (ExpertWeightGradGathered) Name() string { return "expert_weight_gathered" }

func (k ExpertWeightGradGathered) grad() ExpertWeightGrad {
	return ExpertWeightGrad{k.Experts, k.Alpha}
}

func (k ExpertWeightGradGathered) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,N]", "f[M,K]", "i32[S]", "i32[P]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if k.PerToken < 1 || d.At('S') != d.At('M')*k.PerToken {
		return nil, fmt.Errorf("inputs %v do not fit: %d tokens of %d slots have %d sorted rows, want one a slot", in, d.At('M'), k.PerToken, d.At('S'))
	}
	return k.grad().Shape([]Type{in[0], T(in[1].DType, d.At('S'), d.At('K')), in[3]})
}

func (k ExpertWeightGradGathered) Accumulate() (Kernel, bool) {
	return ExpertWeightGradGatheredTo(k), true
}

// Scratch is the gathered rows.
func (ExpertWeightGradGathered) Scratch(in []Type, _ int) int64 {
	if len(in) < 3 || len(in[1].Shape) != 2 || len(in[2].Shape) != 1 {
		return 0
	}
	return T(in[1].DType, in[2].Shape[0], in[1].Shape[1]).Bytes()
}

func (k ExpertWeightGradGathered) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (k ExpertWeightGradGathered) bind(c *CPU, in, out []Tensor, beta float64) func() {
	rows := NewTensor(T(in[1].DType, in[2].Shape[0], in[1].Shape[1]), c.Scratch)
	places := Tensor{T(I32, in[1].Shape[0], k.PerToken), nil} // which GatherTokens asks only for its shape
	gather := GatherTokens{}.CPU(c, []Tensor{in[1], places, in[2]}, []Tensor{rows})
	grad := k.grad().bind(c, []Tensor{in[0], rows, in[3]}, out, beta)
	return func() {
		gather()
		grad()
	}
}

// ExpertWeightGradGatheredTo adds ExpertWeightGradGathered's result for its first four inputs to the fifth, in the fifth one's memory.
type ExpertWeightGradGatheredTo ExpertWeightGradGathered

func (ExpertWeightGradGatheredTo) Name() string { return "expert_weight_gathered" }

func (k ExpertWeightGradGatheredTo) Shape(in []Type) ([]Type, error) {
	return onto(ExpertWeightGradGathered(k), in, 4)
}

func (ExpertWeightGradGatheredTo) Overwrites() []Alias { return []Alias{{0, 4}} }

func (k ExpertWeightGradGatheredTo) Scratch(in []Type, workers int) int64 {
	return ExpertWeightGradGathered(k).Scratch(in, workers)
}

func (k ExpertWeightGradGatheredTo) CPU(c *CPU, in, out []Tensor) func() {
	return ExpertWeightGradGathered(k).bind(c, in, out, 1)
}

func (ExpertWeightGradGathered) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], in[0].Shape[1], in[1].Shape[1])
}

func (ExpertWeightGradGatheredTo) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], in[0].Shape[1], in[1].Shape[1])
}

func (k ExpertWeightGradGathered) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32, I32}, []DType{F32}
}

// ScratchGPU: rows are read where they are.
func (ExpertWeightGradGathered) ScratchGPU(_, _ []Type, _ int) int64 { return 0 }

func (k ExpertWeightGradGatheredTo) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32, I32, F32}, []DType{F32}
}

func (ExpertWeightGradGatheredTo) ScratchGPU(_, _ []Type, _ int) int64 { return 0 }
