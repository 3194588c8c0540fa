package kernel_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/train/ranks"
)

// TestAllGather: parts come out whole wherever slices end, on every rank.
func TestAllGather(t *testing.T) {
	text := make([]byte, 4*64)
	for i := range text {
		text[i] = byte(i * 7)
	}
	k := kernel.AllGather{Parts: []kernel.Type{kernel.T(kernel.U8, 3), kernel.T(kernel.F32, 30), kernel.T(kernel.BF16, 5, 2)}, At: []int64{0, 64, 192}}
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
		{kernel.AllGather{World: 2, Parts: []kernel.Type{u8(9), u8(1)}, At: []int64{0, 8}}, u8(64), "part 1 begins at byte 8, the one before it ends at 9"},
		{kernel.AllGather{World: 2, Parts: []kernel.Type{u8(100)}, At: []int64{64}}, u8(64), "end at byte 164, 2 slices of 64 bytes at 128"},
	} {
		if _, err := c.k.Shape([]kernel.Type{c.in}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.k, err, c.want)
		}
	}
}
