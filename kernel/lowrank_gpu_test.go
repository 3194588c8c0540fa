//go:build gpu

package kernel

import (
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// TestLowRankSharesWhatIsWide: in a model that is no wider than a rank, GEMMs may share their narrow operand. The
// kernels read one wide operand, and null addresses in place of others: such GEMMs run one by one. None of these
// reaches a device.
func TestLowRankSharesWhatIsWide(t *testing.T) {
	many, one := []gpu.Ptr{16, 32, 48}, []gpu.Ptr{64}
	for name, c := range map[string]struct {
		m, n, k int
		transA  bool
		d, a, b []gpu.Ptr
		form    lowRankForm
	}{
		"several results":        {7, 32, 16, false, many, one, many, lowRankUp},
		"sum into a narrow one":  {7, 16, 32, false, one, many, many, lowRankDown},
		"gradients, wide second": {16, 32, 7, true, many, one, many, lowRankGrad},
		"gradients, wide first":  {32, 16, 7, true, many, many, one, lowRankGradFlipped},
	} {
		p := gemmOp{m: c.m, n: c.n, k: c.k, transA: c.transA, alpha: 1, operand: BF16, out: BF16}
		if c.transA {
			p.out, p.beta = F32, 1
		}
		if _, form := p.lowRank(3); form != c.form {
			t.Errorf("%s: form %d, want %d", name, form, c.form)
		}
		if work, ok, err := p.bindLowRank(&GPU{Precision: PrecisionBF16}, c.d, c.a, c.b, 0); work != nil || ok ||
			err != nil {
			t.Errorf("%s: bound, %v", name, err)
		}
	}
}
