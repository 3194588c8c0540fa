package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// FewRows is two or three GEMMs of one kind that read the same few rows, in one call, for plans of a GPU: MatMul or
// MatMulNF4 with RowsApart. Each result has the bits that it has alone.
//
//	x f[M,K], what each GEMM reads after x -> f[M,N_i]
//
// Gated: SwiGLU of the two results, in their place -> f[M,N].
type FewRows struct {
	Parts [3]Kernel // nil = there are two
	Gated bool
}

// NewFewRows returns GEMMs as one call, where a GPU has a kernel for it; in are the inputs of the first. Its results
// are of a precision with fewer bits than fp32.
func NewFewRows(parts []Kernel, gated bool, in []Type) (o FewRows, ok bool) {
	if len(parts) < 2 || len(parts) > 3 || gated && len(parts) != 2 || len(in) < 2 || len(in[0].Shape) != 2 {
		return o, false
	}
	o.Gated = gated
	copy(o.Parts[:], parts)
	for _, p := range parts {
		switch k := p.(type) {
		case MatMul:
			if k != (MatMul{TransB: true, RowsApart: true}) || p != parts[0] ||
				!cuda.FitsSkinny(in[0].Shape[0], in[0].Shape[1], false) {
				return o, false
			}
		case MatMulNF4:
			k.N = 0
			first, _ := parts[0].(MatMulNF4)
			first.N = 0
			if !k.RowsApart || k.Transposed || k.FP32Out || k != first || !cuda.FitsSkinny(in[0].Shape[0], k.K, true) {
				return o, false
			}
		default:
			return o, false
		}
	}
	return o, true
}

func (FewRows) Name() string { return "few_rows" }

// members returns the GEMMs and the inputs of each, from all inputs.
func members[T any](o FewRows, in []T) (parts []Kernel, inputs [][]T, ok bool) {
	rest := in
	if len(in) == 0 {
		return nil, nil, false
	}
	rest = in[1:]
	for _, p := range o.Parts {
		n := 1
		switch k := p.(type) {
		case nil:
			continue
		case MatMulNF4:
			n = k.inputs() - 1
		}
		if len(rest) < n {
			return nil, nil, false
		}
		parts, inputs, rest = append(parts, p), append(inputs, append([]T{in[0]}, rest[:n]...)), rest[n:]
	}
	return parts, inputs, len(rest) == 0
}

func (o FewRows) Shape(in []Type) ([]Type, error) {
	parts, inputs, ok := members(o, in)
	if !ok {
		return nil, fmt.Errorf("takes the rows and what each of %v reads, got %d inputs", o.Parts, len(in))
	}
	var all []Type
	for i, p := range parts {
		out, err := p.Shape(inputs[i])
		if err != nil {
			return nil, fmt.Errorf("GEMM %d: %w", i, err)
		}
		all = append(all, out...)
	}
	if o.Gated {
		return SwiGLU{}.Shape(all)
	}
	return all, nil
}

// Scratch holds what the GEMMs need and, Gated, their results.
func (o FewRows) Scratch(in []Type, workers int) int64 {
	parts, inputs, _ := members(o, in)
	var need, results int64
	for i, p := range parts {
		need = max(need, p.(Scratch).Scratch(inputs[i], workers))
		if out, err := p.Shape(inputs[i]); err == nil && o.Gated {
			results += AlignUp(out[0].Bytes())
		}
	}
	return AlignUp(need) + results
}

func (o FewRows) CPU(c *CPU, in, out []Tensor) func() {
	parts, inputs, _ := members(o, in)
	types := make([]Type, len(in))
	for i, t := range in {
		types[i] = t.Type
	}
	results := out
	if o.Gated {
		all, at := c.Scratch, FewRows{Parts: o.Parts}.Scratch(types, c.Workers())
		results = nil
		for range parts {
			results = append(results, NewTensor(out[0].Type, all[at:]))
			at += AlignUp(out[0].Type.Bytes())
		}
	}
	var work []func()
	for i, p := range parts {
		work = append(work, p.CPU(c, inputs[i], results[i:i+1]))
	}
	if o.Gated {
		work = append(work, SwiGLU{}.CPU(c, results, out))
	}
	return func() {
		for _, w := range work {
			w()
		}
	}
}

// Cost reads x once.
func (o FewRows) Cost(in, out []Type, c Content) Cost {
	parts, inputs, _ := members(o, in)
	total := Cost{Bytes: moved(in) + moved(out)}
	for i, p := range parts {
		if y, err := p.Shape(inputs[i]); err == nil {
			total.FLOPs += p.(Costed).Cost(inputs[i], y, c).FLOPs
		}
	}
	return total
}

func (o FewRows) Stored(in []DType) (want, out []DType) {
	parts, inputs, _ := members(o, in)
	want = []DType{ComputeType}
	for i, p := range parts {
		w, y := p.(StoredOnGPU).Stored(inputs[i])
		want, out = append(want, w[1:]...), append(out, y...)
	}
	if o.Gated {
		out = out[:1]
	}
	return want, out
}

func (FewRows) ScratchGPU([]Type, []Type, int) int64 { return 0 }
