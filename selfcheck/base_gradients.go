package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// headChecks returns the gradient for the vocabulary matrix, alone and added to a sum, in chunks.
func headChecks(in []checkInput) []check {
	M, C, V := in[0].shape[0], in[0].shape[1], in[1].shape[0]
	var all []check
	for _, chunk := range []int{32, 256} {
		for _, cap := range []float64{0, 2} {
			plain := func(f format, in [][]float64) [][]float64 { return plainLosses(M, C, cap, f, in) }
			k := kernel.LinearCrossEntropy{Chunk: chunk, Grad: true, Cap: cap, Head: kernel.HeadTrained}
			smoothed := kernel.SmoothedCrossEntropy{Chunk: chunk, Grad: true, Cap: cap, Head: kernel.HeadTrained}
			onto := k
			onto.Head = kernel.HeadOnto
			name := fmt.Sprintf("%d rows of %d, vocabulary %d, %d at a time, soft cap %v, head", M, C, V, chunk, cap)
			sum := newNumbers().normal32(1e-3, V, C).overwritten()
			all = append(all,
				check{kernel: "crossentropy", name: name, build: one(k), in: in, plain: plain,
					bounds: []bound{lastBound, rounded, rounded, rounded}, gemm: true},
				check{kernel: "crossentropy", name: name + " onto", build: one(onto), in: append(in[:4:4], sum),
					bounds: []bound{lastBound, rounded, rounded, rounded}, gemm: true,
					plain: func(f format, in [][]float64) [][]float64 {
						out := plain(f, in[:4])
						for i, x := range in[4] {
							out[3][i] += x
						}
						return out
					}},
				check{kernel: "smoothed_crossentropy", name: name, in: in, bounds: []bound{rounded, rounded},
					gemm: true,
					build: func(b *graph.Builder, in []*graph.Value) []*graph.Value {
						out := b.ApplyAll(smoothed, in...)
						if b.Err() != nil {
							return out
						}
						return []*graph.Value{out[1], out[5]}
					},
					plain: func(f format, in [][]float64) [][]float64 {
						out := plain(f, in)
						return [][]float64{out[1], out[3]}
					}})
		}
	}
	return all
}

// baseGradientChecks returns gradients of base weights: tables of embeddings, biases and norms. They are summed in
// fp32.
func baseGradientChecks() []check {
	n := newNumbers()
	var all []check
	for _, s := range [][2]int{{1, 1}, {7, 40}, {129, 576}, {1000, 1031}, {5000, 64}} {
		M, C := s[0], s[1]
		size, x := fmt.Sprintf("[%d,%d]", M, C), func() checkInput { return n.normal(1, M, C) }
		const V, K = 50, 7
		ids, at := make([]int, M), make([]int, M) // at is below 0 for most
		for i := range ids {
			ids[i] = (i*i*37 + 49) % V
			at[i] = ids[i] - V + K
		}
		scaled := kernel.EmbeddingGrad{Scale: 7.5}
		table := func() checkInput { return n.normal(1, V, C) }
		all = append(all,
			check{kernel: "embedding_grad", name: size, build: one(kernel.EmbeddingGrad{}), bounds: []bound{summed},
				in: []checkInput{integers(ids...), table(), x()}},
			check{kernel: "embedding_grad", name: size + " scaled, onto", bounds: []bound{summed},
				build: one(kernel.Onto[kernel.EmbeddingGrad]{Of: scaled}),
				in:    []checkInput{integers(ids...), table(), x(), n.normal32(1, V, C).overwritten()}},
			setRowsCheck(size, "put", kernel.PutRows, n, M, C),
			setRowsCheck(size, "added", kernel.AddRows, n, M, C),
			setRowsCheck(size, "cleared", kernel.ClearRows, n, M, C),
			check{kernel: "replace_rows", name: size, build: one(kernel.ReplaceRows{}), bounds: []bound{exact},
				in: []checkInput{x(), n.normal(1, K, C), integers(at...)}},
			check{kernel: "replace_rows", name: size + " scaled", build: one(kernel.ReplaceRows{Scale: 7.5}),
				bounds: []bound{rounded}, in: []checkInput{x(), n.normal(1, K, C), integers(at...)}},
			check{kernel: "replace_rows_grad", name: size, build: one(kernel.ReplaceRowsGrad{}),
				bounds: []bound{summed}, in: []checkInput{n.normal(1, K, C), integers(at...), x()}},
			check{kernel: "replace_rows_grad", name: size + " of fp32, scaled", bounds: []bound{summed},
				build: func(b *graph.Builder, in []*graph.Value) []*graph.Value {
					dy := b.Apply(kernel.AddTo{}, in[2], in[3]) // stored in fp32
					return []*graph.Value{b.Apply(kernel.ReplaceRowsGrad{Scale: 7.5}, in[0], in[1], dy)}
				},
				in: []checkInput{n.normal(1, K, C), integers(at...), n.normal32(1, M, C).overwritten(),
					n.normal32(1, M, C)}},
			check{kernel: "lookup", name: size, build: one(kernel.Lookup{}), bounds: []bound{exact},
				in: []checkInput{integers(ids...), integers(at[:min(M, V-3)]...)}},
			check{kernel: "bias_grad", name: size, build: one(kernel.BiasGrad{}), bounds: []bound{summed},
				in: []checkInput{x()}},
			check{kernel: "rmsnorm_weight", name: size, build: one(kernel.RMSNormWeightGrad{}), bounds: []bound{summed},
				in: []checkInput{x(), positive(n.normal32(1, M)), x()}},
			check{kernel: "rmsnorm_weight", name: size + " of 3 heads", build: one(kernel.RMSNormWeightGrad{Heads: 3}),
				bounds: []bound{summed},
				in:     []checkInput{n.normal(1, M, 3*C), positive(n.normal32(1, 3*M)), n.normal(1, M, 3*C)}})
	}
	return all
}

// setRowsCheck returns a check of rows of a table that stand in some rows of x.
func setRowsCheck(size, what string, mode kernel.RowsMode, n checkNumbers, M, C int) check {
	from := make([]int, M)
	for m := range from {
		from[m] = m*31%9 - 4
	}
	limit := exact
	if mode == kernel.AddRows {
		limit = rounded
	}
	return check{kernel: "set_rows", name: fmt.Sprintf("%s %s", size, what), build: one(kernel.SetRows{Mode: mode}),
		bounds: []bound{limit}, inPlace: []int{0},
		in: []checkInput{n.normal(1, M, C), n.normal(1, 5, C), integers(from...)}}
}
