package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestLatentKeys(t *testing.T) {
	for _, s := range []struct{ rows, heads, of, own, shared int }{{1, 1, 2, 1, 1}, {5, 3, 7, 4, 3}, {7, 2, 16, 8, 8},
		{65, 4, 24, 24, 8}} {
		k := kernel.LatentKeys{Heads: s.heads, Of: s.of, Own: s.own}
		kerneltest.Run(t,
			kerneltest.Case{Name: fmt.Sprintf("%+v", s), Kernel: k, Bound: 2.5e-7, In: []kerneltest.Input{
				kerneltest.Normal(s.rows, s.heads*s.of), kerneltest.Normal(s.rows, s.shared)}},
			kerneltest.Case{Name: fmt.Sprintf("%+v backward", s), Kernel: kernel.LatentKeysGrad(k), Bound: 2.5e-7,
				In: []kerneltest.Input{kerneltest.Normal(s.rows, s.heads*(s.own+s.shared))}},
			kerneltest.Case{Name: fmt.Sprintf("%+v padding", s), In: []kerneltest.Input{kerneltest.Normal(s.rows,
				s.heads*s.own)}, Kernel: kernel.HeadColumnsGrad{Heads: s.heads, Of: s.of, Width: s.own}})
	}
}

// TestLatentKeysMeaning: a head's own columns come first, then the shared ones, whose gradient is the heads' sum.
func TestLatentKeysMeaning(t *testing.T) {
	k := kernel.LatentKeys{Heads: 2, Of: 3, Own: 2}
	x, shared := f64s([]float64{1, 2, 3, 4, 5, 6}, 1, 6), f64s([]float64{7}, 1, 1)
	near(t, "keys", evaluate(t, k, x, shared)[0].F64(), []float64{1, 2, 7, 4, 5, 7}, 0)
	got := evaluate(t, kernel.LatentKeysGrad(k), f64s([]float64{1, 2, 3, 4, 5, 6}, 1, 6))
	near(t, "gradient of x", got[0].F64(), []float64{1, 2, 0, 4, 5, 0}, 0)
	near(t, "gradient of what heads share", got[1].F64(), []float64{9}, 0)
	for what, o := range map[string]kernel.LatentKeys{"no head": {Of: 3, Own: 2}, "no own column": {Heads: 2, Of: 3},
		"more columns than there are": {Heads: 2, Of: 3, Own: 4}, "other heads": {Heads: 3, Of: 3, Own: 2}} {
		if _, err := o.Shape([]kernel.Type{kernel.T(kernel.F32, 4, 6), kernel.T(kernel.F32, 4, 1)}); err == nil {
			t.Errorf("%s: %+v is accepted", what, o)
		}
	}
	if _, err := kernel.LatentKeysGrad(k).Shape([]kernel.Type{kernel.T(kernel.F32, 4, 4)}); err == nil {
		t.Error("keys without shared columns are accepted")
	}
}
