//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

func i32(v int) int32 { return int32(v) }

func TestRope(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, c := range [][5]int{{5, 4, 2, 64, 64}, {3, 9, 3, 64, 64}, {4, 8, 4, 8, 8}, {2, 3, 3, 128, 128},
		{3, 2, 1, 80, 80}, {3, 2, 1, 20, 20},
		{5, 4, 2, 128, 96}, {3, 3, 1, 64, 32}, {3, 2, 2, 20, 16}, {4, 2, 1, 64, 6}, {2, 3, 1, 96, 24}} {
		M, H, K, D, R := c[0], c[1], c[2], c[3], c[4]
		ld := (H + 2*K) * D // q and k inside one matrix with v, which must stay, as the last D-R values of a head must
		const P = 100
		var x []float64
		pos := make([]int32, M)
		cosT, sinT := make([]float32, P*R/2), make([]float32, P*R/2)
		for p := range P {
			for d := range R / 2 {
				a := float64(p) * math.Pow(10000, -2*float64(d)/float64(R))
				cosT[p*R/2+d], sinT[p*R/2+d] = float32(math.Cos(a)), float32(math.Sin(a))
			}
		}
		for i := range pos {
			pos[i] = int32((i * 37) % P)
		}
		for _, sign := range []float32{1, -1} {
			out := r.repeat(func() [][]byte {
				xb, xf := r.random(M*ld, 1)
				x = xf
				X := in(r, "qkv", xb)
				r.run(Rope(M, H, K, R), X, X.Add(int64(2*H*D)), in(r, "pos", pos), in(r, "cos", cosT),
					in(r, "sin", sinT),
					i32(M), i32(H), i32(K), i32(D), i32(R), i32(ld), i32(ld), i32(R/2), sign)
				return [][]byte{get[byte](r, X, 2*M*ld)}
			})
			want := append([]float64(nil), x...)
			for m := range M {
				for h := range H + K {
					for d := range R / 2 {
						i := m*ld + h*D + d
						c, s := float64(cosT[int(pos[m])*R/2+d]), float64(sign*sinT[int(pos[m])*R/2+d])
						want[i], want[i+R/2] = x[i]*c-x[i+R/2]*s, x[i+R/2]*c+x[i]*s
					}
				}
			}
			nearBF16(t, fmt.Sprintf("%v sign %v", c, sign), bfFloats(out[0]), want)
		}
	}
}

func TestSwiglu(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, c := range [][3]int{{3, 172, 172}, {5, 1536, 1536}, {7, 64, 128}, {3, 33, 66}, {4, 33, 33}} {
		M, F, ld := c[0], c[1], c[2]
		var e, g []float64
		out := r.repeat(func() [][]byte {
			var eb, gb []uint16
			eb, e = r.random(M*ld, 3)
			gb, g = r.random(M*ld, 1)
			H := r.out("h", int64(2*M*F))
			r.run(Swiglu("swiglu_forward", M, F), H, in(r, "e", eb), in(r, "g", gb), i32(M), i32(F), i32(ld))
			return [][]byte{get[byte](r, H, 2*M*F)}
		})
		h := make([]float64, M*F)
		for i := range h {
			x := i/F*ld + i%F
			h[i] = e[x] / (1 + math.Exp(-e[x])) * g[x]
		}
		nearBF16(t, fmt.Sprintf("%v h", c), bfFloats(out[0]), h)
	}
	for _, n := range []int{1, 132, 516, 7680, 1000003} {
		var e, g, dh []float64
		out := r.repeat(func() [][]byte {
			var eb, gb, db []uint16
			eb, e = r.random(n, 3)
			gb, g = r.random(n, 1)
			db, dh = r.random(n, 1)
			DE, DG := r.out("de", int64(2*n)), r.out("dg", int64(2*n))
			r.run(Flat("swiglu_grad", "swiglu_grad", (int64(n)+7)/8), DE, DG, in(r, "e", eb), in(r, "g", gb),
				in(r, "dh", db), int64(n))
			return [][]byte{get[byte](r, DE, 2*n), get[byte](r, DG, 2*n)}
		})
		de, dg := make([]float64, n), make([]float64, n)
		for i := range n {
			s := 1 / (1 + math.Exp(-e[i]))
			de[i], dg[i] = dh[i]*g[i]*s*(1+e[i]*(1-s)), dh[i]*e[i]*s
		}
		nearBF16(t, fmt.Sprintf("de of %d", n), bfFloats(out[0]), de)
		nearBF16(t, fmt.Sprintf("dg of %d", n), bfFloats(out[1]), dg)
	}
	for _, c := range [][2]int{{3, 172}, {5, 1536}, {7, 64}, {3, 33}, {1, 2049}} { // halves of rows
		M, F := c[0], c[1]
		var x, dh []float64
		out := r.repeat(func() [][]byte {
			var xb, db []uint16
			xb, x = r.random(2*M*F, 3)
			db, dh = r.random(M*F, 1)
			X, DX := in(r, "gate up", xb), r.out("dgate dup", int64(4*M*F))
			r.run(SwigluGradRows(M, F), DX, DX.Add(int64(2*F)), X, X.Add(int64(2*F)), in(r, "dh", db), i32(F), i32(2*F))
			return [][]byte{get[byte](r, DX, 4*M*F)}
		})
		want := make([]float64, 2*M*F)
		for i, d := range dh {
			at := i/F*2*F + i%F
			e, g := x[at], x[at+F]
			s := 1 / (1 + math.Exp(-e))
			want[at], want[at+F] = d*g*s*(1+e*(1-s)), d*e*s
		}
		nearBF16(t, fmt.Sprintf("%v gradient of halves", c), bfFloats(out[0]), want)
	}
}

func TestEmbedding(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, C := range []int{64, 2048, 33} {
		const V = 50
		ids := []int32{0, 49, 7, 7, 50, -1, 3}
		var table []float64
		out := r.repeat(func() [][]byte {
			tb, tf := r.random(V*C, 1)
			table = tf
			Y := r.out("y", int64(2*len(ids)*C))
			T, IDs, Scaled := in(r, "table", tb), in(r, "ids", ids), r.out("y times a factor", int64(2*len(ids)*C))
			r.run(Embedding(len(ids), C), Y, T, IDs, i32(V), i32(C))
			r.run(ScaledEmbedding(len(ids), C), Scaled, T, IDs, i32(V), i32(C), float32(55.5))
			return [][]byte{get[byte](r, Y, 2*len(ids)*C), get[byte](r, Scaled, 2*len(ids)*C)}
		})
		got, scaled := bfFloats(out[0]), bfFloats(out[1])
		for m, id := range ids {
			for c := range C {
				v := got[m*C+c]
				if s := scaled[m*C+c]; id >= 0 && id < V && s != round(55.5*v) || (id < 0 || id >= V) && s == s {
					t.Fatalf("id %d column %d: %v, times 55.5 %v", id, c, v, s)
				}
				if id < 0 || id >= V {
					if v == v {
						t.Fatalf("id %d gave %v, want NaN", id, v)
					}
				} else if v != table[int(id)*C+c] {
					t.Fatalf("id %d column %d: %v", id, c, v)
				}
			}
		}
	}
}

func TestCrossEntropy(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testCrossEntropy(t, 0) })
	t.Run("capped", func(t *testing.T) { testCrossEntropy(t, 6) })
}

func testCrossEntropy(t *testing.T, cap float64) {
	r := newHarness(t, 256<<20)
	for _, c := range [][3]int{{5, 512, 512}, {3, 49152, 49152}, {4, 151936, 151936}, {6, 1001, 1008}, {3, 777, 777},
		{2, 7, 7}} {
		M, V, ld := c[0], c[1], c[2]
		labels := make([]int32, M)
		for m := range labels {
			labels[m] = int32((m * 7919) % V)
		}
		labels[M-1] = -100
		labels[0] = int32(V - 1)
		const scale = 1. / 3
		var x []float64
		out := r.repeat(func() [][]byte {
			xb, xf := r.random(M*ld, 4)
			x = xf
			X, L, L2 := in(r, "logits", xb), r.out("loss", int64(4*M)), r.out("loss2", int64(4*M))
			end, more := "", []any(nil)
			if cap > 0 {
				end, more = "_capped", []any{float32(cap)}
			}
			r.run(CrossEntropy("crossentropy_loss"+end, M, V),
				append([]any{L2, X, in(r, "labels", labels), i32(V), i32(ld)}, more...)...)
			r.run(CrossEntropy("crossentropy_gradient"+end, M, V),
				append([]any{L, X, in(r, "labels", labels), in(r, "scale", []float32{scale}), gpu.Ptr(0), i32(V),
					i32(ld)}, more...)...)
			return [][]byte{get[byte](r, L, 4*M), get[byte](r, L2, 4*M), get[byte](r, X, 2*M*ld)}
		})
		loss, dx := make([]float64, M), append([]float64(nil), x...)
		for m := range M {
			row, through := slices.Clone(x[m*ld:m*ld+V]), slices.Repeat([]float64{1}, V)
			for i, v := range row {
				if cap > 0 {
					t := math.Tanh(v / cap)
					row[i], through[i] = cap*t, 1-t*t
				}
			}
			if labels[m] < 0 {
				clear(dx[m*ld : m*ld+V])
				continue
			}
			top, sum := math.Inf(-1), 0.
			for _, v := range row {
				top = max(top, v)
			}
			for _, v := range row {
				sum += math.Exp(v - top)
			}
			lse := top + math.Log(sum)
			loss[m] = lse - row[labels[m]]
			for i, v := range row {
				dx[m*ld+i] = math.Exp(v-lse) * float64(float32(scale)) * through[i]
			}
			dx[m*ld+int(labels[m])] -= float64(float32(scale)) * through[labels[m]]
		}
		nearF32(t, fmt.Sprintf("%v loss", c), f32Floats(out[0]), loss)
		nearF32(t, fmt.Sprintf("%v loss alone", c), f32Floats(out[1]), loss)
		nearBF16(t, fmt.Sprintf("%v gradient", c), bfFloats(out[2]), dx)
	}
}

func TestAdamWAndNorm(t *testing.T) {
	r := newHarness(t, 256<<20)
	for _, n := range []int{1, 33, 1000, 300007} {
		const steps, lr, b1, b2, eps, decay, limit = 3, 1e-2, 0.9, 0.95, 1e-6, 0.1, 1.0
		p, m, v := make([]float64, n), make([]float64, n), make([]float64, n)
		norms := make([]float64, steps)
		out := r.repeat(func() [][]byte {
			start, grad := make([]float32, n), make([]float32, n)
			clear(m)
			clear(v)
			for i := range start {
				start[i] = float32(r.rnd.NormFloat64())
				p[i] = float64(start[i])
			}
			P, Mm, Vv, Cc := in(r, "p", start), in(r, "m", make([]float32, n)), in(r, "v", make([]float32, n)),
				r.out("copy", int64(2*n))
			part, norm := r.out("partial", 4*NormBlocks), r.out("norm", 8)
			var got [][]byte
			for s := range steps {
				for i := range grad {
					grad[i] = float32(r.rnd.NormFloat64())
				}
				G := in(r, "g", grad)
				r.run(Norm(), part, G, int64(n))
				r.run(NormFinish(), norm, part, i32(NormBlocks), float32(limit), in(r, "loss", []float32{2}),
					gpu.Ptr(0))
				r.run(AdamW(int64(n)), P, Mm, Vv, Cc, G, in(r, "lr", []float32{lr}),
					in(r, "step", []int32{int32(s + 1)}), norm.Add(4), gpu.Ptr(0), int64(n),
					float32(b1), float32(b2), float32(eps), float32(decay))
				got = append(got, get[byte](r, norm, 4))
				ss := 0.
				for _, g := range grad {
					ss += float64(g) * float64(g)
				}
				norms[s] = math.Sqrt(ss)
				clip := min(1, limit/(norms[s]+1e-6))
				for i := range p {
					g := float64(grad[i]) * clip
					m[i] = b1*m[i] + (1-b1)*g
					v[i] = b2*v[i] + (1-b2)*g*g
					p[i] = p[i]*(1-lr*decay) - lr/(1-math.Pow(b1,
						float64(s+1)))*m[i]/(math.Sqrt(v[i])/math.Sqrt(1-math.Pow(b2, float64(s+1)))+eps)
				}
			}
			return append(got, get[byte](r, P, 4*n), get[byte](r, Mm, 4*n), get[byte](r, Vv, 4*n),
				get[byte](r, Cc, 2*n))
		})
		for s := range steps {
			nearF32(t, fmt.Sprintf("n %d step %d norm", n, s), f32Floats(out[s]), norms[s:s+1])
		}
		for i, want := range [][]float64{p, m, v} {
			nearF32(t, fmt.Sprintf("n %d output %d", n, i), f32Floats(out[steps+i]), want)
		}
		nearBF16(t, fmt.Sprintf("n %d copy", n), bfFloats(out[steps+3]), p)
	}
}

// A factor is NaN exactly where the norm or the loss is not finite; AdamW then leaves every byte as it is.
func TestNormThatIsNotFinite(t *testing.T) {
	r := newHarness(t, 1<<20)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	same := func(a, b float32) bool { return a == b || a != a && b != b }
	for _, c := range []struct {
		x                         []float32
		limit, loss, norm, factor float32
	}{
		{[]float32{3, 4}, 0, 2, 5, 1}, {[]float32{3, 4}, 10, 2, 5, 1}, {[]float32{0, 0}, 1, 0, 0, 1},
		{[]float32{nan, 1}, 1, 2, nan, nan}, {[]float32{1, inf}, 1, 2, inf, nan}, {[]float32{3, 4}, 0, nan, 5, nan},
		{[]float32{3, 4}, 10, -inf, 5, nan},
	} {
		part, norm := r.out("partial", 4*NormBlocks), r.out("norm", 8)
		x := in(r, "x", c.x)
		r.run(Norm(), part, x, int64(len(c.x)))
		r.run(NormFinish(), norm, part, i32(NormBlocks), c.limit, in(r, "loss", []float32{c.loss}), gpu.Ptr(0))
		if got := get[float32](r, norm, 2); !same(got[0], c.norm) || !same(got[1], c.factor) {
			t.Errorf("%v limit %v loss %v: norm %v factor %v, want %v and %v", c.x, c.limit, c.loss, got[0], got[1],
				c.norm, c.factor)
		}
		if c.factor == c.factor {
			continue
		}
		state := [][]float32{{1, 2}, {3, 4}, {5, 6}, {7}}
		p, m, v, copied := in(r, "p", state[0]), in(r, "m", state[1]), in(r, "v", state[2]), in(r, "copy", state[3])
		r.run(AdamW(2), p, m, v, copied, x, in(r, "lr", []float32{1}), in(r, "step", []int32{1}), norm.Add(4),
			gpu.Ptr(0), int64(2), float32(0.9), float32(0.99), float32(1e-8), float32(0.1))
		for i, at := range []gpu.Ptr{p, m, v, copied} {
			if got := get[float32](r, at, len(state[i])); !slices.Equal(got, state[i]) {
				t.Errorf("%v loss %v: AdamW left %v of %v", c.x, c.loss, got, state[i])
			}
		}
	}
}

func TestReduceAndElementwise(t *testing.T) {
	r := newHarness(t, 256<<20)
	for _, n := range []int{1, 7, 8, 1000, 100003} {
		const S = 5
		var x, y []float64
		var parts, losses []float32
		out := r.repeat(func() [][]byte {
			xb, xf := r.random(n, 1)
			yb, yf := r.random(n, 1)
			x, y = xf, yf
			parts = make([]float32, S*n)
			for i := range parts {
				parts[i] = float32(r.rnd.NormFloat64())
			}
			losses = parts[:n]
			X, Y, P := in(r, "x", xb), in(r, "y", yb), in(r, "parts", parts)
			sum, split, split16 := in(r, "sum", []float32{10}), in(r, "split", parts[:n]), in(r, "split16", yb)
			add, ax := r.out("add", int64(2*n)), in(r, "ax", yb)
			ax32 := in(r, "ax32", parts[:n])
			r.run(Sum("reduce", "reduce_sum"), sum, P, i32(n), in(r, "scale", []float32{0.5}), i32(1))
			r.run(Flat("reduce", "reduce_splits", int64(n)), split, P, i32(S), int64(n), float32(2), float32(1))
			r.run(Flat("reduce", "reduce_splits_narrow", int64(n)), split16, P, i32(S), int64(n), float32(1),
				float32(0))
			r.run(Elementwise("elementwise_add", int64(n)), add, X, Y, int64(n))
			r.run(Elementwise("elementwise_axpy", int64(n)), ax, X, float32(3), int64(n))
			r.run(Elementwise("elementwise_axpy_f32", int64(n)), ax32, P, float32(3), int64(n))
			b := func(p gpu.Ptr, size int) []byte { return get[byte](r, p, size*n) }
			return [][]byte{get[byte](r, sum, 4), b(split, 4), b(split16, 2), b(add, 2), b(ax, 2), b(ax32, 4)}
		})
		total := 0.
		want := make([][]float64, 6)
		for i := range want {
			want[i] = make([]float64, n)
		}
		for i := range n {
			total += float64(losses[i])
			for s := range S {
				want[1][i] += 2 * float64(parts[s*n+i])
				want[2][i] += float64(parts[s*n+i])
			}
			p := float64(parts[i])
			want[1][i] += p
			want[3][i], want[4][i], want[5][i] = x[i]+y[i], y[i]+3*x[i], 4*p
		}
		if g := f32Floats(out[0])[0]; math.Abs(g-(10+total/2)) > 1e-5*(1+math.Abs(total)) {
			t.Errorf("n %d sum %v, want %v", n, g, 10+total/2)
		}
		for i := 1; i < len(out); i++ {
			name := fmt.Sprintf("n %d output %d", n, i)
			if len(out[i]) == 2*n {
				nearBF16(t, name, bfFloats(out[i]), want[i])
			} else {
				nearF32(t, name, f32Floats(out[i]), want[i])
			}
		}
	}
}
