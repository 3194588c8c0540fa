package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// doraChecks returns the norms of updated rows, and the scaling of columns with its gradients.
func doraChecks() []check {
	n := newNumbers()
	var all []check
	positive := func(scale float64, shape ...int) checkInput {
		x := n.normal32(1, shape...)
		for i, v := range x.values {
			x.values[i] = float64(float32(scale * (1 + v*v)))
		}
		return x
	}
	for _, M := range checkRows {
		for _, N := range checkWidths {
			x := func() checkInput { return n.normal(1, M, N) }
			m, inv := n.normal32(1, N), positive(0.5, N)
			name := fmt.Sprintf("[%d,%d]", M, N)
			all = append(all,
				check{kernel: "dora_scale", name: name, build: one(kernel.DoRAScale{}), bounds: []bound{rounded},
					inPlace: []int{0}, in: []checkInput{x(), m, inv}},
				check{kernel: "dora_scale_grad", name: name, build: one(kernel.DoRAScaleGrad{}),
					bounds: []bound{rounded, single}, inPlace: []int{3}, in: []checkInput{x(), m, inv, x()}})
		}
	}
	for _, N := range checkWidths {
		for _, R := range []int{1, 8, 33} {
			gram := symmetric(n.normal32(1, R, R))
			all = append(all, check{kernel: "dora_norm", name: fmt.Sprintf("%d rows, rank %d", N, R),
				build: one(kernel.DoRANorm{Scale: 0.05}), bounds: []bound{single},
				in: []checkInput{positive(float64(10*R), N), n.normal32(1, R, N), gram, n.normal32(1, N, R)}})
		}
	}
	return all
}

// symmetric returns a square matrix with its lower half in the place of the upper.
func symmetric(x checkInput) checkInput {
	n := x.shape[0]
	for i := range n {
		for j := range i {
			x.values[j*n+i] = x.values[i*n+j]
		}
	}
	return x
}
