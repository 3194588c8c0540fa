package kernel

import (
	"fmt"
	"slices"
)

// ExpertUpdate is an experts' GEMM and a low-rank update of the same rows in one kernel, for plans of a GPU.
//
//	y = x_e op(w_e) + Alpha u_e op(v_e)       // Alpha: Low's
//	y = y0 + x_e op(w_e) + Alpha u_e op(v_e)  // Onto: in y0's memory
//
// Inputs: Base's, y0 where Onto, then u f[S,R] and v, as Low takes them. Base is ExpertMatMul without a factor, or one
// of those whose matrices stay packed.
type ExpertUpdate struct {
	Base Kernel
	Low  ExpertMatMul
	Onto bool
}

func (ExpertUpdate) Name() string { return "expert_update" }

// base returns the form of Base that adds to memory, how many inputs Base has, and which of them is the experts' first
// rows.
func (k ExpertUpdate) base() (onto Kernel, inputs, starts int) {
	a, ok := k.Base.(Accumulating)
	if !ok {
		return nil, 0, 0
	}
	onto, _ = a.Accumulate()
	to, ok := onto.(Overwriting)
	if !ok {
		return nil, 0, 0
	}
	if _, ok := k.Base.(ExpertMatMul); ok {
		starts = 1
	}
	return onto, to.Overwrites()[0].In, 1 + starts
}

// splitUpdate cuts inputs into Base's, the addend if there is one, and Low's.
func splitUpdate[T any](k ExpertUpdate, in []T) (base, addend, low []T) {
	_, n, starts := k.base()
	base, addend, low = in[:n], in[n:len(in)-2], in[len(in)-2:]
	return base, addend, []T{low[0], low[1], base[starts]}
}

func (k ExpertUpdate) Shape(in []Type) ([]Type, error) {
	onto, n, _ := k.base()
	if m, ok := k.Base.(ExpertMatMul); onto == nil || ok && (MatMul{Alpha: m.Alpha}).alpha() != 1 {
		return nil, fmt.Errorf("attribute Base is %v, want a GEMM of experts without a factor", k.Base)
	}
	if k.Onto {
		n++
	}
	if len(in) != n+2 {
		return nil, fmt.Errorf("takes %d inputs, got %d", n+2, len(in))
	}
	base, addend, low := splitUpdate(k, in)
	out, err := k.Base.Shape(base)
	if err != nil {
		return nil, err
	}
	update, err := k.Low.Shape(low)
	if err != nil {
		return nil, fmt.Errorf("update: %w", err)
	}
	for _, t := range append(slices.Clone(addend), update...) {
		if !t.Equal(out[0]) {
			return nil, fmt.Errorf("%v is added to %v", t, out[0])
		}
	}
	return out, nil
}

// Overwrites: the addend's memory is the result's.
func (k ExpertUpdate) Overwrites() []Alias {
	if !k.Onto {
		return nil
	}
	_, n, _ := k.base()
	return []Alias{{0, n}}
}

func (k ExpertUpdate) Scratch(in []Type, workers int) int64 {
	base, _, low := splitUpdate(k, in)
	n := k.Low.Scratch(low, workers)
	if s, ok := k.Base.(Scratch); ok {
		n = max(n, s.Scratch(base, workers))
	}
	return n
}

// CPU adds the large GEMM to the small one's result.
func (k ExpertUpdate) CPU(c *CPU, in, out []Tensor) func() {
	base, _, low := splitUpdate(k, in)
	onto, _, _ := k.base()
	first := k.Low.CPU(c, low, out)
	if k.Onto {
		first = Onto[ExpertMatMul]{k.Low}.CPU(c, low, out)
	}
	then := onto.CPU(c, base, out)
	return func() { first(); then() }
}

func (k ExpertUpdate) Cost(in, out []Type, _ Content) Cost {
	base, _, low := splitUpdate(k, in)
	return gemmCost(in, out, out[0].Shape[0], out[0].Shape[1], base[0].Shape[1]+low[0].Shape[1])
}

func (k ExpertUpdate) Stored(in []DType) (want, out []DType) {
	_, n, _ := k.base()
	want, out = k.Base.(StoredOnGPU).Stored(in[:n])
	if k.Onto {
		want = append(want, ComputeType)
	}
	return append(want, ComputeType, ComputeType), out
}

func (k ExpertUpdate) ScratchGPU(in, out []Type, sm int) int64 {
	if s, ok := k.Base.(ScratchOnGPU); ok {
		base, _, _ := splitUpdate(k, in)
		return s.ScratchGPU(base, out, sm)
	}
	return 0
}

// PrologueGPU marks the dequantising of Base's weights, which waits for no activation; where they are not packed there
// is none.
func (ExpertUpdate) PrologueGPU() bool { return true }
