package kernel_test

import (
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestLossScale(t *testing.T) {
	kerneltest.Run(t, kerneltest.Case{Name: "a step done", Kernel: kernel.LossScale{Interval: 5},
		In: []kerneltest.Input{kerneltest.Values([]float64{1024, 2, 1}, 3), kerneltest.Values([]float64{3, 0.5}, 2),
			kerneltest.Values([]float64{2})}})
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name         string
		was          []float64
		factor, loss float64
		want         []float64
	}{
		{"a step done", []float64{1024, 2, 1}, 0.5, 2, []float64{1024, 3, 1}},
		{"the fifth in a row", []float64{1024, 4, 1}, 0.5, 2, []float64{2048, 0, 1}},
		{"a gradient that overflowed", []float64{1024, 4, 1}, nan, 2, []float64{512, 0, 2}},
		{"down to one", []float64{2, 0, 7}, nan, 2, []float64{1, 0, 8}},
		{"at one", []float64{1, 3, 8}, nan, 2, []float64{1, 3, 8}},
		{"below one", []float64{0.5, 3, 8}, nan, 2, []float64{0.5, 3, 8}},
		{"a loss that is infinite", []float64{1024, 4, 1}, nan, inf, []float64{1024, 4, 1}},
		{"a loss that is no number", []float64{1024, 4, 1}, nan, nan, []float64{1024, 4, 1}},
		{"as large as can be", []float64{0x1p127, 4, 1}, 1, 2, []float64{0x1p127, 0, 1}},
	} {
		v := []float32{float32(c.was[0]), float32(c.was[1]), float32(c.was[2])}
		y := apply(t, kernel.LossScale{Interval: 5}, tensor32(v, 3), tensor32([]float32{3, float32(c.factor)}, 2),
			tensor32([]float32{float32(c.loss)}))[0].F32()
		got := []float64{float64(y[0]), float64(y[1]), float64(y[2])}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestLossScalingIsGradScaler runs the factors of 200 steps through torch's rule, written out.
func TestLossScalingIsGradScaler(t *testing.T) {
	const interval = 3
	scale, streak, skipped := 65536., 0, 0
	state := []float32{65536, 0, 0}
	for step := range 200 {
		overflowed := step%11 == 3 || step%23 == 5
		factor := float32(0.25)
		if overflowed {
			factor = float32(math.NaN())
			if scale > 1 {
				scale, streak, skipped = scale/2, 0, skipped+1
			}
		} else if streak++; streak == interval {
			scale, streak = scale*2, 0
		}
		y := apply(t, kernel.LossScale{Interval: interval}, tensor32(state, 3), tensor32([]float32{3, factor}, 2),
			tensor32([]float32{2}))[0].F32()
		copy(state, y)
		if state[0] != float32(scale) || state[1] != float32(streak) || state[2] != float32(skipped) {
			t.Fatalf("step %d: %v, want scale %v, streak %d, skipped %d", step, state, scale, streak, skipped)
		}
	}
	if skipped < 20 {
		t.Errorf("%d steps were skipped: the factors test nothing", skipped)
	}
}

// TestScaledGradient: the loss stays, its gradient is a power of two larger, and clipping takes that out again.
func TestScaledGradient(t *testing.T) {
	const M, C, V, S = 5, 7, 11, 4096
	in := []kernel.Tensor{tensor64(kernel.T(kernel.F64, M, C), normal64(1, M*C)),
		tensor64(kernel.T(kernel.F64, V, C), normal64(2, V*C)),
		i32s([]int32{3, kernel.Untrained, 10, 0, 5}), tensor64(kernel.T(kernel.F64, 1), []float64{0.25})}
	scaling := tensor64(kernel.T(kernel.F64, 3), []float64{S, 1, 1})
	plain := apply(t, kernel.LinearCrossEntropy{Chunk: 2, Grad: true}, in...)
	scaled := apply(t, kernel.LinearCrossEntropy{Chunk: 2, Grad: true, Scaled: true}, append(in, scaling)...)
	if plain[0].F64()[0] != scaled[0].F64()[0] || !slices.Equal(plain[2].F64(), scaled[2].F64()) {
		t.Errorf("the loss changed: %v, %v", plain[0].F64(), scaled[0].F64())
	}
	for i, x := range scaled[1].F64() {
		if x != S*plain[1].F64()[i] {
			t.Errorf("gradient %d is %v, want %d times %v", i, x, S, plain[1].F64()[i])
		}
	}
	flat := func(x kernel.Tensor) kernel.Tensor { return tensor64(kernel.T(kernel.F64, M*C), x.F64()) }
	clip := func(k kernel.GradNorm, g kernel.Tensor, more ...kernel.Tensor) []float64 {
		return apply(t, k, append([]kernel.Tensor{flat(g), plain[0],
			tensor64(kernel.T(kernel.F64, 2), []float64{7, 7})}, more...)...)[0].F64()
	}
	want, got := clip(kernel.GradNorm{MaxNorm: 0.1}, plain[1]),
		clip(kernel.GradNorm{MaxNorm: 0.1, Scaled: true}, scaled[1], scaling)
	if got[0] != want[0] || got[1] != want[1]/S {
		t.Errorf("norm and factor %v, want %v and a factor of 1/%d", got, want, S)
	}
}
