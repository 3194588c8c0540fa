package cuda

import "fmt"

// ConvTaps is the longest filter that causal_conv_grad_any serves: a thread keeps a number a tap in shared memory.
const ConvTaps = 64

// CausalConv returns the geometry of causal_conv_*, or with grad of causal_conv_grad_*, over M rows of C columns with
// filters of K taps, and how many rows a thread walks over, which changes no result.
func CausalConv(M, C, K int, grad bool) (g Geometry, rows int) {
	g, rows = conv("causal_conv", "causal_conv_", M, C, K, 32, 1<<17)
	if grad {
		g, rows = conv("causal_conv_grad", "causal_conv_grad_", M, C, K, 64, 1<<16)
		if !ownConv(K) {
			g.Shared = 4 * K * g.Block[0]
		}
	}
	g.Grid[0] = max(1, ceil(M, rows))
	return g, rows
}

// CausalConvCached returns that of causal_conv_cached_*, over S sequences with slots.
func CausalConvCached(M, C, K, S int) (g Geometry, rows int) {
	g, rows = conv("causal_conv", "causal_conv_cached_", M, C, K, 32, 1<<17)
	g.Grid[0] = M/rows + S + 1
	return g, rows
}

// ownConv tells whether there is a kernel for just that many taps.
func ownConv(K int) bool { return K >= 2 && K <= 4 }

// conv returns a geometry but for its first dimension, and the rows of a thread: most, fewer where that leaves too few
// threads.
func conv(stem, entry string, M, C, K, most int, threads int64) (g Geometry, rows int) {
	form, columns, rows := "any", C, max(64, K)
	if ownConv(K) {
		if form = fmt.Sprint(K); C%4 == 0 {
			columns = C / 4
		}
		for rows = most; rows > 8 && int64(M)*int64(columns) < int64(rows)*threads; rows /= 2 {
		}
	}
	block := min(128, max(32, ceil(columns, 32)*32))
	return Geometry{stem, entry + form, [3]int{1, max(1, ceil(columns, block)), 1}, [3]int{block, 1, 1}, 0}, rows
}

// ShortConv returns the geometry of short_conv and short_conv_grad over M rows of C columns.
func ShortConv(entry string, M, C int) Geometry { return Flat("short_conv", entry, int64(M)*int64(C)) }

// ShortConvCached returns that of short_conv_cached over S sequences with slots.
func ShortConvCached(C, S int) Geometry {
	return Geometry{"short_conv", "short_conv_cached", [3]int{max(1, ceil(C, 128)), S + 1, 1}, [3]int{128, 1, 1}, 0}
}
