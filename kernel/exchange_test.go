package kernel_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
	"github.com/tierlora/tierlora/train/ranks"
)

func TestExchange(t *testing.T) {
	for _, n := range []int{1, 4, 37, 1 << 15} {
		kerneltest.Run(t,
			kerneltest.Case{Name: fmt.Sprint("alone ", n), Kernel: kernel.Exchange{World: 1},
				In: []kerneltest.Input{kerneltest.Normal(n), kerneltest.Normal(), kerneltest.Normal(1)}},
			kerneltest.Case{Name: fmt.Sprint("numbers alone ", n), Kernel: kernel.Exchange{World: 1, Numbers: 2},
				In: []kerneltest.Input{kerneltest.Normal(n), kerneltest.Normal(), kerneltest.Normal(1),
					kerneltest.Normal(), kerneltest.Normal()}},
			kerneltest.Case{Name: fmt.Sprint("gather alone ", n), Kernel: kernel.GatherSlices{World: 1},
				In: []kerneltest.Input{kerneltest.Normal(n)}},
			kerneltest.Case{Name: fmt.Sprint("add ", n), Kernel: kernel.AddInOrder{}, Bound: 2e-7,
				In: []kerneltest.Input{kerneltest.Normal(n), kerneltest.Normal(3, n)}})
	}
	kerneltest.Run(t, kerneltest.Case{Name: "slice", Kernel: kernel.AddInOrder{Slice: true}, Bound: 2e-7,
		In: []kerneltest.Input{kerneltest.Normal(37), kerneltest.Normal(4, 12)}},
		kerneltest.Case{Name: "number", Kernel: kernel.AddInOrder{}, Bound: 2e-7,
			In: []kerneltest.Input{kerneltest.Normal(), kerneltest.Normal(5)}})
}

func TestExchangeRefuses(t *testing.T) {
	f := func(shape ...int) kernel.Type { return kernel.T(kernel.F32, shape...) }
	for _, c := range []struct {
		k    kernel.Kernel
		in   []kernel.Type
		want string
	}{
		{kernel.Exchange{World: 2}, []kernel.Type{f(8), f(1), f(1)}, "want f[]"},
		{kernel.Exchange{World: 2, Numbers: 1}, []kernel.Type{f(8), f(), f(1), f(2)}, "want f[]"},
		{kernel.Exchange{}, []kernel.Type{f(8), f(), f(1)}, "0 ranks"},
		{kernel.GatherSlices{}, []kernel.Type{f(8)}, "0 ranks"},
		{kernel.AddInOrder{Slice: true}, []kernel.Type{f(37), f(4, 37)}, "adds 4 parts"},
		{kernel.AddInOrder{}, []kernel.Type{f(37), f(4, 12)}, "adds 4 parts"},
		{kernel.AddInOrder{}, []kernel.Type{f(37)}, "takes a sum"},
	} {
		if _, err := c.k.Shape(c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T: %v, want %s", c.k, err, c.want)
		}
	}
}

// seat is one of the ranks of a process as operations see them.
type seat struct{ ranks.Group }

func (s seat) Gather(what string, mine []byte) ([][]byte, error) {
	return s.Group.Gather(context.Background(), what, mine)
}

// TestSumOverRanks: the sum of the ranks' gradients is, on every rank, that of one that adds them in their order, bit
// for bit, for lengths that slices do not divide.
func TestSumOverRanks(t *testing.T) {
	for world := 1; world <= 8; world++ {
		for _, n := range []int{3, 64, 1003} {
			rng := rand.New(rand.NewPCG(uint64(world), uint64(n)))
			g := make([]kernel.Tensor, world)
			want, wantLoss := make([]float32, n), float32(0)
			for r := range g {
				values := make([]float32, n)
				for i := range values {
					values[i] = float32(rng.NormFloat64() * math.Pow(10, float64(rng.IntN(6))))
					want[i] += values[i]
				}
				g[r] = tensor32(values, n)
				wantLoss += float32(r) * 0.1
			}
			group := ranks.NewLocal(world)
			var all sync.WaitGroup
			for r := range world {
				all.Go(func() {
					cpu := kernel.NewCPU(1)
					cpu.Group = seat{group[r]}
					sum, lossSum := tensor32(make([]float32, n), n), tensor32(make([]float32, 1))
					run := func(k kernel.Kernel, in ...kernel.Tensor) []kernel.Tensor {
						types := make([]kernel.Type, len(in))
						for i, x := range in {
							types[i] = x.Type
						}
						outs, err := k.Shape(types)
						if err != nil {
							t.Error(err)
							return nil
						}
						out := make([]kernel.Tensor, len(outs))
						for i, o := range outs {
							out[i] = kernel.NewTensor(o, kernel.Alloc(o.Bytes()))
						}
						if _, ok := k.(kernel.Overwriting); ok {
							out[0] = in[0]
						}
						k.CPU(cpu, in, out)()
						return out
					}
					got := run(kernel.Exchange{World: world, Numbers: 1}, g[r], tensor32([]float32{float32(r) * 0.1}),
						tensor32([]float32{float32(r % 2)}, 1), tensor32([]float32{float32(3 * r)}))
					run(kernel.AddInOrder{Slice: true}, sum, got[0])
					run(kernel.AddInOrder{}, lossSum, got[1])
					run(kernel.GatherSlices{World: world}, sum)
					if err := cpu.Err(); err != nil {
						t.Error(err)
					}
					if !slices.Equal(sum.F32(), want) || lossSum.F32()[0] != wantLoss {
						t.Errorf("%d ranks, %d numbers: rank %d has another sum", world, n, r)
					}
					for q, number := range got[3].F32() {
						if number != float32(3*q) {
							t.Errorf("rank %d has number %v of rank %d", r, number, q)
						}
					}
					for q, stop := range got[2].F32() {
						if stop != float32(q%2) {
							t.Errorf("rank %d has stop %v of rank %d", r, stop, q)
						}
					}
				})
			}
			all.Wait()
		}
	}
}

// TestAllGather: parts come out whole wherever slices end, on every rank.
func TestAllGather(t *testing.T) {
	text := make([]byte, 4*64)
	for i := range text {
		text[i] = byte(i * 7)
	}
	k := kernel.AllGather{Parts: []kernel.Type{kernel.T(kernel.U8, 3), kernel.T(kernel.F32, 30),
		kernel.T(kernel.BF16, 5, 2)}, At: []int64{0, 64, 192}}
	for _, world := range []int{1, 2, 4} {
		k.World = world
		slice := kernel.T(kernel.U8, len(text)/world)
		if out, err := k.Shape([]kernel.Type{slice}); err != nil || len(out) != 3 || !out[1].Equal(k.Parts[1]) {
			t.Fatalf("%d ranks: %v: %v", world, out, err)
		}
		groups := ranks.NewLocal(world)
		var all sync.WaitGroup
		for r := range world {
			all.Go(func() {
				cpu := kernel.NewCPU(1)
				defer cpu.Pool.Close()
				cpu.Group = seat{groups[r]}
				in := kernel.NewTensor(slice, text[r*slice.Elems():])
				var out []kernel.Tensor
				for _, p := range k.Parts {
					out = append(out, kernel.NewTensor(p, kernel.Alloc(p.Bytes())))
				}
				k.CPU(cpu, []kernel.Tensor{in}, out)()
				for i, o := range out {
					if want := text[k.At[i] : k.At[i]+o.Type.Bytes()]; !bytes.Equal(o.Bytes(), want) {
						t.Errorf("rank %d of %d: part %d is % x, want % x: %v", r, world, i, o.Bytes(), want, cpu.Err())
					}
				}
			})
		}
		all.Wait()
	}
}

func TestAllGatherRefuses(t *testing.T) {
	u8 := func(n int) kernel.Type { return kernel.T(kernel.U8, n) }
	for _, c := range []struct {
		k    kernel.AllGather
		in   kernel.Type
		want string
	}{
		{kernel.AllGather{World: 2}, u8(64), "0 parts"},
		{kernel.AllGather{Parts: []kernel.Type{u8(1)}, At: []int64{0}}, u8(64), "0 ranks"},
		{kernel.AllGather{World: 2, Parts: []kernel.Type{u8(1)}, At: []int64{0}}, kernel.T(kernel.F32, 64), "u8"},
		{kernel.AllGather{World: 2, Parts: []kernel.Type{u8(9), u8(1)}, At: []int64{0, 8}}, u8(64),
			"part 1 begins at byte 8, the one before it ends at 9"},
		{kernel.AllGather{World: 2, Parts: []kernel.Type{u8(100)}, At: []int64{64}}, u8(64),
			"end at byte 164, 2 slices of 64 bytes at 128"},
	} {
		if _, err := c.k.Shape([]kernel.Type{c.in}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.k, err, c.want)
		}
	}
}
