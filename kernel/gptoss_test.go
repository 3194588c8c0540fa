package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestAttentionSinks(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range []struct {
		cu        []int32
		heads, kv int
		D, window int
		stored    kernel.DType
	}{{[]int32{0, 1}, 1, 1, 2, 0, 0}, {[]int32{0, 5, 12}, 4, 2, 8, 0, 0}, {[]int32{0, 3, 20}, 4, 1, 6, 4, 0},
		{[]int32{0, 9}, 2, 2, 8, 0, kernel.BF16}} {
		m := int(s.cu[len(s.cu)-1])
		q, k := kerneltest.Normal(m, s.heads*s.D), kerneltest.Normal(m, s.kv*s.D)
		cu, sinks := kerneltest.Ints(s.cu, len(s.cu)), kerneltest.Normal(s.heads)
		if s.stored != 0 {
			sinks = sinks.As(s.stored)
		}
		o := kernel.Attention{Heads: s.heads, KVHeads: s.kv, Scale: 1 / math.Sqrt(float64(s.D)), Window: s.window}
		cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%+v", s), Kernel: kernel.AttentionSinks{Attention: o},
			Bound: 1e-6, In: []kerneltest.Input{q, k, k, cu, cu, sinks}})
	}
	kerneltest.Run(t, cases...)
}

// TestAttentionSinksMeaning: a sink is a key whose score is given and whose value is zero.
func TestAttentionSinksMeaning(t *testing.T) {
	const m, heads, D, scale = 5, 2, 4, 0.5
	q, k, v, sinks := normal64(1, m*heads*D), normal64(2, m*heads*D), normal64(3, m*heads*D), []float64{0.3, -1.2}
	out := evaluate(t, kernel.AttentionSinks{Attention: kernel.Attention{Heads: heads, KVHeads: heads, Scale: scale}},
		f64s(q, m, heads*D), f64s(k, m, heads*D), f64s(v, m, heads*D), i32s([]int32{0, m}), i32s([]int32{0, m}),
		f64s(sinks, heads))
	for i := range m {
		for h := range heads {
			sum, want := math.Exp(sinks[h]), make([]float64, D)
			for j := range i + 1 {
				score := 0.0
				for c := range D {
					score += scale * q[(i*heads+h)*D+c] * k[(j*heads+h)*D+c]
				}
				sum += math.Exp(score)
				for c := range D {
					want[c] += math.Exp(score) * v[(j*heads+h)*D+c]
				}
			}
			for c := range want {
				want[c] /= sum
			}
			near(t, fmt.Sprintf("row %d, head %d", i, h), out[0].F64()[(i*heads+h)*D:][:D], want, 1e-14)
			near(t, fmt.Sprintf("lse of row %d, head %d", i, h), out[1].F64()[h*m+i:][:1], []float64{math.Log(sum)},
				1e-14)
		}
	}
}

func TestExpertBias(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range expertSizes {
		_, _, starts := sorted(t, s[0], s[1], s[2])
		for _, stored := range []kernel.DType{0, kernel.BF16} {
			b := kerneltest.Normal(s[2] * s[3])
			if stored != 0 {
				b = b.As(stored)
			}
			cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%v stored %v", s, stored),
				Kernel: kernel.ExpertBias{Experts: s[2]}, Bound: 1.2e-7,
				In: []kerneltest.Input{kerneltest.Normal(s[0]*s[1], s[3]), b, kerneltest.Ints(starts, s[2]+1)}})
		}
	}
	kerneltest.Run(t, cases...)
}

func TestClampedSwiGLU(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {3, 7}, {13, 700}} {
		x, h := kerneltest.Normal(size[0], 2*size[1]), kerneltest.Normal(size[0], size[1])
		kerneltest.Run(t,
			kerneltest.Case{Name: fmt.Sprint("forward ", size), Kernel: kernel.ClampedSwiGLU{},
				In: []kerneltest.Input{x}, Bound: 1.2e-7},
			kerneltest.Case{Name: fmt.Sprint("backward ", size), Kernel: kernel.ClampedSwiGLUGrad{},
				In: []kerneltest.Input{x, h}, Bound: 1.2e-7})
	}
	x := f64s([]float64{9, 3, 2, -8, 2, 8, -9, 0.5}, 1, 8)
	g := 1 / (1 + math.Exp(-1.702*7))
	s := 1 / (1 + math.Exp(-1.702*2))
	near(t, "limited", evaluate(t, kernel.ClampedSwiGLU{}, x)[0].F64()[:3], []float64{4 * 7 * g, -6 * 2 * s, 8 * 2 * s},
		1e-14)
	dx := evaluate(t, kernel.ClampedSwiGLUGrad{}, x, f64s([]float64{1, 1, 1, 1}, 1, 4))[0].F64()
	if dx[0] != 0 || dx[3] != 0 || dx[5] != 0 || dx[1] == 0 || dx[2] == 0 || dx[6] == 0 {
		t.Errorf("gradients %v, want zero where a number is limited and only there", dx)
	}
}
