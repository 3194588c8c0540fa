package graph

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// TestAccumulateHeads compares plans with and without the pass: gradients of a head of its own, of one that is the
// table of embeddings, and of one that is computed, where nothing is added to a state. Without the pass a plan holds a
// matrix of the head's size more.
func TestAccumulateHeads(t *testing.T) {
	const rows, width, vocab = 6, 8, 500
	real := func(shape ...int) kernel.Type { return kernel.T(kernel.F64, shape...) }
	for _, head := range []string{"own", "tied", "computed"} {
		t.Run(head, func(t *testing.T) {
			run := func(without ...string) (states []byte, arena int64, calls string) {
				b := NewBuilder(kernel.F64)
				b.Without(without...)
				table, params := b.Param("params", "table", real(vocab, width)), []*Value(nil)
				params = append(params, table)
				x := b.Apply(kernel.Embedding{Float: kernel.F64}, b.Batch("ids", kernel.T(kernel.I32, rows)), table)
				w := table
				switch head {
				case "own":
					w = b.Param("params", "head", real(vocab, width))
					params = append(params, w)
				case "computed":
					w = b.Apply(kernel.Add{}, b.Param("params", "head", real(vocab, width)), table)
				}
				loss := b.Apply(kernel.LinearCrossEntropy{Chunk: 4, Grad: true, Head: kernel.HeadTrained}, x, w,
					b.Batch("labels", kernel.T(kernel.I32, rows)), b.Batch("scale", real(1)))
				for i, g := range b.Grad(loss, params...) {
					b.Apply(kernel.AddTo{}, b.State("sums", "sum of "+params[i].Name, params[i].Type), g)
				}
				p := mustCompile(t, b, loss)
				m, r := mustBind(t, p)
				for _, name := range m.Names() {
					x, _ := m.Tensor(name)
					switch {
					case name == "ids":
						copy(x.I32(), []int32{3, 499, 3, 0, 17, 3})
					case name == "labels":
						copy(x.I32(), []int32{0, 7, kernel.Untrained, 499, 3, 1})
					case name == "scale":
						x.F64()[0] = 0.2
					case x.DType == kernel.F64:
						copy(x.F64(), data(name, x.Elems()))
					}
				}
				r.Run("main")
				for _, param := range params {
					x, _ := m.Tensor("sum of " + param.Name)
					states = append(states, x.Bytes()...)
				}
				for _, c := range p.calls {
					calls += fmt.Sprintf("%T ", c.kernel)
				}
				need, err := Need(p)
				if err != nil {
					t.Fatal(err)
				}
				return states, need.Total(), calls
			}
			with, lean, calls := run()
			without, _, _ := run("accumulate heads")
			near(t, with, without)
			_, large, _ := run("accumulate heads", "accumulate")
			if matrix := int64(vocab * width * 8); head != "computed" && large-lean < matrix*9/10 {
				t.Errorf("%d bytes, %d without the pass: a matrix has %d", lean, large, matrix)
			}
			if n := strings.Count(calls, "AddTo"); head != "computed" && n != 0 {
				t.Errorf("%d sums are left in %s", n, calls)
			}
		})
	}
}

// near compares numbers in float64.
func near(t *testing.T, got, want []byte) {
	t.Helper()
	typ := kernel.T(kernel.F64, len(want)/8)
	a, b := kernel.NewTensor(typ, got).F64(), kernel.NewTensor(typ, want).F64()
	for i, w := range b {
		if d := a[i] - w; d > 1e-12 || d < -1e-12 || d != d {
			t.Fatalf("number %d is %v, want %v", i, a[i], w)
		}
	}
}
