package kernel_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
	"github.com/tierlora/tierlora/train/ranks"
)

func TestHeads(t *testing.T) {
	for _, c := range []struct{ ranks, heads, kv, size, rows int }{{1, 3, 3, 5, 4}, {2, 4, 2, 3, 5}, {4, 8, 4, 2, 3},
		{4, 8, 2, 4, 2}, {8, 8, 1, 1, 3}} {
		s := kernel.HeadShares{Ranks: c.ranks, Heads: c.heads, KVHeads: c.kv}
		own, kv := s.Own()
		name := fmt.Sprintf("%d heads over %d for %d ranks", c.heads, c.kv, c.ranks)
		in := func(heads int) kerneltest.Input { return kerneltest.Normal(c.rows, heads*c.size) }
		together := kerneltest.Normal(c.ranks*c.rows, (own+2*kv)*c.size)
		fused, queries := s, s
		fused.Fused, queries.KVHeads = true, 0
		kerneltest.Run(t,
			kerneltest.Case{Name: name, Kernel: kernel.SplitHeads(s),
				In: []kerneltest.Input{in(c.heads), in(c.kv), in(c.kv)}},
			kerneltest.Case{Name: name + ", fused", Kernel: kernel.SplitHeads(fused),
				In: []kerneltest.Input{in(c.heads + 2*c.kv)}},
			kerneltest.Case{Name: name + ", queries", Kernel: kernel.SplitHeads(queries),
				In: []kerneltest.Input{in(c.heads)}},
			kerneltest.Case{Name: name + ", joined", Kernel: kernel.JoinHeads(s), Bound: 4e-7,
				In: []kerneltest.Input{together}},
			kerneltest.Case{Name: name + ", joined, fused", Kernel: kernel.JoinHeads(fused), Bound: 4e-7,
				In: []kerneltest.Input{together}},
			kerneltest.Case{Name: name + ", joined, queries", Kernel: kernel.JoinHeads(queries),
				In: []kerneltest.Input{kerneltest.Normal(c.ranks*c.rows, own*c.size)}},
			kerneltest.Case{Name: name + ", alone", Kernel: kernel.AllToAll{Ranks: 1},
				In: []kerneltest.Input{together}})
	}
}

func TestHeadsRefuse(t *testing.T) {
	f := func(shape ...int) kernel.Type { return kernel.T(kernel.F32, shape...) }
	for _, c := range []struct {
		k    kernel.Kernel
		in   []kernel.Type
		want string
	}{
		{kernel.SplitHeads{Ranks: 3, Heads: 4}, []kernel.Type{f(2, 8)},
			"4 heads are no whole number for each of 3 ranks"},
		{kernel.SplitHeads{Ranks: 4, Heads: 12, KVHeads: 6}, []kernel.Type{f(2, 8)},
			"6 key heads and 4 ranks: neither is a multiple of the other"},
		{kernel.SplitHeads{Ranks: 2, Heads: 4, KVHeads: 3}, []kernel.Type{f(2, 8)},
			"4 heads over 3 key heads for 2 ranks"},
		{kernel.SplitHeads{Ranks: 2, Heads: 4, KVHeads: 2}, []kernel.Type{f(2, 8)}, "takes 3 inputs, got 1"},
		{kernel.SplitHeads{Ranks: 2, Heads: 4, KVHeads: 2}, []kernel.Type{f(2, 8), f(2, 4), f(2, 6)},
			"input 2 is f32[2,6], want 2 heads of one size"},
		{kernel.JoinHeads{Ranks: 2, Heads: 4}, []kernel.Type{f(3, 8)}, "want the rows of 2 ranks with 2 heads in each"},
		{kernel.AllToAll{Ranks: 2}, []kernel.Type{f(3, 8)}, "2 ranks exchange equal blocks of the rows of f32[3,8]"},
		{kernel.AllToAll{}, []kernel.Type{f(4, 8)}, "0 ranks"},
		{kernel.Dropout{P: 0.5, Ranks: 2}, []kernel.Type{f(3, 4), kernel.T(kernel.I32, 2)},
			"want a multiple of 8 elements"},
	} {
		if _, err := c.k.Shape(c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T: %v, want %s", c.k, err, c.want)
		}
	}
}

// ranked runs kernels on so many ranks side by side, each with inputs of its own, and gives their outputs.
func ranked(t *testing.T, world int, k kernel.Kernel, in [][]kernel.Tensor) [][]kernel.Tensor {
	t.Helper()
	groups, out := ranks.NewLocal(world), make([][]kernel.Tensor, world)
	var all sync.WaitGroup
	for r := range world {
		types := make([]kernel.Type, len(in[r]))
		for i, x := range in[r] {
			types[i] = x.Type
		}
		outs, err := k.Shape(types)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range outs {
			out[r] = append(out[r], kernel.NewTensor(o, kernel.Alloc(o.Bytes())))
		}
		all.Go(func() {
			cpu := kernel.NewCPU(1)
			cpu.Group = seat{groups[r]}
			k.CPU(cpu, in[r], out[r])()
			if err := cpu.Err(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return out
}

// TestHeadsForTokens: of tokens that ranks share, each has its heads of all of them in their order behind the exchange,
// keys that several read on each; exchanged back, what each had. Groups of ranks do so apart.
func TestHeadsForTokens(t *testing.T) {
	const rows, size = 3, 2
	for _, c := range []struct{ ranks, groups, heads, kv int }{{1, 2, 2, 1}, {2, 1, 4, 2}, {2, 2, 4, 1}, {4, 2, 8, 4},
		{4, 1, 8, 2}} {
		world := c.ranks * c.groups
		value := func(rank, row, what, head, i int) float32 { // of a token of a group
			return float32((((rank/c.ranks*100+rank%c.ranks*rows+row)*3+what)*8+head)*size + i)
		}
		in := make([][]kernel.Tensor, world)
		for r := range world {
			for what, heads := range []int{c.heads, c.kv, c.kv} {
				var x []float32
				for row := range rows {
					for h := range heads * size {
						x = append(x, value(r, row, what, h/size, h%size))
					}
				}
				in[r] = append(in[r], tensor32(x, rows, heads*size))
			}
		}
		s := kernel.HeadShares{Ranks: c.ranks, Heads: c.heads, KVHeads: c.kv}
		own, kv := s.Own()
		exchanged := ranked(t, world, kernel.AllToAll{Ranks: c.ranks}, ranked(t, world, kernel.SplitHeads(s), in))
		for r := range world {
			place, first := r%c.ranks, r-r%c.ranks
			var want []float32
			for token := range c.ranks * rows {
				of, row := first+token/rows, token%rows
				for i := range own * size {
					want = append(want, value(of, row, 0, place*own+i/size, i%size))
				}
				for _, what := range []int{1, 2} {
					for i := range kv * size {
						want = append(want, value(of, row, what, place*c.kv/c.ranks+i/size, i%size))
					}
				}
			}
			if got := exchanged[r][0].F32(); !slices.Equal(got, want) {
				t.Fatalf("%+v: rank %d has %v, want %v", c, r, got, want)
			}
		}
		back := ranked(t, world, kernel.JoinHeads(s), ranked(t, world, kernel.AllToAll{Ranks: c.ranks}, exchanged))
		for r := range world {
			for what, x := range in[r] {
				times := float32(1)
				if what > 0 {
					times = max(1, float32(c.ranks/c.kv)) // the sum of those that have the head
				}
				for i, v := range x.F32() {
					if got := back[r][what].F32()[i]; got != times*v {
						t.Fatalf("%+v: rank %d, matrix %d: %v, want %v times %v", c, r, what, got, times, v)
					}
				}
			}
		}
	}
}

// TestSharesAreTheWhole: a dropout mask, and positions by the length of sequences, of ranks that share the tokens are
// those of one rank with all of them.
func TestSharesAreTheWhole(t *testing.T) {
	const rows, width = 12, 8
	x, counter := make([]float32, rows*width), kernel.NewTensor(kernel.T(kernel.I32, 2), kernel.Alloc(8))
	positions, cu := kernel.NewTensor(kernel.T(kernel.I32, rows), kernel.Alloc(4*rows)),
		kernel.NewTensor(kernel.T(kernel.I32, 4), kernel.Alloc(16))
	for i := range x {
		x[i] = float32(i + 1)
	}
	for i := range rows {
		positions.I32()[i] = int32(i)
	}
	copy(counter.I32(), []int32{-5, 3})
	copy(cu.I32(), []int32{0, 2, 9, 11})
	mask := ranked(t, 1, kernel.Dropout{P: 0.5, Stream: 9},
		[][]kernel.Tensor{{tensor32(x, rows, width), counter}})[0][0].F32()
	moved := ranked(t, 1, kernel.PositionsByLength{Limit: 3, Offset: 100},
		[][]kernel.Tensor{{positions, cu}})[0][0].I32()
	for _, n := range []int{2, 3, 4} {
		var dropped, placed [][]kernel.Tensor
		own := rows / n
		for r := range 2 * n { // two groups of them
			from := r % n * own
			dropped = append(dropped, []kernel.Tensor{tensor32(x[from*width:(from+own)*width], own, width), counter})
			part := kernel.NewTensor(kernel.T(kernel.I32, own), kernel.Alloc(int64(4*own)))
			copy(part.I32(), positions.I32()[from:])
			placed = append(placed, []kernel.Tensor{part, cu})
		}
		a := ranked(t, 2*n, kernel.Dropout{P: 0.5, Stream: 9, Ranks: n}, dropped)
		b := ranked(t, 2*n, kernel.PositionsByLength{Limit: 3, Offset: 100, Ranks: n}, placed)
		for r := range a {
			from := r % n * own
			if !slices.Equal(a[r][0].F32(), mask[from*width:(from+own)*width]) ||
				!slices.Equal(b[r][0].I32(), moved[from:from+own]) {
				t.Errorf("rank %d of %d: %v and %v, want parts of %v and %v", r, n, a[r][0].F32(), b[r][0].I32(), mask,
					moved)
			}
		}
	}
}

func TestHeadGate(t *testing.T) {
	for _, s := range [][3]int{{1, 1, 1}, {3, 2, 5}, {7, 4, 24}, {40, 3, 130}} {
		rows, heads, head := s[0], s[1], s[2]
		x, both := kerneltest.Normal(rows, heads*head), kerneltest.Normal(rows, 2*heads*head)
		name := fmt.Sprintf("%d rows, %d heads of %d", rows, heads, head)
		kerneltest.Run(t,
			kerneltest.Case{Name: name, Kernel: kernel.HeadGate{Heads: heads}, In: []kerneltest.Input{x, both},
				Bound: 2.5e-7},
			kerneltest.Case{Name: name + " backward", Kernel: kernel.HeadGateGrad{Heads: heads},
				In: []kerneltest.Input{x, both, x}, Bound: 2.5e-7},
			kerneltest.Case{Name: name + " queries", Kernel: kernel.HeadColumns{Heads: heads, Of: 2 * head,
				Width: head}, In: []kerneltest.Input{both}},
			kerneltest.Case{Name: name + " queries backward",
				Kernel: kernel.HeadColumnsGrad{Heads: heads, Of: 2 * head, Width: head}, In: []kerneltest.Input{x}},
		)
	}
}

// A gate of 0 lets a half through, one of ln 3 three quarters; queries lie before the gates of their head.
func TestHeadGateMeaning(t *testing.T) {
	x, both := f64s([]float64{4, -8, 2, 6}, 1, 4), f64s([]float64{5, 7, 0, 1.0986122886681098, 9, 11,
		1.0986122886681098, 0}, 1, 8)
	near(t, "gated", evaluate(t, kernel.HeadGate{Heads: 2}, x, both)[0].F64(), []float64{2, -6, 1.5, 3}, 1e-15)
	near(t, "queries", evaluate(t, kernel.HeadColumns{Heads: 2, Of: 4, Width: 2}, both)[0].F64(),
		[]float64{5, 7, 9, 11}, 0)
	got := evaluate(t, kernel.HeadGateGrad{Heads: 2}, x, both, f64s([]float64{1, 1, 2, 0}, 1, 4))
	near(t, "gradient of x", got[0].F64(), []float64{0.5, 0.75, 1.5, 0}, 1e-15)
	near(t, "gradient of both", got[1].F64(), []float64{0, 0, 1, -1.5, 0, 0, 0.75, 0}, 1e-15)
	near(t, "gradient of queries", evaluate(t, kernel.HeadColumnsGrad{Heads: 2, Of: 4, From: 2, Width: 2}, x)[0].F64(),
		[]float64{0, 0, 4, -8, 0, 0, 2, 6}, 0)
}
