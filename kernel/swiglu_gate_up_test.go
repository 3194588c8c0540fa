package kernel_test

import (
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestSwiGLUGateUp(t *testing.T) {
	for _, s := range [][2]int{{3, 7}, {1, 1}, {8, 172}, {13, 700}, {3000, 5}} {
		x, h := kerneltest.Normal(s[0], 2*s[1]), kerneltest.Normal(s[0], s[1])
		name := kernel.T(kernel.F32, s[:]...).String()
		kerneltest.Run(t,
			kerneltest.Case{Name: "forward " + name, Kernel: kernel.SwiGLUGateUp{}, In: []kerneltest.Input{x}, Bound: 2.5e-7},
			kerneltest.Case{Name: "backward " + name, Kernel: kernel.SwiGLUGateUpGrad{}, In: []kerneltest.Input{x, h}, Bound: 2.5e-7},
		)
	}
	if _, err := (kernel.SwiGLUGateUp{}).Shape([]kernel.Type{kernel.T(kernel.F32, 2, 7)}); err == nil {
		t.Error("rows of seven elements are accepted")
	}
}

// TestSwiGLUGateUpIsSwiGLU: the bits are those of two projections side by side.
func TestSwiGLUGateUpIsSwiGLU(t *testing.T) {
	const rows, inner = 9, 48
	x, dh := normal32(1, rows*2*inner), normal32(2, rows*inner)
	var gate, up []float32
	for r := range rows {
		gate = append(gate, x[2*r*inner:][:inner]...)
		up = append(up, x[(2*r+1)*inner:][:inner]...)
	}
	half := func(v []float32) kernel.Tensor { return f32s(v, rows, inner) }
	want := evaluate(t, kernel.SwiGLU{}, half(gate), half(up))[0].F32()
	if got := evaluate(t, kernel.SwiGLUGateUp{}, f32s(x, rows, 2*inner))[0].F32(); !slices.Equal(got, want) {
		t.Error("forward differs from SwiGLU")
	}
	parts := evaluate(t, kernel.SwiGLUGrad{}, half(gate), half(up), half(dh))
	got := evaluate(t, kernel.SwiGLUGateUpGrad{}, f32s(x, rows, 2*inner), half(dh))[0].F32()
	for r := range rows {
		if !slices.Equal(got[2*r*inner:][:inner], parts[0].F32()[r*inner:][:inner]) || !slices.Equal(got[(2*r+1)*inner:][:inner], parts[1].F32()[r*inner:][:inner]) {
			t.Fatalf("the gradient of row %d differs from SwiGLU's", r)
		}
	}
}
