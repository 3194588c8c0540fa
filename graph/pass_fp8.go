package graph

import "github.com/tierlora/tierlora/kernel"

// multiplyFP8 lets large GEMMs with 4-bit frozen weights multiply 8-bit floats. The rows of each GEMM are rounded in a
// call of their own, ahead of the first GEMM that reads them, so that GEMMs of the same rows share it. What else reads
// the rows, such as a low-rank update, reads them unrounded. A step none of whose GEMMs qualifies is a slow path.
func multiplyFP8(c *compilation) error {
	if !c.target.fp8() {
		return nil
	}
	type rows struct {
		of      *Value
		segment int
	}
	made := map[rows]*call{}
	var calls []*call
	for _, m := range c.calls {
		weight, onto := fourBitWeight(m.kernel)
		if weight == nil || !weight.FitsFP8(m.in[0].Type) {
			calls = append(calls, m)
			continue
		}
		x := m.in[0]
		q := made[rows{x, m.segment}]
		if q == nil {
			types, err := kernel.QuantiseRows{}.Shape([]kernel.Type{x.Type})
			if err != nil {
				return err
			}
			q = &call{kernel: kernel.QuantiseRows{}, in: []*Value{x}, scope: m.scope, segment: m.segment,
				backward: m.backward}
			for i, t := range types {
				q.out = append(q.out, &Value{Name: x.Name, Type: t, kind: Computed, call: q, out: i})
			}
			made[rows{x, m.segment}] = q
			calls = append(calls, q)
		}
		k := kernel.MatMulFP8{Weight: *weight, Float: m.out[0].Type.DType}
		m.kernel, m.in = k, append([]*Value{q.out[0], q.out[1]}, m.in[1:]...)
		if onto {
			m.kernel = kernel.Onto[kernel.MatMulFP8]{Of: k}
		}
		calls = append(calls, m)
	}
	c.calls = calls
	if len(made) == 0 {
		c.slow = append(c.slow, noFP8)
	}
	return nil
}

// noFP8 is the slow path of a step that training.frozen_gemm: fp8 does not change.
var noFP8 = kernel.SlowPath{
	What: "no frozen GEMM of a step multiplies 8-bit floats: the step stays in bf16, and keeps no dequantised weights",
	Cost: "that of packed weights: 2 to 4 % at 4x2048 tokens, 30 % at 1x512 " +
		"(1.1B and 7B, H200, docs/internals/decisions/0015-memory-ways.md)",
	Remedy: "adapter: qlora, linear layers of at least 1,024 rows and columns, and micro-batches of at least 256 " +
		"tokens, a multiple of 16; or training.frozen_gemm: bf16",
}

// fourBitWeight returns the GEMM with a 4-bit weight that a call is, nil for other calls, and whether it adds to an
// addend.
func fourBitWeight(k kernel.Kernel) (weight *kernel.MatMulNF4, onto bool) {
	switch k := k.(type) {
	case kernel.MatMulNF4:
		return &k, false
	case kernel.Onto[kernel.MatMulNF4]:
		return &k.Of, true
	}
	return nil, false
}
