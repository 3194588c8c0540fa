//go:build gpu && linux

package cuda

import (
	"bytes"
	"fmt"
	"math"
	"sort"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
	"github.com/tierlora/tierlora/model/weights"
)

// TestExperts routes, sorts and multiplies between guards, twice, over every tile of the experts' GEMMs, and compares
// with float64. Half of the cases have padding among the tokens, or nothing else.
func TestExperts(t *testing.T) {
	r := newHarness(t, 512<<20)
	sizes := []struct{ M, E, K, C, N int }{{1, 1, 1, 64, 64}, {7, 4, 2, 40, 33}, {300, 3, 2, 64, 192},
		{700, 2, 2, 128, 200}, {700, 2, 1, 256, 16}, {64, 128, 8, 16, 72}, {40, 1000, 40, 24, 8}, {500, 3, 2, 328, 24},
		{90, 3, 2, 521, 9}}
	for i := range 2 * len(sizes) {
		s, padded := sizes[i/2], i%2 == 1
		name := fmt.Sprintf("%+v, padding %v", s, padded)
		S, isReal := s.M*s.K, make([]int32, s.M)
		for m := range isReal {
			if !padded || s.M > 1 && (m < s.M/5 || m%7 > 1) && m < s.M-s.M/4 {
				isReal[m] = 1
			}
		}
		var logits, x, w []float64
		out := r.repeat(func() [][]byte {
			var l, xs, ws []uint16
			l, logits = r.random(s.M*s.E, 2)
			xs, x = r.random(s.M*s.C, 1)
			ws, w = r.random(s.E*s.C*s.N, 1)
			L, X, W := in(r, "logits", l), in(r, "x", xs), in(r, "w", ws)
			weights, experts := r.out("weights", int64(4*S)), r.out("experts", int64(4*S))
			r.run(MoERoute(s.M, s.E), weights, experts, L, int32(s.M), int32(s.E), int32(s.K), int32(1))
			pieces := MoEPieces(S)
			counts, starts := r.out("counts", int64(4*pieces*s.E)), r.out("starts", int64(4*(s.E+1)))
			rows, source := r.out("rows", int64(4*S)), r.out("source", int64(4*S))
			real := gpu.Ptr(0)
			if padded {
				real = in(r, "real", isReal)
			}
			r.run(MoECount(S, s.E), counts, experts, real, int32(S), int32(s.E), int32(s.K))
			r.run(MoEOffsets(), starts, counts, int32(pieces), int32(s.E))
			r.run(MoEPlace(S, s.E), rows, source, experts, real, counts, starts, int32(S), int32(s.E), int32(s.K))
			each, y, back := r.out("gathered", int64(2*S*s.C)), r.out("y", int64(2*S*s.N)),
				r.out("back", int64(2*S*s.C))
			r.run(MoERows("moe_gather", S, s.C), each, X, source, int32(S), int32(s.C), int32(s.K))
			r.run(ExpertGemm(false, S, s.N, s.E), y, each, W, starts, int32(S), int32(s.E), int32(s.N), int32(s.C),
				float32(0.5), float32(0))
			r.run(ExpertGemm(true, S, s.C, s.E), back, y, W, starts, int32(S), int32(s.E), int32(s.C), int32(s.N),
				float32(1), float32(0))
			// to zero
			r.run(ExpertGemm(true, S, s.C, s.E), back, y, W, starts, int32(S), int32(s.E), int32(s.C), int32(s.N),
				float32(-1), float32(1))
			dw := in(r, "dw", make([]float32, s.E*s.C*s.N))
			r.run(ExpertWeight(s.C, s.N, s.E), dw, each, y, starts, int32(s.C), int32(s.N), float32(1), float32(1))
			whole, gathered := in(r, "gradient of gathered rows", make([]float32, s.E*s.C*s.N)),
				in(r, "the same, read from the tokens", make([]float32, s.E*s.C*s.N))
			r.run(ExpertWeight(s.N, s.C, s.E), whole, y, each, starts, int32(s.N), int32(s.C), float32(0.5), float32(1))
			r.run(ExpertWeightGathered(s.N, s.C, s.E, false), gathered, y, X, source, starts, int32(s.N), int32(s.C),
				int32(s.K), int32(s.M), float32(0.5), float32(1))
			sum := r.out("sum", int64(2*s.M*s.N))
			r.run(MoERows("moe_sum", s.M, s.N), sum, y, rows, int32(s.M), int32(s.N), int32(s.K))
			var all [][]byte
			for _, b := range []struct {
				p gpu.Ptr
				n int
			}{{experts, 4 * S}, {rows, 4 * S}, {source, 4 * S}, {starts, 4 * (s.E + 1)}, {y, 2 * S * s.N},
				{back, 2 * S * s.C}, {dw, 4 * s.E * s.C * s.N}, {sum, 2 * s.M * s.N}, {whole, 4 * s.E * s.C * s.N},
				{gathered, 4 * s.E * s.C * s.N}} {
				all = append(all, get[byte](r, b.p, b.n))
			}
			return all
		})
		ints := func(i int) []int32 {
			v := make([]int32, len(out[i])/4)
			for j := range v {
				v[j] = int32(words(out[i], 2*j)) | int32(words(out[i], 2*j+1))<<16
			}
			return v
		}
		if !bytes.Equal(out[8], out[9]) {
			t.Errorf("%s: the gradient differs where rows are read from the tokens", name)
		}
		experts, rows, source, starts := ints(0), ints(1), ints(2), ints(3)
		var order []int
		for m := range s.M {
			best := make([]int, s.E)
			for e := range best {
				best[e] = e
			}
			sort.SliceStable(best, func(a, b int) bool { return logits[m*s.E+best[a]] > logits[m*s.E+best[b]] })
			for k := range s.K {
				if isReal[m] != 0 {
					order = append(order, m*s.K+k)
				} else if rows[m*s.K+k] != -1 {
					t.Fatalf("%s: slot %d of padding is in row %d", name, m*s.K+k, rows[m*s.K+k])
				}
				if int(experts[m*s.K+k]) != best[k] {
					t.Fatalf("%s: token %d goes to %v, want %v", name, m, experts[m*s.K:][:s.K], best[:s.K])
				}
			}
		}
		sort.SliceStable(order, func(a, b int) bool { return experts[order[a]] < experts[order[b]] })
		if int(starts[s.E]) != len(order) {
			t.Fatalf("%s: the experts' rows end at %d, want %d", name, starts[s.E], len(order))
		}
		for at := len(order); at < S; at++ {
			if source[at] != -1 {
				t.Fatalf("%s: row %d of no expert is from slot %d", name, at, source[at])
			}
		}
		y, dw, sum := make([]float64, S*s.N), make([]float64, s.E*s.C*s.N), make([]float64, s.M*s.N)
		got := bfFloats(out[4]) // what follows reads it as it was rounded
		for at, slot := range order {
			e, m := int(experts[slot]), slot/s.K
			if int(source[at]) != slot || int(rows[slot]) != at || at < int(starts[e]) || at >= int(starts[e+1]) {
				t.Fatalf("%s: sorted row %d is slot %d, want %d of expert %d with rows %d to %d", name, at, source[at],
					slot, e, starts[e], starts[e+1])
			}
			for n := range s.N {
				for c := range s.C {
					y[at*s.N+n] += 0.5 * x[m*s.C+c] * w[(e*s.C+c)*s.N+n]
					dw[(e*s.C+c)*s.N+n] += x[m*s.C+c] * got[at*s.N+n]
				}
			}
		}
		for _, slot := range order {
			for n := range s.N {
				sum[slot/s.K*s.N+n] += got[int(rows[slot])*s.N+n]
			}
		}
		nearBF16(t, name+" y", got, y)
		for i, v := range got[len(order)*s.N:] {
			if v != 0 {
				t.Fatalf("%s: element %d of the rows of no expert is %v", name, i, v)
			}
		}
		nearBF16(t, name+" sum", bfFloats(out[7]), sum)
		var d, turned, size float64
		whole := f32Floats(out[8]) // half of dw, each expert's transposed
		for i, g := range f32Floats(out[6]) {
			e, c, n := i/(s.C*s.N), i/s.N%s.C, i%s.N
			h := 2*whole[(e*s.N+n)*s.C+c] - dw[i]
			d, turned, size = d+(g-dw[i])*(g-dw[i]), turned+h*h, size+dw[i]*dw[i]
		}
		if !(math.Sqrt(max(d, turned)) <= 1e-5*math.Sqrt(size)) {
			t.Errorf("%s: the gradient is off by %.3g, and the transposed product by %.3g, of %.3g", name, math.Sqrt(d),
				math.Sqrt(turned), math.Sqrt(size))
		}
		for at, slot := range order { // a product less what it was rounded to
			e := int(experts[slot])
			for c := range s.C {
				sum := 0.0
				for n := range s.N {
					sum += got[at*s.N+n] * w[(e*s.C+c)*s.N+n]
				}
				if b := bfFloats(out[5][2*(at*s.C+c):][:2])[0]; !(math.Abs(b) <= math.Abs(sum)/256+1e-3) {
					t.Fatalf("%s: element %d of row %d of a product, %v, less itself is %v", name, c, at, sum, b)
				}
			}
		}
	}
}

// expertRows is a case of a GEMM over experts' rows: each expert's, and columns and depth of the result.
// TestMoERouteChoice chooses among ties, zeros of both signs, infinities and numbers that are none.
func TestMoERouteChoice(t *testing.T) {
	r := newHarness(t, 64<<20)
	special := []uint16{0x7fc0, 0xffc1, 0x7f80, 0xff80, 0x0000, 0x8000, 0x3f80, 0x3f80, 0xbf80, 0x3f81}
	for _, E := range []int{1, 4, 31, 33, 130, 1024} {
		const M = 19
		K := min(E, 64)
		logits := make([]uint16, M*E)
		out := r.repeat(func() [][]byte {
			for i := range logits {
				logits[i] = special[r.rnd.IntN(len(special))]
			}
			weights, experts := r.out("weights", 4*int64(M*K)), r.out("experts", 4*int64(M*K))
			r.run(MoERoute(M, E), weights, experts, in(r, "logits", logits), int32(M), int32(E), int32(K), int32(1))
			return [][]byte{get[byte](r, experts, 4*M*K)}
		})
		for m := range M {
			row, order := logits[m*E:][:E], make([]int, E)
			value := func(i int) float64 { return bfFloats([]byte{byte(row[i]), byte(row[i] >> 8)})[0] }
			for e := range order {
				order[e] = e
			}
			sort.SliceStable(order, func(a, b int) bool {
				x, y := value(order[a]), value(order[b])
				return x > y || y != y && x == x
			})
			for k, want := range order[:K] {
				at := 2 * (m*K + k)
				if got := int(words(out[0], at)) | int(words(out[0], at+1))<<16; got != want {
					t.Fatalf("row %d of %d logits: choice %d is %d, want %d", m, E, k, got, want)
				}
			}
		}
	}
}

type expertRows struct {
	rows []int
	N, K int
}

// noExperts are how many rows lie behind those of the experts.
var noExperts = []int{0, 3, 300}

// multiplied runs a kernel over rows of experts that have none, one, a tile, and several, and of no expert behind them,
// between guards, and compares with float64. kernel says how it is launched, and what it takes for x and w.
func multiplied(r *harness, cases []expertRows, kernel func(transB bool, S, N, K, E int, x, w gpu.Ptr) (g Geometry,
	argX, argW any)) {
	t := r.t
	t.Helper()
	for i := range len(noExperts) * len(cases) {
		c, behind := cases[i/len(noExperts)], noExperts[i%len(noExperts)]
		S, E := 0, len(c.rows)
		starts := []int32{0}
		for _, n := range c.rows {
			S += n
			starts = append(starts, int32(S))
		}
		S += behind
		for _, transB := range []bool{false, true} {
			for _, beta := range []float32{0, 0.5} {
				var x, w, y0 []float64
				out := r.repeat(func() [][]byte {
					var xs, ws, ys []uint16
					xs, x = r.random(S*c.K, 1)
					ws, w = r.random(E*c.N*c.K, 1)
					ys, y0 = r.random(S*c.N, 1)
					X, W, Y := in(r, "x", xs), in(r, "w", ws), in(r, "y", ys)
					g, x, w := kernel(transB, S, c.N, c.K, E, X, W)
					r.run(g, Y, x, w, in(r, "starts", starts), i32(S), i32(E), i32(c.N), i32(c.K), float32(0.25), beta)
					return [][]byte{get[byte](r, Y, 2*S*c.N)}
				})
				y := make([]float64, S*c.N)
				for e := range E {
					for m := int(starts[e]); m < int(starts[e+1]); m++ {
						for n := range c.N {
							sum := 0.0
							for k := range c.K {
								at := k*c.N + n
								if transB {
									at = n*c.K + k
								}
								sum += x[m*c.K+k] * w[e*c.N*c.K+at]
							}
							y[m*c.N+n] = 0.25*sum + float64(beta)*y0[m*c.N+n]
						}
					}
				}
				name := fmt.Sprintf("rows %v and %d, %d columns of %d, transposed %t, beta %v", c.rows, behind, c.N,
					c.K, transB, beta)
				got := bfFloats(out[0])
				stays(t, name, got[(S-behind)*c.N:], y0[(S-behind)*c.N:], beta)
				nearBF16(t, name, got[:(S-behind)*c.N], y[:(S-behind)*c.N])
			}
		}
	}
}

// stays demands that rows of no expert are zero, or, where a product would be added to them, as they were.
func stays(t testing.TB, name string, got, was []float64, beta float32) {
	t.Helper()
	for i, v := range got {
		want := was[i]
		if beta == 0 {
			want = 0
		}
		if v != want {
			t.Fatalf("%s: element %d of the rows of no expert is %v, want %v", name, i, v, want)
		}
	}
}

// TestExpertThin multiplies to few columns over a depth of several stages, whole and cut.
func TestExpertThin(t *testing.T) {
	multiplied(newHarness(t, 256<<20), []expertRows{{[]int{200}, 16, 640}, {[]int{0, 64, 1, 300, 0}, 32, 136},
		{[]int{5, 129, 65}, 9, 263}, {[]int{70, 0, 31}, 24, 1000}, {[]int{0, 64, 1, 300, 0}, 64, 520},
		{[]int{5, 129, 65}, 41, 263}},
		func(transB bool, S, N, K, E int, x, w gpu.Ptr) (Geometry, any, any) {
			return ExpertGemm(transB, S, N, E), x, w
		})
}

// TestExpertUp multiplies by a small depth.
func TestExpertUp(t *testing.T) {
	multiplied(newHarness(t, 256<<20), []expertRows{{[]int{200}, 256, 64}, {[]int{0, 128, 1, 300, 0}, 192, 16},
		{[]int{5, 129, 64}, 136, 40}, {[]int{140, 0, 255}, 768, 8}, {[]int{100, 37, 400}, 264, 48},
		{[]int{64, 17, 0, 49}, 1032, 24}},
		func(transB bool, S, N, K, E int, x, w gpu.Ptr) (Geometry, any, any) {
			return ExpertUp(transB, S, N, K, E), x, w
		})
}

// TestExpertsMXFP4 dequantises every code with every scale between guards, in all types, and compares with the numbers
// rounded once.
func TestExpertsMXFP4(t *testing.T) {
	const scales, n = 253, 32 * 253
	var codes, powers []byte
	numbers := make([]float32, 0, n)
	for b := range scales {
		powers = append(powers, byte(b))
		for i := range 16 {
			codes = append(codes, byte(i|(15-i+b)%16<<4))
			for _, code := range []int{i, (15 - i + b) % 16} {
				v := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code&7]
				if code > 7 {
					v = math.Copysign(v, -1)
				}
				numbers = append(numbers, float32(math.Ldexp(v, b-127)))
			}
		}
	}
	for elem, d := range map[string]weights.DType{"bf16": weights.BF16, "f16": weights.F16, "f32": weights.F32} {
		t.Run(elem, func(t *testing.T) {
			want, err := weights.FromFloat32s("w", d, []int{n}, numbers)
			if err != nil {
				t.Fatal(err)
			}
			r := newHarness(t, 1<<20)
			r.elem = elem
			out := r.repeat(func() [][]byte {
				w := r.out("w", int64(len(want.Data)))
				r.run(ExpertMXFP4(n), w, in(r, "codes", codes), in(r, "scales", powers), int64(n))
				return [][]byte{get[byte](r, w, len(want.Data))}
			})
			size := len(want.Data) / n
			for i, x := range numbers {
				if got := out[0][i*size:][:size]; !bytes.Equal(got, want.Data[i*size:][:size]) {
					t.Fatalf("value %d is % x, want % x of %g", i, got, want.Data[i*size:][:size], x)
				}
			}
		})
	}
}
