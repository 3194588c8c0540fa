package nn

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// LayerNorm computes y = w (x - mean(x)) / sqrt(var(x) + eps) for each row: the RMSNorm of the row less its mean.
func LayerNorm(n *Net, name string, x *Value, eps float64) *Value {
	return n.RMSNorm(name, centred(n, x), eps)
}

// meanColumns is the number of equal columns of a row's sums, the fewest that GEMMs on GPUs have.
const meanColumns = 8

// centred subtracts its mean from each row of x [M,C], by two GEMMs with tables whose numbers are exact in every
// precision.
func centred(n *Net, x *Value) *Value {
	width := x.Width()
	table := func(what string, number float64, rows, cols int) *Value {
		return Constant(n, fmt.Sprintf("%s [%d,%d]", what, rows, cols), func(dst []float64) {
			for i := range dst {
				dst[i] = number
			}
		}, rows, cols)
	}
	sums := n.Apply(kernel.MatMul{TransB: true}, x, table("ones", 1, meanColumns, width)) // [M,C] -> [M,8]
	means := n.Scale(sums, -1/float64(width))
	shares := table("shares of means", 1./meanColumns, width, meanColumns)
	return n.Add(x, n.Apply(kernel.MatMul{TransB: true}, means, shares)) // [M,8] -> [M,C]
}
