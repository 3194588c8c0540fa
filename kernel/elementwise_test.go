package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestAdd(t *testing.T) {
	var cases []kerneltest.Case
	for name, shape := range map[string][]int{"scalar": {}, "one": {1}, "odd": {5, 7},
		"several pieces": {3, 1<<14 + 1}} {
		in := []kerneltest.Input{kerneltest.Normal(shape...), kerneltest.Normal(shape...)}
		cases = append(cases,
			kerneltest.Case{Name: "add " + name, Kernel: kernel.Add{}, In: in, Bound: 6e-8},
			kerneltest.Case{Name: "to " + name, Kernel: kernel.AddTo{}, In: in, Bound: 6e-8})
	}
	kerneltest.Run(t, cases...)
}

func TestBiasGrad(t *testing.T) {
	for _, s := range [][2]int{{1, 1}, {3, 17}, {130, 64}, {7, 100}} {
		kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprint(s), Kernel: kernel.BiasGrad{}, Bound: 2e-7,
			In: []kerneltest.Input{kerneltest.Normal(s[0], s[1])}})
	}
	near(t, "sums", evaluate(t, kernel.BiasGrad{}, f64s([]float64{1, 2, 3, 10, 20, 30}, 2, 3))[0].F64(),
		[]float64{11, 22, 33}, 0)
}

func TestAddBias(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][2]int{{1, 1}, {3, 5}, {67, 401}} {
		for _, d := range []kernel.DType{kernel.F32, kernel.F64, kernel.BF16, kernel.F16} {
			cases = append(cases, kerneltest.Case{
				Name: fmt.Sprintf("%v %v", s, d), Kernel: kernel.AddBias{}, Bound: 1e-7,
				In: []kerneltest.Input{kerneltest.Normal(s[0], s[1]), kerneltest.Normal(s[1]).As(d)},
			})
		}
	}
	kerneltest.Run(t, cases...)
	y := apply(t, kernel.AddBias{}, tensor32([]float32{1, 2, 3, 4}, 2, 2), tensor32([]float32{10, 20}, 2))[0].F32()
	for i, want := range []float32{11, 22, 13, 24} {
		if y[i] != want {
			t.Errorf("element %d is %v, want %v", i, y[i], want)
		}
	}
}

func TestScale(t *testing.T) {
	for _, by := range []float64{0.125, -3.7, 12} {
		kerneltest.Run(t,
			kerneltest.Case{Name: "odd", Kernel: kernel.Scale{By: by}, In: []kerneltest.Input{kerneltest.Normal(5, 13)},
				Bound: 2e-7},
			kerneltest.Case{Name: "pieces", Kernel: kernel.Scale{By: by},
				In: []kerneltest.Input{kerneltest.Normal(70, 576)}, Bound: 2e-7},
		)
	}
}

func TestScaleMeaning(t *testing.T) {
	out := evaluate(t, kernel.Scale{By: -1.5}, f64s([]float64{1, -2, 0, 4}, 2, 2))
	near(t, "y", out[0].F64(), []float64{-1.5, 3, 0, -6}, 0)
}

func TestScaleRefuses(t *testing.T) {
	for _, by := range []float64{math.Inf(1), math.NaN()} {
		if _, err := (kernel.Scale{By: by}).Shape([]kernel.Type{kernel.T(kernel.F32, 2, 3)}); err == nil {
			t.Errorf("By %v is accepted", by)
		}
	}
}

func TestScaleBy(t *testing.T) {
	kerneltest.Run(t,
		kerneltest.Case{Name: "odd", Kernel: kernel.ScaleBy{},
			In: []kerneltest.Input{kerneltest.Normal(5, 13), kerneltest.Normal(1)}, Bound: 2e-7},
		kerneltest.Case{Name: "pieces", Kernel: kernel.ScaleBy{},
			In: []kerneltest.Input{kerneltest.Normal(70, 576), kerneltest.Normal(1)}, Bound: 2e-7},
	)
}

func TestScaleByMeaning(t *testing.T) {
	out := evaluate(t, kernel.ScaleBy{}, f64s([]float64{1, -2, 0, 4}, 2, 2), f64s([]float64{-1.5}, 1))
	near(t, "y", out[0].F64(), []float64{-1.5, 3, 0, -6}, 0)
	if _, err := (kernel.ScaleBy{}).Shape([]kernel.Type{kernel.T(kernel.F32, 2, 3),
		kernel.T(kernel.F32, 3)}); err == nil || !strings.Contains(err.Error(), "want one number") {
		t.Errorf("three numbers: %v", err)
	}
}

func TestRowFactors(t *testing.T) {
	kerneltest.Run(t,
		kerneltest.Case{Kernel: kernel.RowFactors{}, In: []kerneltest.Input{kerneltest.Normal(5, 13),
			kerneltest.Ints([]int32{0, 2, -1, 1, 9}, 5), kerneltest.Normal(3, 13)}, Bound: 2e-7},
		kerneltest.Case{Name: "one row", Kernel: kernel.RowFactors{},
			In: []kerneltest.Input{kerneltest.Normal(1, 600), kerneltest.Ints([]int32{0}, 1),
				kerneltest.Normal(1, 600)}, Bound: 2e-7},
	)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	got := evaluate(t, kernel.RowFactors{}, f32s([]float32{1, nan, 3, nan, 2, inf, 1, 2, 3, nan, inf, 1}, 4, 3),
		tensorOf([]int32{0, 1, 2, -1}), f32s([]float32{2, 0, 2, 0, -3, 0}, 2, 3))[0].F32()
	if want := []float32{2, 0, 6, 0, -6, 0, 0, 0, 0, 0, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v: numbers of other adapters must not cross", got, want)
	}
}

func TestSoftCap(t *testing.T) {
	for _, size := range [][]int{{3, 7}, {1, 1}, {2, 9000}} {
		kerneltest.Run(t, kerneltest.Case{Name: kernel.T(kernel.F32, size...).String(),
			Kernel: kernel.SoftCap{Cap: 1.5}, In: []kerneltest.Input{kerneltest.Normal(size...)}, Bound: 2e-7})
	}
	x := []float64{-1e9, -60, -3, -1e-4, 0, 1e-4, 3, 60, 1e9}
	want, single := make([]float64, len(x)), make([]float32, len(x))
	for i := range x {
		want[i], single[i] = 30*math.Tanh(x[i]/30), float32(x[i])
	}
	near(t, "f64", evaluate(t, kernel.SoftCap{Cap: 30}, f64s(x, 1, len(x)))[0].F64(), want, 0)
	near(t, "f32", widen(evaluate(t, kernel.SoftCap{Cap: 30}, f32s(single, 1, len(x)))[0].F32()), want, 2e-6)
	for _, cap := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := (kernel.SoftCap{Cap: cap}).Shape([]kernel.Type{kernel.T(kernel.F32, 1, 1)}); err == nil {
			t.Errorf("Cap %v is accepted", cap)
		}
	}
}

func TestZero(t *testing.T) {
	kerneltest.Run(t,
		kerneltest.Case{Name: "floats", Kernel: kernel.Zero{}, AnyType: true,
			In: []kerneltest.Input{kerneltest.Normal(5, 7)}},
		kerneltest.Case{Name: "several pieces", Kernel: kernel.Zero{}, AnyType: true,
			In: []kerneltest.Input{kerneltest.Normal(1<<17 + 3)}},
		kerneltest.Case{Name: "bf16", Kernel: kernel.Zero{}, AnyType: true,
			In: []kerneltest.Input{kerneltest.Normal(33).As(kernel.BF16)}},
		kerneltest.Case{Name: "ints", Kernel: kernel.Zero{}, AnyType: true,
			In: []kerneltest.Input{kerneltest.Ints([]int32{1, -1, 7}, 3)}})
	for i, v := range apply(t, kernel.Zero{}, tensor32([]float32{1, 2, 3}, 3))[0].F32() {
		if v != 0 {
			t.Errorf("element %d is %v", i, v)
		}
	}
}
