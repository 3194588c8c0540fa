package kernel_test

import (
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// fused are the layouts whose queries and keys have the same bounds, with as many rows of either.
func fused(t *testing.T) (all []layout) {
	for _, l := range layouts {
		if slices.Equal(l.cuQ, l.cuK) {
			l.m = max(l.m, l.n)
			all = append(all, l)
		}
	}
	if len(all) < 10 {
		t.Fatalf("%d layouts", len(all))
	}
	return all
}

func (l layout) width() int { return (l.heads + 2*l.kvs) * l.head }

func TestAttentionQKV(t *testing.T) {
	for _, l := range fused(t) {
		qkv, o := kerneltest.Normal(l.m, l.width()), kerneltest.Normal(l.m, l.heads*l.head)
		stat, cu := kerneltest.Uniform(2, 3, l.heads, l.m), l.bounds()[0]
		kerneltest.Run(t,
			kerneltest.Case{Name: l.name, Kernel: kernel.AttentionQKV(l.kernel()), In: []kerneltest.Input{qkv, cu}, Bound: 5e-7},
			kerneltest.Case{Name: l.name + " backward", Kernel: kernel.AttentionQKVGrad(l.kernel()), In: []kerneltest.Input{qkv, o, stat, o, cu}, Bound: 1.3e-6},
		)
	}
}

// TestAttentionQKVIsAttention: the bits are those of three projections.
func TestAttentionQKVIsAttention(t *testing.T) {
	for _, l := range fused(t) {
		t.Run(l.name, func(t *testing.T) {
			widths := []int{l.heads * l.head, l.kvs * l.head, l.kvs * l.head}
			qkv, do, cu := f32s(normal32(1, l.m*l.width()), l.m, l.width()), f32s(normal32(2, l.m*widths[0]), l.m, widths[0]), i32s(l.cuQ)
			split := func(x kernel.Tensor) (parts []kernel.Tensor) {
				from := 0
				for _, w := range widths {
					var part []float32
					for r := range l.m {
						part = append(part, x.F32()[r*l.width()+from:][:w]...)
					}
					parts, from = append(parts, f32s(part, l.m, w)), from+w
				}
				return parts
			}
			p := split(qkv)
			want := evaluate(t, l.kernel(), p[0], p[1], p[2], cu, cu)
			got := evaluate(t, kernel.AttentionQKV(l.kernel()), qkv, cu)
			for i, what := range []string{"o", "lse"} {
				if !slices.Equal(got[i].F32(), want[i].F32()) {
					t.Errorf("%s differs from Attention's", what)
				}
			}
			grads := evaluate(t, kernel.AttentionGrad(l.kernel()), p[0], p[1], p[2], want[0], want[1], do, cu, cu)
			all := split(evaluate(t, kernel.AttentionQKVGrad(l.kernel()), qkv, want[0], want[1], do, cu)[0])
			for i, what := range []string{"dq", "dk", "dv"} {
				if !slices.Equal(all[i].F32(), grads[i].F32()) {
					t.Errorf("%s differs from AttentionGrad's", what)
				}
			}
		})
	}
}

func TestAttentionQKVRefuses(t *testing.T) {
	good := kernel.AttentionQKV{Heads: 4, KVHeads: 2, Scale: 1}
	types := func(width int) []kernel.Type {
		return []kernel.Type{kernel.T(kernel.F32, 3, width), kernel.T(kernel.I32, 2)}
	}
	if _, err := good.Shape(types(32)); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		k  kernel.AttentionQKV
		in []kernel.Type
	}{
		"broken heads":  {good, types(33)},
		"empty heads":   {good, types(0)},
		"uneven groups": {kernel.AttentionQKV{Heads: 4, KVHeads: 3, Scale: 1}, types(40)},
		"no heads":      {kernel.AttentionQKV{Scale: 1}, types(32)},
		"no scale":      {kernel.AttentionQKV{Heads: 4, KVHeads: 2}, types(32)},
	} {
		if _, err := c.k.Shape(c.in); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
