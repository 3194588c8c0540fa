package nn_test

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/quant"
)

// doubled is a checkpoint in which some weights have twice the numbers.
type doubled struct {
	nn.Reader
	names []string
}

func (d doubled) Float32s(name string, from int, dst []float32) error {
	err := d.Reader.Float32s(name, from, dst)
	if slices.Contains(d.names, name) {
		for i := range dst {
			dst[i] *= 2
		}
	}
	return err
}

// TestRewrittenWeights: a weight that is rewritten while it loads is what a checkpoint with the rewritten numbers
// gives, kept as numbers, quantised, or quantised in the checkpoint, filled by the host or by the store. Others stay as
// they are.
func TestRewrittenWeights(t *testing.T) {
	const in, out = 96, 40
	names := []string{"q_proj.weight", "o_proj.weight"}
	c := quant.Default()
	packed, stored := storedAs(t, c, in, out)
	numbers := packed.Reader.(checkpoint)
	for what, v := range map[string]struct {
		o    nn.Options
		from nn.Reader
		want nn.Reader
	}{
		"numbers":               {nn.Options{}, numbers, doubled{numbers, names}},
		"float64":               {nn.Options{Float: kernel.F64}, numbers, doubled{numbers, names}},
		"16 bits":               {nn.Options{}, halves{numbers, "q_proj.weight"}, doubled{numbers, names}},
		"nf4":                   {nn.Options{Scheme: &c}, numbers, doubled{numbers, names}},
		"nf4, dequantised":      {nn.Options{Scheme: &c, Dequantised: true}, numbers, doubled{numbers, names}},
		"nf4 in the checkpoint": {nn.Options{Stored: stored}, packed, doubled{packed, names}},
	} {
		for _, device := range []bool{false, true} {
			load := func(rewrite func(string) nn.Rewriter, from nn.Reader) (*nn.Net, *graph.Memory) {
				o := v.o
				o.Rewrite = rewrite
				n := nn.New(o)
				x := n.Batch("x", kernel.T(n.Float(), 3, in))
				var outputs []*nn.Value
				for _, name := range []string{"q_proj", "k_proj", "o_proj"} {
					outputs = append(outputs, n.Linear(name, in, out, false).Apply(x))
				}
				m := compile(t, n, outputs...)
				var s graph.Store = m
				if device {
					s = &partsTaker{Memory: m}
				}
				if err := n.Load(context.Background(), from, s, 2); err != nil {
					t.Fatal(err)
				}
				return n, m
			}
			n, got := load(func(name string) nn.Rewriter {
				if !slices.Contains(names, name) {
					return nil
				}
				return func(r nn.Reader, from int, dst []float32) error {
					return doubled{r, names}.Float32s(name, from, dst)
				}
			}, v.from)
			_, want := load(nil, v.want)
			_, plain := load(nil, v.from)
			changed := 0
			for _, w := range n.Weights() {
				for _, name := range w.Into {
					a, b := bytesOf(t, got, name), bytesOf(t, want, name)
					if w.Name == "k_proj.weight" {
						b = bytesOf(t, plain, name)
					} else if !bytes.Equal(b, bytesOf(t, plain, name)) {
						changed++
					}
					if !bytes.Equal(a, b) {
						t.Errorf("%s, device %v: %s differs", what, device, name)
					}
				}
			}
			if changed < 2 {
				t.Errorf("%s: %d tensors are changed: the comparison shows nothing", what, changed)
			}
		}
	}
}

func bytesOf(t *testing.T, m *graph.Memory, name string) []byte {
	t.Helper()
	x, err := m.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	return x.Bytes()
}

// TestComputedWeight: the numbers that the network computes with are those of the layer's weight in memory.
func TestComputedWeight(t *testing.T) {
	const in, out = 96, 40
	c := quant.Default()
	packed, stored := storedAs(t, c, in, out)
	for what, v := range map[string]struct {
		o    nn.Options
		from nn.Reader
	}{
		"numbers": {nn.Options{}, packed.Reader}, "nf4": {nn.Options{Scheme: &c}, packed.Reader},
		"dequantised":           {nn.Options{Scheme: &c, Dequantised: true}, packed.Reader},
		"nf4 in the checkpoint": {nn.Options{Stored: stored}, packed},
	} {
		n := nn.New(v.o)
		w := n.Linear("q_proj", in, out, false).Weight()
		y := n.Apply(kernel.Add{}, w, n.Batch("zero", kernel.T(kernel.F32, out, in)))
		p, err := n.Compile(1, y)
		if err != nil {
			t.Fatal(err)
		}
		m, err := graph.NewMemory(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Load(context.Background(), v.from, m, 1); err != nil {
			t.Fatal(err)
		}
		one, ok := n.Weight("q_proj.weight")
		if _, none := n.Weight("none"); !ok || none {
			t.Fatal("the network finds another weight")
		}
		got := make([]float32, in*out)
		if err := one.Computed(v.from, got); err != nil {
			t.Fatal(err)
		}
		run, err := p.Bind(m, kernel.NewCPU(1))
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Run("main"); err != nil {
			t.Fatal(err)
		}
		if want := run.Tensor(y).F32(); !slices.Equal(got, want) {
			t.Errorf("%s: other numbers than the network's", what)
		}
	}
}
