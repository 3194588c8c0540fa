//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"testing"
)

func TestSigmoidGate(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, c := range [][2]int{{1, 1}, {3, 33}, {9, 172}, {17, 2048}, {513, 576}} {
		M, C := c[0], c[1]
		var x, gate, dy []float64
		out := r.repeat(func() [][]byte {
			var xb, gb, db []uint16
			xb, x = r.random(M*C, 1)
			gb, gate = r.random(M, 4)
			db, dy = r.random(M*C, 1)
			X, G := in(r, "x", xb), in(r, "gate", gb)
			Y, DX, DG := r.out("y", int64(2*M*C)), r.out("dx", int64(2*M*C)), r.out("dgate", int64(2*M))
			r.run(Flat("sigmoid_gate", "sigmoid_gate_rows", int64(M*C)), Y, X, G, i32(M), i32(C))
			r.run(SigmoidGateGrad(M), DX, DG, X, G, in(r, "dy", db), i32(M), i32(C))
			return [][]byte{get[byte](r, Y, 2*M*C), get[byte](r, DX, 2*M*C), get[byte](r, DG, 2*M)}
		})
		y, dx, dgate := make([]float64, M*C), make([]float64, M*C), make([]float64, M)
		for i := range y {
			s := 1 / (1 + math.Exp(-gate[i/C]))
			y[i], dx[i] = x[i]*s, dy[i]*s
			dgate[i/C] += s * (1 - s) * x[i] * dy[i]
		}
		nearBF16(t, fmt.Sprintf("%v y", c), bfFloats(out[0]), y)
		nearBF16(t, fmt.Sprintf("%v dx", c), bfFloats(out[1]), dx)
		nearBF16(t, fmt.Sprintf("%v dgate", c), bfFloats(out[2]), dgate)
	}
}
