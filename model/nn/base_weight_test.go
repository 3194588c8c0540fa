package nn_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/quant"
)

// TestWeightOfEveryScheme: the base weight as a value has the numbers of the checkpoint, through the scheme and back,
// and a GEMM with it gives what the layer gives.
func TestWeightOfEveryScheme(t *testing.T) {
	schemes := map[string]nn.Options{"floats": {}}
	for _, name := range quant.Names() {
		for _, nested := range []bool{false, true} {
			if nested && !quant.Schemes[name].Nests() {
				continue
			}
			for _, dequantised := range []bool{false, true} {
				c := quant.Default()
				c.Type, c.Bits, c.DoubleQuant = name, quant.Schemes[name].Bits(), nested
				schemes[fmt.Sprintf("%s nested %v dequantised %v", name, nested, dequantised)] = nn.Options{Scheme: &c,
					Dequantised: dequantised}
			}
		}
	}
	const in, out = 37, 21
	c := checkpoint{map[string]int{"q_proj.weight": in * out}, map[string]int{}}
	for what, o := range schemes {
		for _, float := range []kernel.DType{kernel.F32, kernel.F64} {
			o.Float = float
			n := nn.New(o)
			l := n.Linear("q_proj", in, out, false)
			x := n.Batch("x", kernel.T(float, 3, in))
			w := l.Weight()
			seen := n.Apply(kernel.Add{}, w, n.Batch("zero", kernel.T(float, out, in))) // a frozen value is no output
			y, z := l.Apply(x), n.Apply(kernel.MatMul{TransB: true}, x, w)
			p, err := n.Compile(2, seen, y, z)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			m, err := graph.NewMemory(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range n.Weights() {
				if err := w.Fill(c, m); err != nil {
					t.Fatal(err)
				}
			}
			xs, err := m.Tensor("x")
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 * in {
				if float == kernel.F64 {
					xs.F64()[i] = float64(i%11) - 5
				} else {
					xs.F32()[i] = float32(i%11) - 5
				}
			}
			run, err := p.Bind(m, kernel.NewCPU(2))
			if err != nil {
				t.Fatal(err)
			}
			run.Run("main")
			want := c.numbers("q_proj.weight")
			if o.Scheme != nil {
				packed, err := quant.Quantise(want, out, in, *o.Scheme)
				if err != nil {
					t.Fatal(err)
				}
				packed.Dequantise(want)
			}
			got := run.Tensor(seen)
			for i, v := range want {
				if float == kernel.F64 && got.F64()[i] != float64(v) || float == kernel.F32 && got.F32()[i] != v {
					t.Fatalf("%s as %v: element %d is not %v", what, float, i, v)
				}
			}
			if !bytes.Equal(run.Tensor(y).Bytes(), run.Tensor(z).Bytes()) {
				t.Errorf("%s as %v: the GEMM with the weight gives something else than the layer", what, float)
			}
		}
	}
	if len(schemes) < 5 {
		t.Errorf("only %d ways of storage", len(schemes))
	}
}
