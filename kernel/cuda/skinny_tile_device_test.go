//go:build gpu && linux

package cuda

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// tileCase is a launch of skinny_tile_*.
type tileCase struct {
	M     int
	N     []int
	K     int
	gated bool
	f32   bool
	beta  float32
}

// tileArgs returns the arguments of skinny_tile_* for results d, rows x and the weights' arguments from codes on.
func (c tileCase) tileArgs(store string, d []gpu.Ptr, x gpu.Ptr, weights [][]any) []any {
	flag := map[bool]int{true: 1}
	var args, sizes []any
	for i := range 3 {
		args = append(args, d[min(i, len(d)-1)])
		n := 0
		if i < len(c.N) {
			n = c.N[i]
		}
		sizes = append(sizes, i32(n))
	}
	args = append(args, x)
	if store != "" {
		args = append(args, weights[0][1])
	}
	if store == "_nf4_nested" {
		args = append(args, weights[0][3])
	}
	for i := range 3 {
		for j, p := range weights[min(i, len(weights)-1)] {
			if store == "" || j != 1 && (store != "_nf4_nested" || j != 3) {
				args = append(args, p)
			}
		}
	}
	args = append(append(append(args, i32(c.M)), sizes...), i32(c.K), float32(0.5), c.beta)
	if c.gated {
		args[len(args)-2] = float32(1)
	}
	return append(args, i32(flag[c.f32]), i32(flag[c.gated]))
}

// TestSkinnyTile: the bits of skinny_*, which TestSkinny compares with float64, and of swiglu_forward behind them, for
// tiles of every size, with and without clusters.
func TestSkinnyTile(t *testing.T) {
	r := newHarness(t, 512<<20)
	sms := []int{80, 89}
	if r.d.SM() >= 90 {
		sms = append(sms, 90)
	}
	ran := map[string]bool{}
	for _, store := range []string{"", "_nf4", "_nf4_nested"} {
		for _, c := range []tileCase{{M: 17, N: []int{2048, 256, 256}, K: 2048},
			{M: 32, N: []int{16}, K: 64, f32: true},
			{M: 33, N: []int{40, 7, 33}, K: 192}, {M: 64, N: []int{100}, K: 1088, beta: 1},
			{M: 64, N: []int{2048}, K: 5632, beta: 1}, {M: 65, N: []int{65, 64}, K: 320},
			{M: 100, N: []int{300}, K: 16384, f32: true, beta: 0.5}, {M: 128, N: []int{129, 1, 70}, K: 2112},
			{M: 200, N: []int{33}, K: 4096}, {M: 256, N: []int{7000}, K: 1152, f32: true},
			{M: 256, N: []int{256}, K: 128},
			{M: 48, N: []int{50, 50}, K: 2048, gated: true}, {M: 20, N: []int{31, 31}, K: 192, gated: true},
			{M: 130, N: []int{5632, 5632}, K: 640, gated: true}, {M: 64, N: []int{48, 48}, K: 5632, gated: true},
			{M: 31, N: []int{24}, K: 8}, {M: 70, N: []int{50}, K: 40}, {M: 40, N: []int{19}, K: 1000}} {
			if !FitsSkinny(c.M, c.K, store != "") {
				continue
			}
			size := 2
			if c.f32 {
				size = 4
			}
			for _, sm := range sms {
				at := SkinnyTile(store, c.M, c.N, c.gated, sm)
				if at.Shared+2048 > r.d.SharedPerBlock {
					continue
				}
				ran[at.Entry] = true
				x, _ := r.random(c.M*c.K, 1)
				out := r.repeat(func() [][]byte {
					X := in(r, "x", x)
					var weights [][]any
					for _, n := range c.N {
						if store == "" {
							b, _ := r.random(n*c.K, 0.05)
							weights = append(weights, []any{in(r, "w", b)})
						} else {
							weights = append(weights, r.packedWeight(n, c.K, store == "_nf4_nested").args)
						}
					}
					for _, w := range weights[1:] { // one table of codes, one of scales
						if store != "" {
							w[1] = weights[0][1]
						}
						if store == "_nf4_nested" {
							w[3] = weights[0][3]
						}
					}
					alpha, flag := float32(0.5), 0
					if c.gated {
						alpha = 1
					}
					if c.f32 {
						flag = 1
					}
					var one, tiled []gpu.Ptr
					for i, n := range c.N {
						before := make([]uint16, c.M*n*size/2)
						if c.beta != 0 {
							before, _ = r.random(len(before), 1)
						}
						one = append(one, in(r, fmt.Sprintf("d%d", i), before))
						tiled = append(tiled, in(r, fmt.Sprintf("d%d of tiles", i), before))
						r.run(Skinny("skinny"+store, c.M, n), append(append([]any{one[i], X}, weights[i]...), i32(c.M),
							i32(n), i32(c.K), alpha, c.beta, i32(flag))...)
					}
					if c.gated {
						h := r.out("h", int64(2*c.M*c.N[0]))
						r.run(Swiglu("swiglu_forward", c.M, c.N[0]), h, one[0], one[1], i32(c.M), i32(c.N[0]),
							i32(c.N[0]))
						one, tiled = []gpu.Ptr{h}, tiled[:1]
					}
					r.run(at, c.tileArgs(store, tiled, X, weights)...)
					var all [][]byte
					for i := range tiled {
						n := size * c.M * c.N[i]
						all = append(all, get[byte](r, one[i], n), get[byte](r, tiled[i], n))
					}
					return all
				})
				for i := 0; i < len(out); i += 2 {
					if !bytes.Equal(out[i], out[i+1]) {
						t.Errorf("%s %+v: result %d differs from that of skinny.cu: %s", at.Entry, c, i/2,
							firstDifference(out[i], out[i+1], size, c.N[i/2]))
					}
				}
			}
		}
	}
	t.Logf("%d kernels ran", len(ran))
	if want := 9; len(ran) < want {
		t.Errorf("only %d kernels ran, want at least %d: %v", len(ran), want, ran)
	}
}

// firstDifference says where two matrices of N columns differ first, and in how many numbers.
func firstDifference(a, b []byte, size, N int) string {
	first, count := -1, 0
	for i := 0; i < len(a); i += size {
		if !bytes.Equal(a[i:i+size], b[i:i+size]) {
			if count++; first < 0 {
				first = i / size
			}
		}
	}
	return fmt.Sprintf("%d of %d numbers, the first in row %d, column %d: %x and %x", count, len(a)/size, first/N,
		first%N, a[first*size:][:size], b[first*size:][:size])
}

// skinnyTileForms are GEMMs of many sequences' rows, beside a copy of the weight's bytes.
func (f *forms) skinnyTileForms() {
	for _, c := range []struct {
		name  string
		N     []int
		K     int
		gated bool
	}{{"1.1B q k v", []int{2048, 256, 256}, 2048, false}, {"1.1B o", []int{2048}, 2048, false},
		{"1.1B gate and up", []int{5632, 5632}, 2048, true}, {"1.1B down", []int{2048}, 5632, false},
		{"1.1B head", []int{32000}, 2048, false}, {"8B q k v", []int{4096, 1024, 1024}, 4096, false},
		{"8B gate and up", []int{14336, 14336}, 4096, true}, {"8B down", []int{4096}, 14336, false}} {
		for _, store := range []string{"", "_nf4_nested"} {
			for _, M := range []int{32, 64, 128, 256} {
				f.skinnyTileForm(c.name, store, tileCase{M: M, N: c.N, K: c.K, gated: c.gated})
			}
		}
	}
}

func (f *forms) skinnyTileForm(name, store string, c tileCase) {
	f.reset()
	rows := 0
	for _, n := range c.N {
		rows += n
	}
	bytes := 2 * float64(rows) * float64(c.K)
	copies := max(1, int(160e6/bytes)) // until the second-level cache holds none of the weights before
	var work []*gpu.Launch
	x := f.randomBF16("x", int64(c.M*c.K))
	for range copies {
		var weights [][]any
		var d []gpu.Ptr
		for _, n := range c.N {
			d = append(d, f.out("d", int64(2*c.M*n)))
			if store == "" {
				weights = append(weights, []any{f.randomBF16("w", int64(n*c.K))})
				continue
			}
			weights = append(weights, []any{f.out("codes", int64(n*c.K/2)), f.floats("code", 16, 0x3f000000),
				f.out("scale8", int64(n*c.K/64)), f.floats("map", 256, 0x3f000000),
				f.floats("scale2", int64((n*c.K/64+255)/256), 0x3f000000), f.floats("offset", 1, 0)})
		}
		at := SkinnyTile(store, c.M, c.N, c.gated, f.d.SM())
		work = append(work, f.launch(at, c.tileArgs(store, d, x, weights)...))
	}
	if store != "" {
		bytes *= 0.26
	}
	at := SkinnyTile(store, c.M, c.N, c.gated, f.d.SM())
	form := timed{fmt.Sprintf("%s %s %d rows", at.Entry, name, c.M), f.time(work...) / float64(copies), f.bytes(bytes)}
	fmt.Printf("%-58s %9.1f us, %5.1f %% of a copy\n", form.name, 1e6*form.took, form.share())
}

// BenchmarkFormsOfSequences prints the times of a step's kernels over many sequences.
func BenchmarkFormsOfSequences(b *testing.B) {
	f := newForms(b)
	f.groupedForms()
	f.skinnyTileForms()
}
