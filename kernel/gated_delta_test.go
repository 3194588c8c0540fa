package kernel_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// stretches are packed sequences with rows before and behind them.
var stretches = []struct {
	name string
	cu   []int32
	rows int
}{
	{"one row", []int32{0, 1}, 1},
	{"one", []int32{0, 13}, 13},
	{"packed", []int32{0, 5, 5, 17, 20}, 23},
	{"rows before and behind", []int32{2, 9, 30}, 40},
	{"nothing", []int32{2}, 3},
}

func TestCausalConv(t *testing.T) {
	for _, l := range stretches {
		for _, filter := range []int{1, 2, 4} {
			for _, width := range []int{1, 24, 131} {
				x, w, cu := kerneltest.Normal(l.rows, width), kerneltest.Normal(width, filter),
					kerneltest.Ints(l.cu, len(l.cu))
				name := fmt.Sprintf("%s, %d of %d", l.name, filter, width)
				kerneltest.Run(t,
					kerneltest.Case{Name: name, Kernel: kernel.CausalConv{}, In: []kerneltest.Input{x, w, cu},
						Bound: 3e-7},
					kerneltest.Case{Name: name + " backward", Kernel: kernel.CausalConvGrad{},
						In: []kerneltest.Input{x, w, cu, x}, Bound: 9e-7},
				)
			}
		}
	}
}

func TestGatedDelta(t *testing.T) {
	for _, l := range stretches {
		for _, s := range [][4]int{{1, 1, 2, 3}, {2, 4, 6, 5}, {1, 3, 16, 8}} {
			o := kernel.GatedDelta{KeyHeads: s[0], ValueHeads: s[1], KeySize: s[2]}
			values := s[1] * s[3]
			in := []kerneltest.Input{kerneltest.Normal(l.rows, 2*s[0]*s[2]+values), kerneltest.Normal(l.rows, s[1]),
				kerneltest.Normal(l.rows, s[1]),
				kerneltest.Normal(s[1]), kerneltest.Normal(s[1]), kerneltest.Ints(l.cu, len(l.cu))}
			name := fmt.Sprintf("%s, %d and %d heads of %d and %d", l.name, s[0], s[1], s[2], s[3])
			kerneltest.Run(t,
				kerneltest.Case{Name: name, Kernel: o, In: in, Bound: 5e-7},
				kerneltest.Case{Name: name + " backward", Kernel: kernel.GatedDeltaGrad(o),
					In: append(slices.Clone(in), kerneltest.Normal(l.rows, values)), Bound: 1.3e-6},
			)
		}
	}
}

// TestGatedDeltaEqualsTransformers compares with transformers' functions in float64, and with their gradients by
// autograd.
func TestGatedDeltaEqualsTransformers(t *testing.T) {
	g := golden.Open(t, golden.Path(t, "linear_attention/delta.safetensors"))
	rows, values := g.Shape("b")[0], g.Shape("b")[1]
	in := func(names ...string) (all []kernel.Tensor) {
		for _, name := range names {
			all = append(all, f64s(g.Floats(name), g.Shape(name)...))
		}
		return all
	}
	cu := i32s([]int32{0, int32(rows)})
	near(t, "convolution", evaluate(t, kernel.CausalConv{}, append(in("x", "w"), cu)...)[0].F64(), g.Floats("mixed"),
		1e-13)
	near(t, "its gradient", evaluate(t, kernel.CausalConvGrad{},
		append(append(in("x", "w"), cu), in("dmixed")...)...)[0].F64(), g.Floats("dx"), 1e-12)
	o := kernel.GatedDelta{KeyHeads: values / 2, ValueHeads: values, KeySize: 3}
	near(t, "rule", evaluate(t, o, append(in("mixed", "b", "a", "log_a", "dt"), cu)...)[0].F64(), g.Floats("o"), 1e-13)
	got := evaluate(t, kernel.GatedDeltaGrad(o), append(append(in("mixed", "b", "a", "log_a", "dt"), cu),
		in("do")...)...)
	for i, name := range []string{"dmixed", "db", "da"} {
		near(t, name, got[i].F64(), g.Floats(name), 1e-12)
	}
}

// TestGatedDeltaCached: two texts in pieces, side by side and by themselves, are bit for bit what each is whole; a text
// that begins in a slot does not read what the slot held, and slots without a row stay as they are.
func TestGatedDeltaCached(t *testing.T) {
	const tokens, slots, keyHeads, valueHeads, D, E, filter = 30, 3, 2, 4, 6, 5, 4
	width := 2*keyHeads*D + valueHeads*E
	rule := kernel.GatedDelta{KeyHeads: keyHeads, ValueHeads: valueHeads, KeySize: D}
	normal := func(seed uint64, shape ...int) kernel.Tensor {
		n := kernel.T(kernel.F32, shape...).Elems()
		x := make([]float32, n)
		for i, v := range normal64(seed, n) {
			x[i] = float32(v)
		}
		return f32s(x, shape...)
	}
	part := func(x kernel.Tensor, from, to int) kernel.Tensor {
		w := x.Shape[1]
		return f32s(x.F32()[from*w:to*w], to-from, w)
	}
	join := func(a, b kernel.Tensor) kernel.Tensor {
		return f32s(append(slices.Clone(a.F32()), b.F32()...), a.Shape[0]+b.Shape[0], a.Shape[1])
	}
	w, logA, dt := normal(1, width, filter), normal(2, valueHeads), normal(3, valueHeads)
	var xs, bs, as, conv, want []kernel.Tensor
	for i, rows := range []int{21, 9} {
		x, b, a := normal(uint64(10+i), rows, width), normal(uint64(20+i), rows, valueHeads),
			normal(uint64(30+i), rows, valueHeads)
		cu := i32s([]int32{0, int32(rows)})
		xs, bs, as = append(xs, x), append(bs, b), append(as, a)
		conv = append(conv, evaluate(t, kernel.CausalConv{}, x, w, cu)[0])
		want = append(want, evaluate(t, rule, conv[i], b, a, logA, dt, cu)[0])
	}
	rows, state := normal(40, slots, (filter-1)*width), normal(41, slots, valueHeads*D*E) // what earlier texts left
	// step runs the next tokens of text 0 in slot 2 and of text 1 in slot 1, with bounds as an engine gives them.
	step := func(from0, to0, from1, to1 int) {
		n0, n1 := to0-from0, to1-from1
		cuQ := i32s([]int32{0, int32(n0), int32(n0), int32(n0 + n1)})
		cuK := i32s([]int32{2 * tokens, int32(2*tokens + to0), tokens, int32(tokens + to1)})
		untouched := [2][]float32{slices.Clone(part(rows, 0, 1).F32()), slices.Clone(part(state, 0, 1).F32())}
		out := evaluate(t, kernel.CausalConvCached{Tokens: tokens},
			join(part(xs[0], from0, to0), part(xs[1], from1, to1)), w, cuQ, cuK, rows)
		same := func(what string, got kernel.Tensor, of []kernel.Tensor) {
			if !slices.Equal(got.F32(), join(part(of[0], from0, to0), part(of[1], from1, to1)).F32()) {
				t.Errorf("%s, tokens %d..%d and %d..%d: not what the whole texts give", what, from0, to0, from1, to1)
			}
		}
		same("convolution", out[0], conv)
		rows = out[1]
		ruled := evaluate(t, kernel.GatedDeltaCached{Rule: rule, Tokens: tokens}, out[0],
			join(part(bs[0], from0, to0), part(bs[1], from1, to1)),
			join(part(as[0], from0, to0), part(as[1], from1, to1)), logA, dt, cuQ, cuK, state)
		same("rule", ruled[0], want)
		state = ruled[1]
		if !slices.Equal(part(rows, 0, 1).F32(), untouched[0]) || !slices.Equal(part(state, 0, 1).F32(), untouched[1]) {
			t.Error("a slot without a row has changed")
		}
	}
	step(0, 7, 0, 0)
	step(7, 8, 0, 2)
	step(8, 10, 2, 3)
	step(10, 21, 3, 9)
}

func TestGatedDeltaCachedCases(t *testing.T) {
	const tokens, rows = 8, 7
	rule := kernel.GatedDelta{KeyHeads: 1, ValueHeads: 2, KeySize: 3}
	cuQ, cuK := kerneltest.Ints([]int32{0, 3, 3, 5}, 4), kerneltest.Ints([]int32{8, 13, 0, 2}, 4)
	x, w, each, v := kerneltest.Normal(rows, 2*3+2*4), kerneltest.Normal(14, 4), kerneltest.Normal(rows, 2),
		kerneltest.Normal(2)
	kerneltest.Run(t,
		kerneltest.Case{Name: "convolution", Kernel: kernel.CausalConvCached{Tokens: tokens},
			In: []kerneltest.Input{x, w, cuQ, cuK, kerneltest.Normal(2, 3*14)}, Bound: 3e-7},
		kerneltest.Case{Name: "rule", Kernel: kernel.GatedDeltaCached{Rule: rule, Tokens: tokens},
			In: []kerneltest.Input{x, each, each, v, v, cuQ, cuK, kerneltest.Normal(2, 2*3*4)}, Bound: 5e-7},
	)
}
