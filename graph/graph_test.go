package graph

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

func floats(shape ...int) kernel.Type { return kernel.T(kernel.F32, shape...) }

func mustCompile(t testing.TB, b *Builder, outputs ...*Value) *Plan {
	t.Helper()
	p, err := b.Compile(2, outputs...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustBind(t testing.TB, p *Plan) (*Memory, *Run) {
	t.Helper()
	m, err := NewMemory(p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Bind(m, kernel.NewCPU(2))
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

// Gorgonia merges equal nodes: two applications of one kernel to the same inputs would become one.
func TestApplicationsNeverMerge(t *testing.T) {
	b := NewBuilder(kernel.F32)
	x, y := b.Batch("x", floats(4, 4)), b.Batch("y", floats(4, 4))
	kernels := []kernel.Kernel{kernel.MatMul{TransB: true}, kernel.Add{}, kernel.SwiGLU{}}
	const each = 20
	seen := map[*Value]bool{}
	var outputs []*Value
	for range each {
		for _, k := range kernels {
			v := b.Apply(k, x, y)
			if v == nil || seen[v] {
				t.Fatalf("application %d of %s: %v", len(outputs), k.Name(), b.Err())
			}
			seen[v] = true
			outputs = append(outputs, v)
		}
	}
	nodes := map[int64]bool{}
	for _, v := range outputs {
		nodes[v.node.ID()] = true
	}
	if len(nodes) != each*len(kernels) {
		t.Errorf("%d applications are %d nodes of Gorgonia", each*len(kernels), len(nodes))
	}
	if n := mustCompile(t, b, outputs...).Calls()["main"]; n != each*len(kernels) {
		t.Errorf("the plan has %d calls, want %d", n, each*len(kernels))
	}
}

// Dropout twice with equal attributes draws two masks only if it is two calls; a sum of a value with itself
// is twice the value.
func TestValueUsedTwiceInOneSum(t *testing.T) {
	b := NewBuilder(kernel.F32)
	x := b.Batch("x", floats(2, 2))
	a := b.Apply(kernel.Add{}, x, x)
	y := b.Apply(kernel.Add{}, a, a)
	p := mustCompile(t, b, y)
	m, r := mustBind(t, p)
	in, _ := m.Tensor("x")
	copy(in.F32(), []float32{1, 2, 3, 4})
	r.Run("main")
	if got := fmt.Sprint(r.Tensor(y).F32()); got != "[4 8 12 16]" {
		t.Errorf("4x = %s", got)
	}
}

func TestErrorsCarryTheirScope(t *testing.T) {
	b := NewBuilder(kernel.F32)
	x := b.Batch("x", floats(4, 8))
	w := b.Frozen("w", floats(3, 7))
	var y *Value
	b.In("model", func() {
		b.In("layers.3", func() {
			b.In("self_attn", func() { y = b.Apply(kernel.MatMul{TransB: true}, x, w) })
		})
		y = b.Apply(kernel.Add{}, y, x) // no effect: the first error stays
	})
	b.Apply(kernel.SwiGLU{}, y, nil)
	const want = "model.layers.3.self_attn: matmul: input 1 is f32[3,7], want w[N,K] with N=3 K=8: dimension 1 is 7"
	if b.Err() == nil || b.Err().Error() != want {
		t.Errorf("got  %v\nwant %s", b.Err(), want)
	}
	if _, err := b.Compile(1, y); err == nil || err.Error() != want {
		t.Errorf("Compile: %v", err)
	}
	if b.Scope() != "" {
		t.Errorf("the scope outside is %q", b.Scope())
	}
}

func TestErrors(t *testing.T) {
	loss := func(b *Builder, x *Value) *Value {
		head, labels, scale := b.Frozen("head", floats(5, x.Width())), b.Batch("labels", kernel.T(kernel.I32, 4)),
			b.Batch("scale", floats(1))
		return b.Apply(kernel.LinearCrossEntropy{Chunk: 2, Grad: true}, x, head, labels, scale)
	}
	for _, c := range []struct {
		name, want string
		build      func(b *Builder) []*Value
	}{
		{"bf16", "a computation runs in f32 or f64, not bf16", func(b *Builder) []*Value {
			*b = *NewBuilder(kernel.BF16)
			return nil
		}},
		{"declared twice", `"x" is declared twice, as f32[4] and as f32[5]`, func(b *Builder) []*Value {
			b.Batch("x", floats(4))
			b.Batch("x", floats(5))
			return nil
		}},
		{"two kinds", `"x" is declared twice, as f32[4] and as f32[4]`, func(b *Builder) []*Value {
			b.Batch("x", floats(4))
			b.State("", "x", floats(4))
			return nil
		}},
		{"missing input", "a.b: add: input 1 is missing", func(b *Builder) []*Value {
			b.In("a", func() { b.In("b", func() { b.Apply(kernel.Add{}, b.Batch("x", floats(4)), nil) }) })
			return nil
		}},
		{"missing output", "an output is missing", func(b *Builder) []*Value { return []*Value{nil} }},
		{"crosses segments", "two: add reads one: add#0.0, which segment first computes: only State crosses segments",
			func(b *Builder) []*Value {
				var y *Value
				x := b.Batch("x", floats(4))
				b.Segment("first")
				b.In("one", func() { y = b.Apply(kernel.Add{}, x, x) })
				b.Segment("second")
				b.In("two", func() { y = b.Apply(kernel.Add{}, y, x) })
				return []*Value{y}
			}},
		{"segment twice", `segment "first" is begun twice`, func(b *Builder) []*Value {
			x := b.Batch("x", floats(4))
			b.Segment("first")
			b.Apply(kernel.Add{}, x, x)
			b.Segment("second")
			b.Apply(kernel.Add{}, x, x)
			b.Segment("first")
			return nil
		}},
		{"span and members", `segment main uses both the span and the members of "g"`, func(b *Builder) []*Value {
			p := b.State("g", "p", floats(16))
			b.Apply(kernel.Zero{}, b.Span("g"))
			b.Apply(kernel.Zero{}, p)
			return nil
		}},
		{"span too early", `the span of "g" was taken before all its members were declared`, func(b *Builder) []*Value {
			b.State("g", "p", floats(16))
			b.Apply(kernel.Zero{}, b.Span("g"))
			b.State("g", "q", floats(16))
			return nil
		}},
		{"writes over a batch", "add overwrites x, which a run may only read", func(b *Builder) []*Value {
			x := b.Batch("x", floats(4))
			return []*Value{b.Apply(kernel.AddTo{}, x, x)}
		}},
		{"writes over what is read", "add overwrites add#0.0, which is read afterwards", func(b *Builder) []*Value {
			x := b.Batch("x", floats(4))
			y := b.Apply(kernel.Add{}, x, x)
			z := b.Apply(kernel.AddTo{}, y, x)
			return []*Value{b.Apply(kernel.Add{}, y, z)}
		}},
		{"reads a state that was written over",
			"add reads s, which zero has written over: read that call's output, or read it before",
			func(b *Builder) []*Value {
				s, x := b.State("", "s", floats(4)), b.Batch("x", floats(4))
				b.Apply(kernel.Zero{}, s)
				return []*Value{b.Apply(kernel.Add{}, s, x)}
			}},
		{"writes over an output", "add overwrites add#0.0, which is read afterwards", func(b *Builder) []*Value {
			x := b.Batch("x", floats(4))
			y := b.Apply(kernel.Add{}, x, x)
			return []*Value{y, b.Apply(kernel.AddTo{}, y, x)}
		}},
		{"loss that is no scalar", "differentiate: the loss is f32[4], not a scalar", func(b *Builder) []*Value {
			p := b.Param("g", "p", floats(4))
			return b.Grad(b.Apply(kernel.Add{}, p, p), p)
		}},
		{"differentiated twice", "differentiate: a computation is differentiated once", func(b *Builder) []*Value {
			p := b.Param("g", "p", floats(4, 3))
			l := loss(b, p)
			b.Grad(l, p)
			return b.Grad(l, p)
		}},
		{"independent parameter", "differentiate: the loss does not depend on q", func(b *Builder) []*Value {
			p, q := b.Param("g", "p", floats(4, 3)), b.Param("g", "q", floats(4, 3))
			return b.Grad(loss(b, p), p, q)
		}},
		{"no parameter", "differentiate: x is no parameter", func(b *Builder) []*Value {
			p, x := b.Param("g", "p", floats(4, 3)), b.Batch("x", floats(4, 3))
			return b.Grad(loss(b, b.Apply(kernel.Add{}, p, x)), x)
		}},
		{"frozen where trained",
			"differentiate: rotated: rope passes no gradient to its input 1, which depends on parameters",
			func(b *Builder) []*Value {
				p, q := b.Param("g", "p", floats(4, 2)), b.Param("g", "q", floats(4, 2))
				var y *Value
				b.In("rotated", func() {
					y = b.Apply(kernel.RoPE{Heads: 1, HeadDim: 2}, p, q, b.Batch("positions", kernel.T(kernel.I32, 4)))
				})
				return b.Grad(loss(b, y), p)
			}},
		{"loss without gradient",
			"differentiate: crossentropy passes no gradient to its input 0, which depends on parameters",
			func(b *Builder) []*Value {
				p := b.Param("g", "p", floats(4, 3))
				l := b.Apply(kernel.LinearCrossEntropy{Chunk: 2}, p, b.Frozen("head", floats(5, 3)),
					b.Batch("labels", kernel.T(kernel.I32, 4)), b.Batch("scale", floats(1)))
				return b.Grad(l, p)
			}},
		{"side output", "differentiate: the loss depends on parameters through output 1 of two_outputs, which passes no gradient", func(b *Builder) []*Value {
			p := b.Param("g", "p", floats(4, 3))
			return b.Grad(loss(b, b.ApplyAll(twoOutputs{}, p)[1]), p)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBuilder(kernel.F32)
			outputs := c.build(b)
			_, err := b.Compile(1, outputs...)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// twoOutputs copies its input twice; a gradient flows through the first output only.
type twoOutputs struct{}

func (twoOutputs) Name() string { return "two_outputs" }
func (twoOutputs) Shape(in []kernel.Type) ([]kernel.Type, error) {
	return []kernel.Type{in[0], in[0]}, nil
}
func (twoOutputs) Grads() kernel.Backward {
	return kernel.Backward{Grads: []kernel.Ref{kernel.Upstream()}}
}
func (twoOutputs) CPU(_ *kernel.CPU, in, out []kernel.Tensor) func() {
	return func() {
		copy(out[0].Bytes(), in[0].Bytes())
		copy(out[1].Bytes(), in[0].Bytes())
	}
}

// A kernel whose gradient is that of the end of a graph, used in its middle.
func TestTerminalInTheMiddle(t *testing.T) {
	b := NewBuilder(kernel.F32)
	p := b.Param("g", "p", floats(4, 3))
	var l *Value
	b.In("loss", func() {
		l = b.Apply(kernel.LinearCrossEntropy{Chunk: 2, Grad: true}, p, b.Frozen("head", floats(5, 3)),
			b.Batch("labels", kernel.T(kernel.I32, 4)), b.Batch("scale", floats(1)))
	})
	sum := b.Apply(kernel.Add{}, l, b.Batch("other", floats()))
	b.Grad(sum, p)
	if err := b.Err(); err != nil {
		t.Fatalf("a loss plus a constant has the loss's gradient: %v", err)
	}

	b = NewBuilder(kernel.F32)
	p = b.Param("g", "p", floats(4, 3))
	b.In("loss", func() {
		l = b.Apply(kernel.LinearCrossEntropy{Chunk: 2, Grad: true}, p, b.Frozen("head", floats(5, 3)),
			b.Batch("labels", kernel.T(kernel.I32, 4)), b.Batch("scale", floats(1)))
	})
	b.Grad(b.Apply(kernel.SwiGLU{}, l, l), p)
	const want = "loss: crossentropy: its gradient holds at the end of a graph only"
	if err := b.Err(); err == nil || !strings.HasPrefix(err.Error(), "differentiate: ") ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestCompiledOnce(t *testing.T) {
	b := NewBuilder(kernel.F32)
	x := b.Batch("x", floats(4, 4))
	y := b.Apply(kernel.Add{}, x, b.Apply(kernel.MatMul{}, x, x))
	mustCompile(t, b, y)
	if _, err := b.Compile(1, y); err == nil || err.Error() != "a computation is compiled once" {
		t.Errorf("compiled again: %v", err)
	}
}
