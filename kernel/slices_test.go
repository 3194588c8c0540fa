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

func TestSlices(t *testing.T) {
	for _, n := range []int{1, 37, 1 << 15} {
		alone := kernel.Slices{World: 1, Unit: 4}
		kerneltest.Run(t,
			kerneltest.Case{Name: fmt.Sprint("take alone ", n), Kernel: kernel.TakeSlice{Slices: alone},
				In: []kerneltest.Input{kerneltest.Normal(n)}},
			kerneltest.Case{Name: fmt.Sprint("spread alone ", n), Kernel: kernel.SpreadSlices{Slices: alone},
				In: []kerneltest.Input{kerneltest.Normal(n), kerneltest.Normal(alone.Length(n))}})
	}
	f := func(shape ...int) kernel.Type { return kernel.T(kernel.F32, shape...) }
	for _, c := range []struct {
		k    kernel.Kernel
		in   []kernel.Type
		want string
	}{
		{kernel.TakeSlice{}, []kernel.Type{f(8)}, "slices of 0 ranks in units of 0 numbers"},
		{kernel.TakeSlice{Slices: kernel.Slices{World: 2, Unit: 6}}, []kernel.Type{f(8)}, "a multiple of 4"},
		{kernel.SpreadSlices{Slices: kernel.Slices{World: 2, Unit: 4}}, []kernel.Type{f(9), f(9)}, "has 8 numbers"},
	} {
		if _, err := c.k.Shape(c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T: %v, want %s", c.k, err, c.want)
		}
	}
}

// TestSlicesOverRanks: what ranks change in their slices arrives on all of them, for lengths that slices do not divide.
func TestSlicesOverRanks(t *testing.T) {
	for _, world := range []int{1, 2, 5} {
		for _, n := range []int{3, 64, 1003} {
			cut := kernel.Slices{World: world, Unit: 8}
			group := ranks.NewLocal(world)
			var all sync.WaitGroup
			for r := range world {
				all.Go(func() {
					cpu := kernel.NewCPU(1)
					cpu.Group = seat{group[r]}
					x, slice := make([]float32, n), make([]float32, cut.Length(n))
					want := make([]float32, n)
					for i := range x {
						x[i], want[i] = float32(i), float32(2*i)
					}
					in, mine := tensor32(x, n), tensor32(slice, len(slice))
					kernel.TakeSlice{Slices: cut}.CPU(cpu, []kernel.Tensor{in}, []kernel.Tensor{mine})()
					for i := range mine.F32() {
						mine.F32()[i] *= 2
					}
					kernel.SpreadSlices{Slices: cut}.CPU(cpu, []kernel.Tensor{in, mine}, []kernel.Tensor{in})()
					if err := cpu.Err(); err != nil || !slices.Equal(in.F32(), want) {
						t.Errorf("%d ranks, %d numbers: rank %d has others: %v", world, n, r, err)
					}
				})
			}
			all.Wait()
		}
	}
}
