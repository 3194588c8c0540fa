package kernel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
	"github.com/tierlora/tierlora/quant"
)

// TestE4M3 checks every code and, for a fine grid of numbers, that the nearest code is taken, ties to the even one.
func TestE4M3(t *testing.T) {
	for code := range 256 {
		v := kernel.FromE4M3(uint8(code))
		sign, exponent, mantissa := 1-float64(code>>7)*2, code>>3&15, float64(code&7)
		want := sign * math.Pow(2, float64(exponent)-7) * (1 + mantissa/8)
		if exponent == 0 {
			want = sign * math.Pow(2, -6) * mantissa / 8
		}
		if code&0x7f == 0x7f {
			if !math.IsNaN(float64(v)) || kernel.ToE4M3(v)&0x7f != 0x7f {
				t.Errorf("code %#x is %v, want NaN", code, v)
			}
			continue
		}
		if float64(v) != want || kernel.ToE4M3(v) != uint8(code) {
			t.Errorf("code %#x is %v, want %v; back %#x", code, v, want, kernel.ToE4M3(v))
		}
	}
	for i := range 1 << 16 {
		x := math.Float32frombits(uint32(i) << 15) // every float of 8 mantissa bits, above 0
		got := kernel.ToE4M3(x)
		best, distance := 0, math.Inf(1)
		for code := range 0x7f {
			d := math.Abs(float64(kernel.FromE4M3(uint8(code))) - float64(x))
			if d < distance || d == distance && code&1 == 0 {
				best, distance = code, d
			}
		}
		switch {
		case x != x:
			best = 0x7f
		case x >= 448:
			best = 0x7e
		}
		if int(got) != best {
			t.Fatalf("%v becomes %#x, the nearest is %#x", x, got, best)
		}
		if x == x && kernel.ToE4M3(-x) != uint8(best)|0x80 {
			t.Fatalf("%v and its negative have unlike codes", x)
		}
	}
}

// TestQuantiseRows compares codes and scales with the formula.
func TestQuantiseRows(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	x := []float64{1, -448, 3.3, 0.01 /**/, 0, 0, 0, 0 /**/, nan, 1, 2, 3 /**/, inf, 1, 2, 3 /**/, 1e-38, 0, -1e-38, 0}
	out := evaluate(t, kernel.QuantiseRows{}, f64s(x, 5, 4))
	for i, want := range []float64{1, -448, 3.25, 0.009765625, 0, 0, 0, 0, nan, nan, nan, nan, nan, 0, 0, 0, 0, 0, 0, 0} {
		if got := float64(kernel.FromE4M3(out[0].Bytes()[i])); got != want && !(got != got && want != want) {
			t.Errorf("number %d, %v, is %v, want %v", i, x[i], got, want)
		}
	}
	scales := out[1].F32()
	finite := []float64{float64(scales[0]), float64(scales[1]), float64(scales[4])}
	near(t, "scales of finite rows", finite, []float64{1, 0, 0}, 1e-7)
	for _, shape := range [][2]int{{1, 1}, {3, 65}, {17, 256}} {
		kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprint(shape), Kernel: kernel.QuantiseRows{},
			In: []kerneltest.Input{kerneltest.Normal(shape[0], shape[1])}})
	}
}

// TestMatMulFP8 checks that the result is the product of the rounded operands, and that it is near the one of the
// unrounded: e4m3 keeps numbers to 1/16, so that a product of random signs is off by a few percent.
func TestMatMulFP8(t *testing.T) {
	for _, c := range fourBits {
		for _, transposed := range []bool{false, true} {
			name := fmt.Sprintf("%s nested %v map %v transposed %v", c.Type, c.DoubleQuant, c.Map, transposed)
			t.Run(name, func(t *testing.T) { testMatMulFP8(t, c, transposed) })
		}
	}
}

func testMatMulFP8(t *testing.T, c quant.Config, transposed bool) {
	const N, K, M = 24, 128, 5
	width, result, stepIn, stepOut := K, N, 1, K
	if transposed {
		width, result, stepIn, stepOut = N, K, K, 1
	}
	w, r := packedAs(t, N, K, c), rand.New(rand.NewPCG(7, 8))
	x := make([]float64, M*width)
	for i := range x {
		x[i] = r.NormFloat64() * math.Pow(10, float64(i/width)) // each row has a size of its own
	}
	nf4 := kernel.MatMulNF4{N: N, K: K, Nested: c.DoubleQuant, Transposed: transposed, Map: c.Map, FP4: c.Type == "fp4"}
	parts := packedTensors(w)
	rows := evaluate(t, kernel.QuantiseRows{}, f64s(x, M, width))
	in := append([]kernel.Tensor{rows[0], rows[1]}, parts...)
	got := evaluate(t, kernel.MatMulFP8{Weight: nf4, Float: kernel.F64}, in...)[0].F64()
	exact := evaluate(t, nf4, append([]kernel.Tensor{f64s(x, M, width)}, parts...)...)[0].F64()
	dense := make([]float32, N*K)
	w.Dequantise(dense)
	bounds := w.Absmax
	if c.DoubleQuant {
		bounds = w.Absmax2
	}
	largest := slices.Max(bounds) + w.Offset
	scale := largest * (1.0 / 448)
	for m := range M {
		var difference, size float64
		for j := range result {
			sum := 0.0
			for i := range width {
				v := kernel.FromE4M3(kernel.ToE4M3(dense[i*stepIn+j*stepOut]*(1/scale))) * scale
				sum += float64(kernel.FromE4M3(rows[0].Bytes()[m*width+i])) * float64(rows[1].F32()[m]) * float64(v)
			}
			y, d := got[m*result+j], got[m*result+j]-exact[m*result+j]
			if math.Abs(sum-y) > 1e-9*math.Max(1, math.Abs(sum)) {
				t.Fatalf("y[%d,%d] is %v, the sum over rounded operands %v", m, j, y, sum)
			}
			difference, size = difference+d*d, size+exact[m*result+j]*exact[m*result+j]
		}
		if e := math.Sqrt(difference / size); !(e < 0.06 && e > 0.001) {
			t.Errorf("row %d: relative error %.3g, want 0.001 to 0.06", m, e)
		}
	}
	float := func(f kernel.DType) kernel.Kernel { return kernel.MatMulFP8{Weight: nf4, Float: f} }
	kerneltest.Run(t, kerneltest.Case{Name: "suite", At: float, Bound: 1e-5, In: inputsOf(in)})
}
