package nn_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/quant"
)

// checkpoint makes up a tensor's numbers from its name and counts the reads of each.
type checkpoint struct {
	elems map[string]int
	reads map[string]int
}

func (c checkpoint) numbers(name string) []float32 {
	r := rand.New(rand.NewPCG(uint64(len(name)), uint64(name[0])))
	x := make([]float32, c.elems[name])
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func (c checkpoint) Float32s(name string, from int, dst []float32) error {
	if from+len(dst) > c.elems[name] {
		return fmt.Errorf("elements %d to %d of %d", from, from+len(dst), c.elems[name])
	}
	c.reads[name]++
	copy(dst, c.numbers(name)[from:])
	return nil
}

func compile(t *testing.T, n *nn.Net, outputs ...*nn.Value) *graph.Memory {
	t.Helper()
	p, err := n.Compile(1, outputs...)
	if err != nil {
		t.Fatal(err)
	}
	m, err := graph.NewMemory(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestLargeWeightsAreReadInPieces: packed weights and float64 ones are the same as if read at once.
func TestLargeWeightsAreReadInPieces(t *testing.T) {
	const in, out = 1000, 700
	for _, double := range []bool{false, true} {
		for _, float := range []kernel.DType{kernel.F32, kernel.F64} {
			q := quant.Default()
			q.DoubleQuant = double
			n := nn.New(nn.Options{Float: float, Scheme: &q})
			x := n.Batch("x", kernel.T(float, 3, in))
			var y *nn.Value
			n.In("layer", func() { y = n.Linear("up_proj", in, out, true).Apply(x) })
			head := n.Head("head", out, in)
			z := n.Apply(kernel.MatMul{TransB: true}, x, head)
			m := compile(t, n, y, z)
			c := checkpoint{map[string]int{"layer.up_proj.weight": in * out, "layer.up_proj.bias": out,
				"head": in * out}, map[string]int{}}
			for _, w := range n.Weights() {
				if err := w.Fill(c, m); err != nil {
					t.Fatal(err)
				}
			}
			qz, err := quant.NewQuantiser(out, in, q)
			if err != nil {
				t.Fatal(err)
			}
			if err := qz.Add(c.numbers("layer.up_proj.weight")); err != nil {
				t.Fatal(err)
			}
			p, err := qz.Finish()
			if err != nil {
				t.Fatal(err)
			}
			get := func(name string) kernel.Tensor {
				x, err := m.Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				return x
			}
			if !bytes.Equal(get("layer.up_proj.weight").Bytes(), p.Codes) {
				t.Errorf("double %v: other codes", double)
			}
			if double {
				if !bytes.Equal(get("layer.up_proj.weight.absmax").Bytes(), p.AbsmaxU8) ||
					get("layer.up_proj.weight.nested_offset").F32()[0] != p.Offset {
					t.Error("other nested scales")
				}
			} else if got := get("layer.up_proj.weight.absmax").F32(); fmt.Sprint(got[:5]) != fmt.Sprint(
				p.Absmax[:5]) || got[len(got)-1] != p.Absmax[len(p.Absmax)-1] {
				t.Error("other scales")
			}
			if float == kernel.F64 {
				for i, w := range c.numbers("head") {
					if got := get("head").F64()[i]; got != float64(w) {
						t.Fatalf("head[%d] = %v, want %v", i, got, w)
					}
				}
				if c.reads["head"] < 2 {
					t.Error("a large float64 weight was read at once")
				}
			}
			if c.reads["layer.up_proj.weight"] < 2 {
				t.Error("a large weight was read at once")
			}
		}
	}
}

func TestFailedReadNamesItsTensor(t *testing.T) {
	n := nn.New(nn.Options{})
	y := n.Linear("q_proj", 4, 4, false).Apply(n.Batch("x", kernel.T(kernel.F32, 2, 4)))
	m := compile(t, n, y)
	err := n.Weights()[0].Fill(checkpoint{map[string]int{"q_proj.weight": 3}, map[string]int{}}, m)
	const want = "load q_proj.weight: elements 0 to 16 of 3"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSharedIsMadeOnceForEachInput(t *testing.T) {
	n := nn.New(nn.Options{})
	x, y := n.Batch("x", kernel.T(kernel.F32, 2)), n.Batch("y", kernel.T(kernel.F32, 2))
	made := 0
	double := func(v *nn.Value, what string) *nn.Value {
		return n.Shared(v, what, func() *nn.Value { made++; return n.Add(v, v) })
	}
	first := double(x, "twice")
	if second := double(x, "twice"); second != first || double(y, "twice") == first || double(x, "again") == first {
		t.Error("shared values are mixed up")
	}
	if made != 3 {
		t.Errorf("made %d times, want 3", made)
	}
}

// twoFrequencies are a rotation of heads of four columns.
type twoFrequencies struct{}

func (twoFrequencies) InvFreq(int) ([]float64, float64, error) { return []float64{1, 0.1}, 1, nil }
func (twoFrequencies) LongRope(int) (int, bool)                { return 0, false }
func (twoFrequencies) QueryScale(int) func(int) float64        { return nil }

// scaledFrequencies also scale queries from position 3 on.
type scaledFrequencies struct{ twoFrequencies }

func (scaledFrequencies) QueryScale(longest int) func(int) float64 {
	if longest <= 3 {
		return nil
	}
	return func(position int) float64 { return 1 + float64(position/3) }
}

// TestScaledQueriesHaveATable of their own, but where no position is far enough: a query is rotated and scaled by it.
func TestScaledQueriesHaveATable(t *testing.T) {
	const M = 5
	for _, float := range []kernel.DType{kernel.F32, kernel.F64} {
		if r := nn.New(nn.Options{Float: float}).Rotary(scaledFrequencies{},
			nn.Batch{MaxLen: 3}); r.Queries != r.Table {
			t.Error("two tables, and all queries times one")
		}
		n := nn.New(nn.Options{Float: float})
		x, positions := n.Batch("x", kernel.T(float, M, 4)), n.Batch("positions", kernel.T(kernel.I32, M))
		r := n.Rotary(scaledFrequencies{}, nn.Batch{MaxLen: 8})
		key, query := n.Apply(kernel.RoPE{Heads: 1, HeadDim: 4}, x, r.Table, positions), n.Apply(kernel.RoPE{Heads: 1,
			HeadDim: 4}, x, r.Queries, positions)
		p, err := n.Compile(1, key, query)
		if err != nil {
			t.Fatal(err)
		}
		m, err := graph.NewMemory(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range n.Weights() {
			if err := w.Fill(nil, m); err != nil {
				t.Fatal(err)
			}
		}
		run, err := p.Bind(m, kernel.NewCPU(1))
		if err != nil {
			t.Fatal(err)
		}
		at := []int32{0, 2, 3, 6, 7}
		for i := range M * 4 {
			v, _ := m.Tensor("x")
			if float == kernel.F64 {
				v.F64()[i] = float64(i) - 7
			} else {
				v.F32()[i] = float32(i) - 7
			}
		}
		v, _ := m.Tensor("positions")
		copy(v.I32(), at)
		run.Run("main")
		for i, by := range []float64{1, 1, 2, 3, 3} {
			for j := i * 4; j < i*4+4; j++ {
				got, want := number(run.Tensor(query), j), by*number(run.Tensor(key), j)
				if math.Abs(got-want) > 1e-5 {
					t.Errorf("%v, position %d: a query is %g, want %g times the key's rotation, %g", float,
						at[i], got, by, want)
				}
			}
		}
	}
}

func number(x kernel.Tensor, i int) float64 {
	if x.DType == kernel.F64 {
		return x.F64()[i]
	}
	return float64(x.F32()[i])
}

// TestWrapSeesEveryLinearLayer by the path that the checkpoint's name has.
func TestWrapSeesEveryLinearLayer(t *testing.T) {
	var paths []string
	n := nn.New(nn.Options{Wrap: func(_ *nn.Net, path string, base nn.Linear) nn.Linear {
		in, out := base.Size()
		paths = append(paths, fmt.Sprintf("%s %dx%d", path, in, out))
		return base
	}})
	i32 := func(size int) kernel.Type { return kernel.T(kernel.I32, size) }
	x := n.Batch("x", kernel.T(kernel.F32, 6, 8))
	in := nn.Batch{Positions: n.Batch("p", i32(6)), CuQ: n.Batch("cu", i32(2)), CuK: n.Batch("cu", i32(2)), MaxLen: 6}
	n.In("l", func() {
		rope := n.Rotary(twoFrequencies{}, in).Table
		if n.Rotary(twoFrequencies{}, in).Table != rope {
			t.Error("two rotary tables")
		}
		x = n.SelfAttention("self_attn", x, in, nn.Attention{Heads: 4, KVHeads: 2, HeadDim: 4,
			QKVBias: true, RoPE: rope})
		n.GatedMLP("mlp", x, 12, false, "silu")
	})
	if err := n.Err(); err != nil {
		t.Fatal(err)
	}
	const want = "l.self_attn.q_proj 8x16, l.self_attn.k_proj 8x8, l.self_attn.v_proj 8x8, l.self_attn.o_proj 16x8, " +
		"l.mlp.gate_proj 8x12, l.mlp.up_proj 8x12, l.mlp.down_proj 12x8"
	if got := strings.Join(paths, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
