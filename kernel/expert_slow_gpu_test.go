//go:build gpu

package kernel

import (
	"strings"
	"testing"
)

// TestSlowExperts: which GEMMs of experts leave the wgmma kernels, and on which devices. No device is needed.
func TestSlowExperts(t *testing.T) {
	const experts, rows, many = 8, 512, 8192
	gemm := func(x DType, rows, n, k int) (Kernel, []Type, []Type) {
		return ExpertMatMul{Experts: experts, TransB: true},
			[]Type{T(x, rows, k), T(x, experts*n, k), T(I32, experts+1)}, []Type{T(x, rows, n)}
	}
	nf4 := func(n, k int, transposed bool) (Kernel, []Type, []Type) {
		in, out := k, n
		if transposed {
			in, out = n, k
		}
		return ExpertMatMulNF4{Experts: experts, N: n, K: k, Transposed: transposed},
			[]Type{T(BF16, many, in), T(I32, experts+1)}, []Type{T(BF16, many, out)}
	}
	update := func(rank int) (Kernel, []Type, []Type) {
		base, in, out := gemm(BF16, many, 768, 2048)
		return ExpertUpdate{Base: base, Low: ExpertMatMul{Experts: experts, TransB: true}},
			append(in, T(BF16, many, rank), T(BF16, experts*768, rank)), out
	}
	of := func(k Kernel, in, out []Type) func(sm int) string {
		return func(sm int) string { return k.(SlowOnGPU).SlowGPU(in, out, sm).What }
	}
	for name, c := range map[string]struct {
		got  func(sm int) string
		want string // on compute capability 9.0; "" = nothing
	}{
		"as it should be": {of(gemm(BF16, many, 768, 2048)), ""},
		"odd columns": {of(gemm(BF16, many, 764, 2048)),
			"experts' GEMMs of 764 columns and depth 2048 run on mma.sync"},
		"odd depth": {of(gemm(F16, many, 768, 2044)),
			"experts' GEMMs of 768 columns and depth 2044 run on mma.sync"},
		"few rows":              {of(gemm(BF16, rows, 764, 2048)), ""},
		"fp32":                  {of(gemm(F32, many, 764, 2048)), ""},
		"A of an odd rank":      {of(gemm(BF16, many, 12, 2048)), ""},
		"B of an odd rank":      {of(gemm(BF16, many, 768, 12)), ""},
		"nf4":                   {of(nf4(768, 2048, false)), ""},
		"nf4, odd":              {of(nf4(764, 2048, false)), "of 764 columns and depth 2048"},
		"nf4, odd, transposed":  {of(nf4(764, 2048, true)), "of 2048 columns and depth 764"},
		"an update":             {of(update(16)), ""},
		"an update of odd rank": {of(update(12)), "take no update of rank 12 along"},
	} {
		if got := c.got(90); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := c.got(80); got != "" {
			t.Errorf("%s on 8.0: %q", name, got)
		}
	}
}
