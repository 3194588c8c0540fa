package graph

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// TestResidualSumsOfNormsBehind: where what is added is normed, and no norm reads the sums between, all sums of the
// stream keep low bits, and none of a result and its low-rank update does, whether a norm of rows reads it or one of
// heads.
func TestResidualSumsOfNormsBehind(t *testing.T) {
	const M, C, V = 12, 16, 8
	for _, heads := range []int{1, 4} {
		b := NewBuilder(kernel.F32)
		x := b.Apply(kernel.Embedding{Float: kernel.F32}, b.Batch("ids", kernel.T(kernel.I32, M)),
			b.Frozen("table", floats(V, C)))
		for i := range 2 {
			b.In(fmt.Sprintf("layers.%d", i), func() {
				low := b.Apply(kernel.MatMul{}, x, b.Frozen(fmt.Sprint("A", i), floats(C, 2)))
				h := b.Apply(kernel.Add{}, b.Apply(kernel.MatMul{}, x, b.Frozen(fmt.Sprint("W", i), floats(C, C))),
					b.Apply(kernel.MatMul{}, low, b.Frozen(fmt.Sprint("B", i), floats(2, C))))
				h = b.Apply(kernel.RMSNorm{Eps: 1e-5, Heads: heads}, h,
					b.Frozen(fmt.Sprint("norm", i), floats(C/heads)))
				x = b.Apply(kernel.Add{}, x, h)
			})
		}
		x = b.Apply(kernel.RMSNorm{Eps: 1e-5}, x, b.Frozen("norm", floats(C)))
		p, err := b.compile(rehearsed{gpuTarget{kernel.PrecisionBF16}, hostTarget{2}}, false, []*Value{x})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, c := range p.calls {
			got[fmt.Sprintf("%#v", c.kernel)]++
		}
		maps.DeleteFunc(got, func(name string, _ int) bool {
			return strings.HasPrefix(name, "kernel.Embedding{") || name == fmt.Sprintf("%#v", kernel.MatMul{})
		})
		want := map[string]int{
			fmt.Sprintf("%#v", kernel.Onto[kernel.MatMul]{}):                               2,
			fmt.Sprintf("%#v", kernel.RMSNorm{Eps: 1e-5, Heads: heads}):                    2,
			fmt.Sprintf("%#v", kernel.AddLowBits{}):                                        1,
			fmt.Sprintf("%#v", kernel.AddRMSNorm{Eps: 1e-5, LowBits: true, Carried: true}): 1,
		}
		if !maps.Equal(got, want) {
			t.Errorf("%d heads: %v, want %v\n%v", heads, got, want, p)
		}
	}
}
