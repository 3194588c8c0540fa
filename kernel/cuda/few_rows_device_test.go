//go:build gpu && linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// TestRopeAppend: the bits of rope_apply and kvappend_rows, which are compared with float64 elsewhere; rows without a
// place change nothing but their queries.
func TestRopeAppend(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, c := range []struct {
		H, K, D, R, W int
		at            []int32
	}{{32, 4, 64, 64, 256, []int32{5}}, {9, 3, 64, 64, 192, []int32{0, -1, 8, 3}},
		{4, 2, 128, 96, 256, []int32{7, 9, 1 << 30}}, {3, 1, 20, 16, 20, []int32{2, 4}},
		{3, 3, 64, 32, 192, []int32{1, 2, 3, 4, 5, 6}}, {4, 2, 8, 8, 16, []int32{8}},
		{2, 1, 64, 6, 64, []int32{-1 << 31, 0}}, {40, 8, 128, 128, 1024, []int32{4}},
		{2, 2, 80, 80, 161, []int32{3, 5}}} {
		M, P := len(c.at), 9
		pos, table := make([]int32, M), make([]float32, 100*c.R)
		for i := range pos {
			pos[i] = int32((i*37 + 5) % 100)
		}
		for p := range 100 {
			for d := range c.R / 2 {
				a := float64(p) * math.Pow(10000, -2*float64(d)/float64(c.R))
				table[p*c.R+d], table[p*c.R+c.R/2+d] = float32(math.Cos(a)), float32(math.Sin(a))
			}
		}
		one := func(fused bool) [][]byte {
			return r.repeat(func() [][]byte {
				buffer := func(name string, n int) gpu.Ptr {
					b, _ := r.random(n, 1)
					return in(r, name, b)
				}
				nq, nk, nv := M*c.H*c.D, M*c.K*c.D, M*c.W
				q, k, v := buffer("q", nq), buffer("k", nk), buffer("v", nv)
				keys, values := buffer("keys", P*c.K*c.D), buffer("values", P*c.W)
				positions, angles, at := in(r, "positions", pos), in(r, "table", table), in(r, "at", c.at)
				if fused {
					r.run(RopeAppend(M, c.H, c.K, c.D, c.R, c.W), q, k, v, keys, values, positions, angles, at,
						i32(P), i32(c.H), i32(c.K), i32(c.D), i32(c.R), i32(c.W))
				} else {
					sin := angles.Add(int64(2 * c.R))
					r.run(Rope(M, c.H, 0, c.R), q, q, positions, angles, sin, i32(M), i32(c.H), i32(0), i32(c.D),
						i32(c.R), i32(c.H*c.D), i32(c.H*c.D), i32(c.R), float32(1))
					r.run(Rope(M, c.K, 0, c.R), k, k, positions, angles, sin, i32(M), i32(c.K), i32(0), i32(c.D),
						i32(c.R), i32(c.K*c.D), i32(c.K*c.D), i32(c.R), float32(1))
					r.run(KVAppend(M, c.K*c.D), keys, k, at, i32(P), i32(c.K*c.D), i32(1))
					r.run(KVAppend(M, c.W), values, v, at, i32(P), i32(c.W), i32(1))
				}
				return [][]byte{get[byte](r, q, 2*nq), get[byte](r, keys, 2*P*c.K*c.D), get[byte](r, values, 2*P*c.W)}
			})
		}
		want, got := one(false), one(true)
		for i, what := range []string{"queries", "cache of keys", "cache of values"} {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("%+v: %s differ from rope_apply's and kvappend_rows'", c, what)
			}
		}
	}
}

// TestSkinnySeveral: the bits of one launch a weight, which TestSkinny compares with float64, and of swiglu_forward
// behind them.
func TestSkinnySeveral(t *testing.T) {
	r := newHarness(t, 256<<20)
	for _, kind := range []string{"", "_nf4", "_nf4_nested"} {
		for _, c := range []struct{ M, N0, N1, N2, K int }{{1, 2048, 256, 256, 2048}, {1, 16, 16, 0, 64},
			{2, 40, 7, 33, 192}, {8, 17, 100, 48, 1088}, {9, 5, 5, 0, 5632}, {16, 64, 24, 8, 320},
			{33, 100, 33, 1, 1152}, {64, 48, 48, 0, 2048}, {3, 50, 20, 10, 40}, {4, 33, 5, 0, 8}} {
			if !FitsSkinny(c.M, c.K, kind != "") {
				continue
			}
			x, _ := r.random(c.M*c.K, 1)
			for _, gated := range []bool{false, true} {
				widths := []int{c.N0, c.N1, c.N2}
				if c.N2 == 0 {
					widths = widths[:2]
				}
				if gated {
					widths = []int{c.N0, c.N0}
				}
				out := r.repeat(func() [][]byte {
					X := in(r, "x", x)
					var weights [][]any // of each the kernel's arguments from codes on
					for _, n := range widths {
						if kind == "" {
							b, _ := r.random(n*c.K, 1)
							weights = append(weights, []any{in(r, "w", b)})
						} else {
							weights = append(weights, r.packedWeight(n, c.K, kind == "_nf4_nested").args)
						}
					}
					for _, w := range weights[1:] { // one table of codes, one of scales
						if kind != "" {
							w[1] = weights[0][1]
						}
						if kind == "_nf4_nested" {
							w[3] = weights[0][3]
						}
					}
					var one, several []gpu.Ptr
					for i, n := range widths {
						one, several = append(one, r.out(fmt.Sprintf("d%d", i), int64(2*c.M*n))),
							append(several, r.out(fmt.Sprintf("d%d of several", i), int64(2*c.M*n)))
						r.run(Skinny("skinny"+kind, c.M, n),
							append(append([]any{one[i], X}, weights[i]...), i32(c.M), i32(n), i32(c.K), float32(1),
								float32(0), i32(0))...)
					}
					form, args := "skinny_each", []any{several[0], several[1], several[len(several)-1], X}
					if gated {
						form, args = "skinny_gated", []any{several[0], X}
						h := r.out("h", int64(2*c.M*c.N0))
						r.run(Swiglu("swiglu_forward", c.M, c.N0), h, one[0], one[1], i32(c.M), i32(c.N0), i32(c.N0))
						one, several = []gpu.Ptr{h}, several[:1]
					}
					if kind != "" {
						args = append(args, weights[0][1])
					}
					if kind == "_nf4_nested" {
						args = append(args, weights[0][3])
					}
					for i := range 3 {
						if i == 2 && gated {
							break
						}
						for j, p := range weights[min(i, len(widths)-1)] {
							if kind == "" || j != 1 && (kind != "_nf4_nested" || j != 3) {
								args = append(args, p)
							}
						}
					}
					args = append(args, i32(c.M), i32(c.N0))
					if !gated {
						args = append(args, i32(c.N1), i32(c.N2))
					}
					r.run(SkinnySeveral(form+kind, c.M, widths, gated), append(args, i32(c.K))...)
					var all [][]byte
					for i := range several {
						n := 2 * c.M * widths[i]
						all = append(all, get[byte](r, one[i], n), get[byte](r, several[i], n))
					}
					return all
				})
				for i := 0; i < len(out); i += 2 {
					if !bytes.Equal(out[i], out[i+1]) {
						t.Errorf("skinny_several%s %+v gated %v: result %d differs from that of one launch a weight",
							kind, c, gated, i/2)
					}
				}
			}
		}
	}
}

// TestBeginsEarly: a chain of kernels, each of which reads what the one before wrote, has the same bits where they
// begin early, also where one waits for two; and so has a graph that runs again before the last run has ended.
func TestBeginsEarly(t *testing.T) {
	r := newHarness(t, 256<<20)
	const C, F, layers = 2048, 5632, 12
	w := func(n int) gpu.Ptr {
		b, _ := r.random(n, 0.03)
		return in(r, "w", b)
	}
	x0, _ := r.random(C, 1)
	var runs [][]byte
	for _, most := range []int{0, 1, 64} {
		r.reset()
		x, gate, up, h, rstd, norm := in(r, "x", x0), r.out("gate", 2*F), r.out("up", 2*F), r.out("h", 2*F),
			r.out("rstd", 4), r.out("norm", 2*C)
		ones, wGate, wUp, wDown := in(r, "ones", bytesOf(C, 0x3f80)), w(F*C), w(F*C), w(C*F)
		var work [][]*gpu.Launch
		var all []*gpu.Launch
		add := func(stage bool, g Geometry, args ...any) {
			l := r.launch(g, args...)
			l.BeginsEarly()
			if all = append(all, l); stage {
				work = append(work, nil)
			}
			work[len(work)-1] = append(work[len(work)-1], l)
		}
		gemm := func(stage bool, d, x, w gpu.Ptr, n, k int) {
			add(stage, Skinny("skinny", 1, n), d, x, w, i32(1), i32(n), i32(k), float32(1), float32(0), i32(0))
		}
		for range layers {
			add(true, RMSNorm("rmsnorm_forward", 1, C), norm, rstd, x, gpu.Ptr(0), ones, i32(C), float32(1e-5))
			gemm(true, gate, norm, wGate, F, C)
			gemm(false, up, norm, wUp, F, C)
			add(true, Swiglu("swiglu_forward", 1, F), h, gate, up, i32(1), i32(F), i32(F))
			gemm(true, x, h, wDown, C, F)
		}
		g, err := gpu.CaptureEarly(r.s, most, func() error {
			var before []gpu.Nodes
			for _, stage := range work {
				var after []gpu.Nodes
				for _, l := range stage {
					err := errors.Join(r.s.DependOn(before...), l.Run(r.s))
					n, err2 := r.s.CapturedNodes()
					if err := errors.Join(err, err2); err != nil {
						return err
					}
					after = append(after, n)
				}
				before = after
			}
			return r.s.DependOn(before...)
		})
		if err != nil {
			t.Errorf("at most %d: %v", most, err)
			continue
		}
		for range 20 {
			r.ok(g.Replay(r.s))
		}
		runs = append(runs, get[byte](r, x, 2*C))
		if !bytes.Equal(runs[0], runs[len(runs)-1]) {
			t.Errorf("at most %d: the bits differ from those without", most)
		}
		t.Logf("at most %d: %d dependencies do not wait for an end", most, g.Early())
		if (most > 0) != (g.Early() > 0) {
			t.Errorf("at most %d: %d dependencies do not wait for an end", most, g.Early())
		}
		r.checkGuards()
		r.ok(g.Close())
		for _, l := range all {
			l.Free()
		}
	}
}

// bytesOf returns n words of one value.
func bytesOf(n int, word uint16) []uint16 {
	b := make([]uint16, n)
	for i := range b {
		b[i] = word
	}
	return b
}

// TestLikeliestRows: of equals the first; the first number that is none.
func TestLikeliestRows(t *testing.T) {
	r := newHarness(t, 256<<20)
	for _, c := range [][2]int{{1, 32000}, {64, 33}, {5, 128256}, {3, 1}, {8, 4099}} {
		M, N := c[0], c[1]
		var x []float32
		out := r.repeat(func() [][]byte {
			x = make([]float32, M*N)
			for i := range x {
				x[i] = float32(r.rnd.IntN(4000)) - 3000 // many equals
			}
			for m := 1; m < M; m += 2 {
				x[m*N+r.rnd.IntN(N)] = []float32{float32(math.NaN()), float32(math.Inf(1)),
					float32(math.Inf(-1))}[m/2%3]
			}
			place := r.out("place", int64(4*M))
			r.run(Likeliest(M), place, in(r, "x", x), i32(N))
			return [][]byte{get[byte](r, place, 4*M)}
		})
		for m := range M {
			want, row := 0, x[m*N:][:N]
			for i, v := range row {
				if v-v != 0 {
					want = -1 - i
					break
				}
				if v > row[want] {
					want = i
				}
			}
			if got := int(int32(binary.LittleEndian.Uint32(out[0][4*m:]))); got != want {
				t.Errorf("%v: row %d: %d, want %d", c, m, got, want)
			}
		}
	}
}
