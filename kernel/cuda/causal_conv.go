package cuda

import "fmt"

// ConvTaps is the longest filter that causal_conv_grad_any serves: a thread keeps a number a tap in shared memory.
const ConvTaps = 64

// CausalConv is the geometry of causal_conv_* and causal_conv_grad_* (grad) over M rows of C columns with filters of K taps, and how many
// rows a thread walks over, which changes no result.
func CausalConv(M, C, K int, grad bool) (g Geometry, rows int) {
	stem, shared := "causal_conv", 0
	if grad {
		stem = "causal_conv_grad"
	}
	g, rows = conv(stem, stem, M, C, K)
	g.Grid[0] = max(1, ceil(M, rows))
	if _, own := convForm(K); grad && !own {
		shared = 4 * K * g.Block[0]
	}
	g.Shared = shared
	return g, rows
}

// CausalConvCached is that of causal_conv_cached_*, over S sequences with slots.
func CausalConvCached(M, C, K, S int) (g Geometry, rows int) {
	g, rows = conv("causal_conv", "causal_conv_cached", M, C, K)
	g.Grid[0] = M/rows + S + 1
	return g, rows
}

// convForm names the kernel of a filter's taps; own = it keeps rows in registers.
func convForm(K int) (name string, own bool) {
	if K >= 2 && K <= 4 {
		return fmt.Sprint(K), true
	}
	return "any", false
}

func conv(stem, entry string, M, C, K int) (g Geometry, rows int) {
	form, own := convForm(K)
	threads := C
	if own && C%8 == 0 {
		threads = C / 8
	}
	rows = max(64, K)
	if own {
		for rows = 32; rows > 8 && int64(M)*int64(threads) < int64(rows)<<17; rows /= 2 {
		}
	}
	block := min(128, max(32, ceil(threads, 32)*32))
	return Geometry{stem, entry + "_" + form, [3]int{1, max(1, ceil(threads, block)), 1}, [3]int{block, 1, 1}, 0}, rows
}
