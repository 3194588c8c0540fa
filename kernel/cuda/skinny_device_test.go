//go:build gpu && linux

package cuda

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// packedWeight is a weight [N,K] in 4-bit codes, on the device and as the bf16 numbers that it stands for.
type packedWeight struct {
	args   []any // of the kernel, from the codes on
	values []float64
}

// packedWeight makes random codes and scales.
func (r *harness) packedWeight(N, K int, nested bool) packedWeight {
	n := N * K
	table, codes, values := make([]float32, 16), make([]byte, n/2), make([]float64, n)
	for i := range table {
		table[i] = float32(r.rnd.Float64()*2 - 1)
	}
	for i := range codes {
		codes[i] = byte(r.rnd.Uint32())
	}
	absmax, scale8, mapped, scale2, offset := make([]float32, n/64), make([]byte, n/64), make([]float32, 256),
		make([]float32, (n/64+255)/256), []float32{0.37}
	for i := range mapped {
		mapped[i] = float32(r.rnd.Float64()*2 - 1)
	}
	for i := range scale2 {
		scale2[i] = float32(0.1 + r.rnd.Float64())
	}
	for i := range absmax {
		scale8[i] = byte(r.rnd.Uint32())
		if absmax[i] = float32(0.1 + r.rnd.Float64()); nested {
			product := mapped[scale8[i]] * scale2[i/256] // rounded before it is added to
			absmax[i] = float32(product) + offset[0]
		}
	}
	for i := range values {
		c := codes[i/2] >> 4
		if i%2 == 1 {
			c = codes[i/2] & 15
		}
		values[i] = float64(f32(bf16(table[c] * absmax[i/64])))
	}
	w := packedWeight{[]any{in(r, "codes", codes), in(r, "table", table)}, values}
	if nested {
		w.args = append(w.args, in(r, "scale8", scale8), in(r, "map", mapped), in(r, "scale2", scale2),
			in(r, "offset", offset))
	} else {
		w.args = append(w.args, in(r, "absmax", absmax))
	}
	return w
}

// TestSkinny compares GEMMs of few rows with float64, and the first and last row's bits with those that they have
// alone.
func TestSkinny(t *testing.T) {
	r := newHarness(t, 256<<20)
	for _, kind := range []string{"skinny", "skinny_any", "skinny_nf4", "skinny_nf4_nested"} {
		for _, c := range []struct {
			M, N, K int
			f32     bool
			beta    float32
		}{{1, 16, 64, true, 0}, {1, 17, 128, false, 0}, {2, 40, 192, true, 1}, {3, 5, 1024, false, 1},
			{8, 256, 2048, false, 0}, {9, 33, 1088, true, 0.5}, {16, 48, 5632, false, 0},
			{31, 64, 320, false, 1}, {64, 100, 1152, true, 0}, {64, 1, 64, false, 0}, {5, 300, 16384, true, 0},
			{4, 24, 8, false, 0}, {7, 50, 40, true, 0}, {1, 19, 1000, false, 0}, {7, 33, 172, true, 1},
			{64, 9, 45, false, 0}, {1, 3, 1, true, 0}} {
			if kind != "skinny_any" && !FitsSkinny(c.M, c.K, kind != "skinny") {
				continue
			}
			size := 2
			if c.f32 {
				size = 4
			}
			var x, w, d0 []float64
			var alone [2][]byte
			out := r.repeat(func() [][]byte {
				xb, xf := r.random(c.M*c.K, 1)
				x = xf
				var args []any
				if kind == "skinny" || kind == "skinny_any" {
					wb, wf := r.random(c.N*c.K, 1)
					args, w = []any{in(r, "w", wb)}, wf
				} else {
					p := r.packedWeight(c.N, c.K, kind == "skinny_nf4_nested")
					args, w = p.args, p.values
				}
				db, df := r.random(c.M*c.N, 1)
				d0 = df
				X := in(r, "x", xb)
				result := func(from, rows int) []byte {
					var D gpu.Ptr
					if part := db[from*c.N:][:rows*c.N]; c.f32 {
						wide := make([]float32, len(part))
						for i := range wide {
							wide[i] = float32(df[from*c.N+i])
						}
						D = in(r, "d", wide)
					} else {
						D = in(r, "d", part)
					}
					flag := 0
					if c.f32 {
						flag = 1
					}
					all := append([]any{D, X.Add(int64(2 * from * c.K))}, args...)
					at := SkinnyAny(c.N)
					if kind != "skinny_any" {
						at = Skinny(kind, rows, c.N)
					}
					r.run(at, append(all, i32(rows), i32(c.N), i32(c.K), float32(0.5), c.beta, i32(flag))...)
					return get[byte](r, D, size*rows*c.N)
				}
				alone = [2][]byte{result(0, 1), result(c.M-1, 1)}
				return [][]byte{result(0, c.M)}
			})
			row := size * c.N
			if !bytes.Equal(out[0][:row], alone[0]) || !bytes.Equal(out[0][(c.M-1)*row:], alone[1]) {
				t.Errorf("%s %+v: a row alone has other bits than among others", kind, c)
			}
			want, plain := make([]float64, c.M*c.N), make([]float64, c.M*c.N)
			for m := range c.M {
				for n := range c.N {
					var s float64
					var p float32
					// as the tensor cores add: groups of exact products, the sum cut to fp32
					for k := 0; k < c.K; k += 8 {
						var eight float64
						for i := k; i < min(k+8, c.K); i++ {
							eight += x[m*c.K+i] * w[n*c.K+i]
						}
						s += eight
						p = cut(float64(p) + eight)
					}
					want[m*c.N+n] = 0.5*s + float64(c.beta)*d0[m*c.N+n]
					plain[m*c.N+n] = float64(0.5*p + c.beta*float32(d0[m*c.N+n]))
				}
			}
			got := bfFloats(out[0])
			if c.f32 {
				got = f32Floats(out[0])
			} else {
				for i := range plain {
					plain[i] = round(plain[i])
				}
			}
			near(t, fmt.Sprintf("%s %+v", kind, c), got, want, plain)
		}
	}
}

// TestRowFactors: NaN where the factor is zero does not pass.
func TestRowFactors(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, c := range [][2]int{{1, 8}, {5, 40}, {64, 600}} {
		M, C, A := c[0], c[1], 3
		var x []float64
		which, table := make([]int32, M), make([]float32, A*C)
		for i := range which {
			which[i] = int32(i%5) - 1
		}
		for i := range table {
			if table[i] = 0; i/8%3 == i/C {
				table[i] = float32(i/C) + 0.5
			}
		}
		out := r.repeat(func() [][]byte {
			xb, xf := r.random(M*C, 1)
			x = xf
			for m := range M {
				for k := range C {
					if a := int(which[m]); a < 0 || a >= A || table[a*C+k] == 0 {
						xb[m*C+k] = 0x7fc0
					}
				}
			}
			X := in(r, "x", xb)
			r.run(RowFactors(M, C), X, X, in(r, "which", which), in(r, "table", table), i32(A), i32(C))
			return [][]byte{get[byte](r, X, 2*M*C)}
		})
		for i, got := range bfFloats(out[0]) {
			want := 0.
			if a := int(which[i/C]); a >= 0 && a < A && table[a*C+i%C] != 0 {
				want = round(x[i] * float64(table[a*C+i%C]))
			}
			if got != want {
				t.Fatalf("%v: element %d is %v, want %v", c, i, got, want)
			}
		}
	}
}

// skinnyForms are GEMMs of few rows with a weight in bf16 and in NF4, beside a copy of the weight's bytes.
func (f *forms) skinnyForms() {
	for _, c := range [][2]int{{2048, 2048}, {256, 2048}, {5632, 2048}, {2048, 5632}, {32000, 2048}, {4096, 4096},
		{14336, 4096}, {128256, 4096}} {
		N, K := c[0], c[1]
		for _, M := range []int{1, 8, 64} {
			for _, kind := range []string{"skinny", "skinny_nf4_nested"} {
				f.reset()
				bytes := 2 * float64(N) * float64(K)
				// Weights that follow one another until the second-level cache holds none of those before.
				copies := max(1, int(128e6/bytes))
				var work []*gpu.Launch
				x, d := f.randomBF16("x", int64(M*K)), f.out("d", int64(2*M*N))
				for range copies {
					args := []any{d, x}
					if kind == "skinny" {
						args = append(args, f.randomBF16("w", int64(N*K)))
					} else {
						args = append(args, f.out("codes", int64(N*K/2)), f.floats("code", 16, 0x3f000000),
							f.out("scale8", int64(N*K/64)), f.floats("map", 256, 0x3f000000),
							f.floats("scale2", int64((N*K/64+255)/256), 0x3f000000), f.floats("offset", 1, 0))
					}
					work = append(work, f.launch(Skinny(kind, M, N),
						append(args, i32(M), i32(N), i32(K), float32(1), float32(0), i32(0))...))
				}
				if kind != "skinny" {
					bytes *= 0.26
				}
				form := timed{fmt.Sprintf("%s %d rows %dx%d", kind, M, N, K), f.time(work...) / float64(copies),
					f.bytes(2*bytes) / 2}
				f.row(form, f.copied(math.Max(bytes, 1<<20)))
			}
		}
	}
}
