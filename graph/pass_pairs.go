package graph

import "github.com/tierlora/tierlora/kernel"

// pairGradients merges both gradients of a low-rank GEMM y = t bᵀ, dt = dy b and db += dyᵀ t, where the machine makes
// them from one reading of dy.
func pairGradients(c *compilation) error {
	w := waitsOf(c.calls)
	byInput := map[*Value][]*call{}
	for _, one := range c.calls {
		if m, ok := one.kernel.(kernel.MatMul); ok && !m.TransA && !m.TransB {
			byInput[one.in[0]] = append(byInput[one.in[0]], one)
		}
	}
	merged := map[*call]*call{} // by the call of dt
	gone := map[*call]bool{}
	for _, db := range c.calls {
		k, ok := db.kernel.(kernel.Onto[kernel.MatMul])
		if !ok || !k.Of.TransA || k.Of.TransB || k.Of.RowsApart || k.Of.FP32Out || root(db.in[2]).kind != State {
			continue
		}
		for _, dt := range byInput[db.in[0]] {
			if merged[dt] != nil || dt.kernel != kernel.Kernel(kernel.MatMul{Alpha: k.Of.Alpha}) ||
				dt.segment != db.segment || !dt.out[0].Type.Equal(db.in[1].Type) ||
				!c.target.pairs(dt.in[0].Type, dt.in[1].Type) || w.waitsFor(dt, db) || w.waitsFor(db, dt) {
				continue
			}
			one := &call{kernel: kernel.MatMulGrads{Alpha: k.Of.Alpha}, scope: dt.scope, segment: dt.segment,
				backward: dt.backward, in: []*Value{dt.in[0], dt.in[1], db.in[1], db.in[2]},
				out: []*Value{dt.out[0], db.out[0]}}
			for i, v := range one.out {
				v.call, v.out = one, i
			}
			merged[dt], gone[db] = one, true
			w.unite([]*call{dt, db}, one)
			break
		}
	}
	kept := make([]*call, 0, len(c.calls))
	for _, one := range c.calls {
		if m := merged[one]; m != nil {
			one = m
		}
		if !gone[one] {
			kept = append(kept, one)
		}
	}
	c.calls = ordered(kept)
	return nil
}
