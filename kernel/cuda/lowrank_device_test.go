//go:build gpu && linux

package cuda

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// four pads addresses to the number the kernels take.
func four(p ...gpu.Ptr) []any {
	args := make([]any, 4)
	for i := range args {
		args[i] = gpu.Ptr(0)
		if i < len(p) {
			args[i] = p[i]
		}
	}
	return args
}

func (r *harness) down(l LowRank, layout GemmLayout, t []gpu.Ptr, x gpu.Ptr, a []gpu.Ptr, alpha float32) *gpu.Launch {
	return r.launch(l.Down(layout), slices.Concat(four(t...), []any{x}, four(a...),
		[]any{i32(l.Count), i32(l.M), i32(l.C), i32(l.R), alpha})...)
}

func (r *harness) up(l LowRank, layout GemmLayout, y gpu.Ptr, t, b []gpu.Ptr, alpha, beta float32) *gpu.Launch {
	g, tiles := l.Up(layout)
	return r.launch(g, slices.Concat([]any{y}, four(t...), four(b...),
		[]any{i32(l.M), i32(l.C), i32(l.R), i32(tiles), alpha, beta})...)
}

func (r *harness) grad(l LowRank, flip bool, out []gpu.Ptr, v gpu.Ptr, u []gpu.Ptr, alpha, beta float32) *gpu.Launch {
	g, scratch := l.Grad()
	f := 0
	if flip {
		f = 1
	}
	return r.launch(g, slices.Concat(four(out...), []any{v}, four(u...),
		[]any{i32(l.Count), i32(l.M), i32(l.C), i32(l.R), i32(f), alpha, beta,
			r.out("shares", scratch+256), r.counters()})...)
}

func (r *harness) counters() gpu.Ptr { return in(r, "counters", make([]uint32, LowRankCounters)) }

// sums returns the GEMM of [M,K] and [K,N], given element by element, in float64 and as the tensor cores add.
func sums(M, N, K int, a func(m, k int) float64, b func(k, n int) float64) (want, plain []float64) {
	want, plain = make([]float64, M*N), make([]float64, M*N)
	for m := range M {
		for n := range N {
			var s, eight float64
			var p float32
			for k := range K {
				x := a(m, k) * b(k, n)
				s += x
				if eight += x; k%8 == 7 || k == K-1 {
					p, eight = cut(float64(p)+eight), 0
				}
			}
			want[m*N+n], plain[m*N+n] = s, float64(p)
		}
	}
	return want, plain
}

// lowRankCase is a launch's operands: wide [M,C], narrow of each GEMM [M,R], and its matrix [R,C] or [C,R].
type lowRankCase struct {
	LowRank
	wide        gpu.Ptr
	narrow, mat []gpu.Ptr
	w           []float64
	t, a        [][]float64
}

func (r *harness) lowRankCase(l LowRank) (c lowRankCase) {
	c.LowRank = l
	wb, w := r.random(l.M*l.C, 1)
	c.wide, c.w = in(r, "wide", wb), w
	for range l.Count {
		tb, t := r.random(l.M*l.R, 1)
		ab, a := r.random(l.R*l.C, 1)
		c.narrow, c.mat = append(c.narrow, in(r, "narrow", tb)), append(c.mat, in(r, "matrix", ab))
		c.t, c.a = append(c.t, t), append(c.a, a)
	}
	return c
}

// outs returns n buffers that hold v, or are poisoned where it is nil.
func (r *harness) outs(n int, size int64, v []float64) (p []gpu.Ptr) {
	for range n {
		if v == nil {
			p = append(p, r.out("out", size))
			continue
		}
		f := make([]float32, len(v))
		for i := range v {
			f[i] = float32(v[i])
		}
		p = append(p, in(r, "out", f))
	}
	return p
}

func (r *harness) queue(l *gpu.Launch) {
	r.t.Helper()
	defer l.Free()
	r.ok(l.Run(r.s))
	r.ok(r.s.Synchronize())
}

func TestLowRank(t *testing.T) {
	r := newHarness(t, 256<<20)
	const alpha = 0.5
	reached := map[string]bool{}
	for _, l := range []LowRank{{3, 60, 72, 16}, {1, 1, 8, 8}, {1, 33, 40, 8}, {2, 33, 40, 8}, {3, 100, 72, 8},
		{4, 65, 168, 8}, {1, 512, 576, 8}, {1, 257, 264, 16}, {2, 512, 96, 16}, {3, 300, 200, 16},
		{1, 77, 320, 24}, {1, 200, 512, 32}, {1, 129, 136, 48}, {1, 2500, 328, 8}, {1, 2500, 264, 16},
		{2, 2200, 136, 16}, {3, 2600, 200, 16},
		{1, 2500, 72, 32}, {1, 2300, 104, 48}, {1, 2500, 1000, 16}} {
		if !l.Fits() {
			t.Fatalf("%+v does not fit", l)
		}
		M, C, R := l.M, l.C, l.R
		for _, layout := range []GemmLayout{NT, NN} {
			at := func(a []float64, k, c int) float64 { // the matrix of GEMM i: [R,C], or [C,R]
				if layout == NN {
					return a[c*R+k]
				}
				return a[k*C+c]
			}
			if layout == NT || l.Count == 1 {
				var c lowRankCase
				out := r.repeat(func() (got [][]byte) {
					c = r.lowRankCase(l)
					to := r.outs(l.Count, int64(2*M*R), nil)
					r.queue(r.down(l, layout, to, c.wide, c.mat, alpha))
					for _, p := range to {
						got = append(got, get[byte](r, p, 2*M*R))
					}
					return got
				})
				for i := range out {
					want, _ := sums(M, R, C, func(m, k int) float64 { return alpha * c.w[m*C+k] },
						func(k, n int) float64 { return at(c.a[i], n, k) })
					nearBF16(t, fmt.Sprintf("%s %+v, GEMM %d", l.Down(layout).Entry, l, i), bfFloats(out[i]), want)
				}
				reached[l.Down(layout).Entry] = true
			}
			g, _ := l.Up(layout)
			reached[g.Entry] = true
			for _, beta := range []float32{0, 1} {
				if layout == NT && l.Count > 1 {
					continue
				}
				var c lowRankCase
				out := r.repeat(func() [][]byte {
					c = r.lowRankCase(l)
					y := c.wide
					if beta == 0 {
						y = r.out("y", int64(2*M*C))
					}
					r.queue(r.up(l, layout, y, c.narrow, c.mat, alpha, beta))
					return [][]byte{get[byte](r, y, 2*M*C)}
				})
				want := make([]float64, M*C)
				for i := range l.Count {
					s, _ := sums(M, C, R, func(m, k int) float64 { return alpha * c.t[i][m*R+k] },
						func(k, n int) float64 {
							if layout == NT {
								return c.a[i][n*R+k]
							}
							return c.a[i][k*C+n]
						})
					for j := range want {
						want[j] += s[j]
					}
				}
				if beta != 0 {
					for j := range want {
						want[j] += c.w[j]
					}
				}
				nearBF16(t, fmt.Sprintf("%s %+v onto %g", g.Entry, l, beta), bfFloats(out[0]), want)
			}
		}
		for _, flip := range []bool{false, true} {
			g, _ := l.Grad()
			reached[g.Entry] = true
			for _, beta := range []float32{0, 1} {
				var c lowRankCase
				out := r.repeat(func() (got [][]byte) {
					c = r.lowRankCase(l)
					var before []float64
					if beta != 0 {
						before = c.a[0]
					}
					to := r.outs(l.Count, int64(4*R*C), before)
					for again := range 2 { // the second finds the counters as the first leaves them
						if again == 0 && beta != 0 {
							continue
						}
						r.queue(r.grad(l, flip, to, c.wide, c.narrow, alpha, beta))
					}
					for _, p := range to {
						got = append(got, get[byte](r, p, 4*R*C))
					}
					return got
				})
				for i := range out {
					n, k := C, R
					a, b := func(n, m int) float64 { return alpha * c.t[i][m*R+n] },
						func(m, n int) float64 { return c.w[m*C+n] }
					if flip {
						n, k = R, C
						a, b = func(n, m int) float64 { return alpha * c.w[m*C+n] },
							func(m, n int) float64 { return c.t[i][m*R+n] }
					}
					want, plain := sums(k, n, M, a, b)
					if beta != 0 {
						for j := range want {
							want[j] += c.a[0][j]
							plain[j] = float64(float32(plain[j]) + float32(c.a[0][j]))
						}
					}
					near(t, fmt.Sprintf("%s %+v, GEMM %d, flip %v onto %g", g.Entry, l, i, flip, beta),
						f32Floats(out[i]), want, plain)
				}
			}
		}
	}
	for _, e := range entries(t, "lowrank") {
		if !reached[e] {
			t.Errorf("no case runs %s", e)
		}
	}
}

// Two GEMMs in turn share the counters.
func TestLowRankCountersAreLeftZero(t *testing.T) {
	r := newHarness(t, 64<<20)
	l := LowRank{1, 2500, 1000, 16}
	c := r.lowRankCase(l)
	counters, g, scratch := r.counters(), Geometry{}, int64(0)
	g, scratch = l.Grad()
	if g.Grid[1] < 2 {
		t.Fatalf("%+v has no shares", g)
	}
	var first []byte
	for i := range 3 {
		to := r.out("out", int64(4*l.R*l.C))
		r.run(g, slices.Concat(four(to), []any{c.wide}, four(c.narrow...),
			[]any{i32(1), i32(l.M), i32(l.C), i32(l.R), i32(0), float32(1), float32(0), r.out("shares", scratch),
				counters})...)
		got := get[byte](r, to, 4*l.R*l.C)
		if i == 0 {
			first = got
		} else if !slices.Equal(first, got) {
			t.Errorf("run %d differs", i)
		}
	}
	for i, n := range get[uint32](r, counters, LowRankCounters) {
		if n != 0 {
			t.Errorf("counter %d is left at %d", i, n)
		}
	}
}
