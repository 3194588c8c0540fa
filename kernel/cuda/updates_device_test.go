//go:build gpu && linux

package cuda

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// TestSGDStep: three steps have the bits of fp32 arithmetic that rounds every operation, the copy is their nearest
// bf16, and a clip factor that is not a number changes nothing.
func TestSGDStep(t *testing.T) {
	r := newHarness(t, 64<<20)
	const lr, mu, decay, clip = float32(1e-2), float32(0.9), float32(0.1), float32(0.3)
	for _, n := range []int{1, 33, 1000, 300007} {
		for nesterov := range int32(2) {
			p, m := make([]float32, n), make([]float32, n)
			out := r.repeat(func() [][]byte {
				grad := make([]float32, n)
				for i := range p {
					p[i], m[i] = float32(r.rnd.NormFloat64()), 0
				}
				P, M, C := in(r, "p", p), in(r, "m", m), r.out("copy", int64(2*n))
				step := func(factor float32) {
					r.run(Flat("sgd", "sgd_step", (int64(n)+3)/4), P, M, C, in(r, "g", grad), in(r, "lr",
						[]float32{lr}),
						in(r, "clip", []float32{factor}), int64(n), mu, decay, nesterov)
				}
				for range 3 {
					for i := range grad {
						grad[i] = float32(r.rnd.NormFloat64())
					}
					step(clip)
					for i, g := range grad {
						d := float32(g*clip) + float32(decay*p[i])
						m[i] = float32(mu*m[i]) + d
						s := m[i]
						if nesterov == 1 {
							s = d + float32(mu*s)
						}
						p[i] -= float32(lr * s)
					}
				}
				step(float32(math.NaN()))
				return [][]byte{get[byte](r, P, 4*n), get[byte](r, M, 4*n), get[byte](r, C, 2*n)}
			})
			sameFloats(t, "sgd", [][]float32{p, m}, out)
			nearBF16(t, "sgd's copy", bfFloats(out[2]), widenedUpdate(p))
		}
	}
}

// TestScheduleFreeStep: three steps from the first have the bits of fp32 arithmetic, and either kind of weights is
// shown.
func TestScheduleFreeStep(t *testing.T) {
	r := newHarness(t, 64<<20)
	const lr, b1, b2, eps, decay, clip = float32(1e-2), 0.9, 0.999, float32(1e-8), float32(0.1), float32(0.3)
	to1, to2 := float32(1-b1), float32(1-b2)
	for _, n := range []int{1, 33, 300007} {
		p, x, z, v := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
		out := r.repeat(func() [][]byte {
			for i := range p {
				p[i], x[i], z[i], v[i] = float32(r.rnd.NormFloat64()), 0, 0, 0
			}
			grad, weight := make([]float32, n), make([]float32, 4)
			P, X, Z, V, C, W := in(r, "p", p), in(r, "x", x), in(r, "z", z), in(r, "v", v), r.out("copy",
				int64(2*n)), in(r, "weight", weight)
			one := Geometry{"schedule_free", "schedule_free_weight", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0}
			for s := 1; s <= 3; s++ {
				for i := range grad {
					grad[i] = float32(r.rnd.NormFloat64())
				}
				correct := float32(1 - math.Pow(b2, float64(s)))
				hyper, factor := in(r, "hyper", []float32{lr, 0, correct, 0}), in(r, "clip", []float32{clip})
				r.run(one, W, hyper, factor)
				r.run(Flat("schedule_free", "schedule_free_step", int64(n)), P, X, Z, V, C, in(r, "g", grad), W,
					hyper, hyper.Add(12), factor,
					gpu.Ptr(0), int64(n), float32(b1), to1, float32(b2), to2, int64(math.Float64bits(b2)), eps, decay)
				weight[0] = lr
				weight[1] += float32(lr * lr)
				weight[2] = float32(lr*lr) / weight[1]
				share, rest := weight[2], 1-weight[2]
				for i, g := range grad {
					y := p[i]
					if s == 1 {
						x[i], z[i] = y, y
					}
					d := float32(g * clip)
					v[i] = float32(float32(b2)*v[i]) + float32(to2*float32(d*d))
					u := float32(d/(float32(math.Sqrt(float64(float32(v[i]/correct))))+eps)) + float32(decay*y)
					z[i] -= float32(lr * u)
					x[i] = float32(rest*x[i]) + float32(share*z[i])
					p[i] = float32(float32(b1)*x[i]) + float32(to1*z[i])
				}
			}
			trained := get[byte](r, P, 4*n)
			show := func(average int32) []byte {
				r.run(Flat("schedule_free", "schedule_free_show", int64(n)), P, C, X, Z, W, int64(n), float32(b1),
					to1, average)
				return get[byte](r, P, 4*n)
			}
			return [][]byte{trained, get[byte](r, X, 4*n), get[byte](r, Z, 4*n), get[byte](r, V, 4*n), show(1), show(0)}
		})
		sameFloats(t, "schedule-free", [][]float32{p, x, z, v, x, p}, out)
	}
}

// sameFloats compares arrays of float32 with those of a device.
func sameFloats(t *testing.T, name string, want [][]float32, got [][]byte) {
	t.Helper()
	for i, w := range want {
		for j, g := range f32Floats(got[i]) {
			if float32(g) != w[j] {
				t.Fatalf("%s: output %d, element %d is %v, want %v", name, i, j, g, w[j])
			}
		}
	}
}

func widenedUpdate(x []float32) (wide []float64) {
	for _, v := range x {
		wide = append(wide, float64(v))
	}
	return wide
}

// TestStochasticRound: the CPU's bits at every length, for numbers of all sizes, infinities and NaN.
func TestStochasticRound(t *testing.T) {
	r := newHarness(t, 64<<20)
	const seed, step, stream = 11, 4, 5
	for _, n := range []int{1, 7, 8, 33, 300007} {
		x := make([]float32, n)
		out := r.repeat(func() [][]byte {
			for i := range x {
				x[i] = math.Float32frombits(r.rnd.Uint32())
			}
			x[0] = float32(math.Inf(-1))
			Y := r.out("y", int64(2*n))
			r.run(Flat("stochastic", "stochastic_round", (int64(n)+7)/8), Y, in(r, "x", x), in(r, "counter",
				[]int32{seed, step}), int64(stream), int64(n))
			return [][]byte{get[byte](r, Y, 2*n)}
		})
		for e, v := range x {
			word := philoxWord(uint32(e/8*4+e/2%4), 0, step, 1, seed+stream)
			b := math.Float32bits(v)
			switch {
			case v != v:
				b |= 1 << 22
			case b&0x7f800000 != 0x7f800000:
				b += word >> (e % 2 * 16) & 0xffff
			}
			if got := uint32(out[0][2*e]) | uint32(out[0][2*e+1])<<8; got != b>>16 {
				t.Fatalf("%d numbers: %v at %d becomes %04x, want %04x", n, v, e, got, b>>16)
			}
		}
	}
}
