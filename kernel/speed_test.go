package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/internal/cputime"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gemm"
)

// BenchmarkLayer times what a layer of SmolLM2-135M runs besides its GEMMs, and those GEMMs,
// on all threads, for one sequence of M tokens; then the vocabulary head. The processor time beside the
// time of day tells how much of it other programs took.
func BenchmarkLayer(b *testing.B) {
	const heads, kvs, head, width, hidden, vocab = 9, 3, 64, 576, 1536, 49152
	for _, m := range []int{128, 512} {
		x := func(n int) kernel.Tensor { return f32s(normal32(uint64(n), m*n), m, n) }
		cu := i32s([]int32{0, int32(m)})
		q, k, h, wide := x(heads*head), x(kvs*head), x(width), x(hidden)
		attention := kernel.Attention{Heads: heads, KVHeads: kvs, Scale: 1 / math.Sqrt(head)}
		out := evaluate(b, attention, q, k, k, cu, cu)
		w, rstd := f32s(normal32(1, width), width), f32s(normal32(2, m), m)
		labels := make([]int32, m)
		positions := make([]int32, m)
		for i := range positions {
			positions[i] = int32(i)
		}
		table := f32s(normal32(3, m*head), m, head)
		head16 := zeros(kernel.BF16, vocab, width)
		for i, v := range normal32(4, vocab*width) {
			head16.U16()[i] = uint16(math.Float32bits(v/16) >> 16)
		}
		scale := f32s([]float32{1}, 1)
		rope := kernel.RoPE{Heads: heads}
		for _, c := range []struct {
			name string
			k    kernel.Kernel
			in   []kernel.Tensor
		}{
			{"attention", attention, []kernel.Tensor{q, k, k, cu, cu}},
			{"attention_grad", kernel.AttentionGrad(attention), []kernel.Tensor{q, k, k, out[0], out[1], q, cu, cu}},
			{"swiglu", kernel.SwiGLU{}, []kernel.Tensor{wide, wide}},
			{"swiglu_grad", kernel.SwiGLUGrad{}, []kernel.Tensor{wide, wide, wide}},
			{"rmsnorm", kernel.RMSNorm{Eps: 1e-5}, []kernel.Tensor{h, w}},
			{"rmsnorm_grad", kernel.RMSNormGrad{}, []kernel.Tensor{h, w, rstd, h}},
			{"rope", rope, []kernel.Tensor{q, table, i32s(positions)}},
			{"crossentropy", kernel.LinearCrossEntropy{Chunk: 128, Grad: true},
				[]kernel.Tensor{h, head16, i32s(labels), scale}},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, m), func(b *testing.B) {
				_, work := bound(b, c.k, 0, c.in...)
				timed(b, work)
			})
		}
		b.Run(fmt.Sprintf("gemms/%d", m), func(b *testing.B) {
			p := gemm.NewPool(0)
			defer p.Close()
			weight, y := normal32(5, width*hidden), make([]float32, m*hidden)
			multiply := func(n, k int, a []float32) {
				gemm.Gemm(p, false, true, m, n, k, 1, a, k, weight, k, 0, y, n)
				gemm.Gemm(p, false, false, m, k, n, 1, wide.F32(), n, weight, k, 0, y, k)
			}
			timed(b, func() {
				multiply(width, width, h.F32())
				multiply(kvs*head, width, h.F32())
				multiply(kvs*head, width, h.F32())
				multiply(width, width, h.F32())
				multiply(hidden, width, h.F32())
				multiply(hidden, width, h.F32())
				multiply(width, hidden, wide.F32())
			})
		})
	}
}

func timed(b *testing.B, work func()) {
	work()
	start := cputime.Process()
	for b.Loop() {
		work()
	}
	b.ReportMetric(float64(cputime.Process()-start)/float64(b.N), "cpu-ns/op")
}
