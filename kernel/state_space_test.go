package kernel_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestColumnsConv(t *testing.T) {
	for _, l := range stretches {
		for _, filter := range []int{1, 2, 4} {
			for _, width := range []int{1, 24, 43} {
				x, w, b, cu := kerneltest.Normal(l.rows, width+8), kerneltest.Normal(width, filter),
					kerneltest.Normal(width), kerneltest.Ints(l.cu, len(l.cu))
				name := fmt.Sprintf("%s, %d of %d", l.name, filter, width)
				kerneltest.Run(t,
					kerneltest.Case{Name: name, Kernel: kernel.ColumnsConv{From: 5},
						In: []kerneltest.Input{x, w, b, cu}, Bound: 5e-7},
					kerneltest.Case{Name: name + " backward", Kernel: kernel.ColumnsConvGrad{From: 5},
						In: []kerneltest.Input{x, w, b, cu, x}, Bound: 9e-7},
				)
			}
		}
	}
}

func TestStateSpace(t *testing.T) {
	for _, l := range stretches {
		for _, s := range [][4]int{{1, 1, 2, 3}, {4, 2, 6, 5}, {6, 1, 3, 16}} {
			// Limits that all steps exceed: central differences across a kink would say nothing.
			for _, limits := range [][2]float64{{}, {0, 1e-3}} {
				o := kernel.StateSpace{Heads: s[0], Groups: s[1], State: s[3], MinStep: limits[0], MaxStep: limits[1]}
				inner := s[0] * s[2]
				each := kerneltest.Normal(s[0])
				in := []kerneltest.Input{kerneltest.Normal(l.rows, 2*inner+2*s[1]*s[3]+s[0]), each, each, each,
					kerneltest.Ints(l.cu, len(l.cu))}
				name := fmt.Sprintf("%s, %d heads of %d and %d groups of %d, limits %v", l.name, s[0], s[2], s[1], s[3],
					limits)
				kerneltest.Run(t,
					kerneltest.Case{Name: name, Kernel: o, In: in, Bound: 1e-6},
					kerneltest.Case{Name: name + " backward", Kernel: kernel.StateSpaceGrad(o),
						In: append(slices.Clone(in), kerneltest.Normal(l.rows, inner)), Bound: 3e-6},
				)
			}
		}
	}
}

// TestStateSpaceEqualsTransformers compares with transformers' functions in float64, and with their gradients by
// autograd.
func TestStateSpaceEqualsTransformers(t *testing.T) {
	g := golden.Open(t, golden.Path(t, "state_space/scan.safetensors"))
	tensor := func(name string) kernel.Tensor { return f64s(g.Floats(name), g.Shape(name)...) }
	rows, heads, inner := g.Shape("parts")[0], g.Shape("skip")[0], g.Shape("y")[1]
	conv := kernel.ColumnsConv{From: inner}
	scan := kernel.StateSpace{Heads: heads, Groups: 2, State: 3, MinStep: 0.1, MaxStep: 1.5}
	cu := i32s([]int32{0, int32(rows)})
	convolved := evaluate(t, conv, tensor("parts"), tensor("w"), tensor("b"), cu)[0]
	near(t, "convolution", convolved.F64(), g.Floats("convolved"), 1e-13)
	in := []kernel.Tensor{convolved, tensor("dt_bias"), tensor("a_log"), tensor("skip"), cu}
	near(t, "scan", evaluate(t, scan, in...)[0].F64(), g.Floats("y"), 1e-12)
	grad := evaluate(t, kernel.StateSpaceGrad(scan), append(in, tensor("dy"))...)[0]
	got := evaluate(t, kernel.ColumnsConvGrad(conv), tensor("parts"), tensor("w"), tensor("b"), cu, grad)[0]
	near(t, "gradient", got.F64(), g.Floats("dparts"), 1e-11)
}

// TestStateSpacePacked: the rows of packed sequences give bit for bit what each gives alone, and so do their gradients:
// no state and no convolution crosses a border.
func TestStateSpacePacked(t *testing.T) {
	const rows, cut, heads, groups, N, P = 17, 6, 4, 2, 5, 3
	width := 2*heads*P + 2*groups*N + heads
	scan, conv := kernel.StateSpace{Heads: heads, Groups: groups, State: N}, kernel.ColumnsConv{From: heads * P}
	floats := func(seed uint64, shape ...int) kernel.Tensor {
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
	filtered := heads*P + 2*groups*N
	w, b, each := floats(1, filtered, 4), floats(2, filtered), floats(3, heads)
	run := func(x, dy kernel.Tensor, cu ...int32) (y, dx []float32) {
		bounds := i32s(cu)
		mixed := evaluate(t, conv, x, w, b, bounds)[0]
		out := evaluate(t, scan, mixed, each, each, each, bounds)[0]
		grad := evaluate(t, kernel.StateSpaceGrad(scan), mixed, each, each, each, bounds, dy)[0]
		return out.F32(), evaluate(t, kernel.ColumnsConvGrad(conv), x, w, b, bounds, grad)[0].F32()
	}
	x, dy := floats(4, rows, width), floats(5, rows, heads*P)
	y, dx := run(x, dy, 0, cut, rows)
	for _, s := range [][2]int{{0, cut}, {cut, rows}} {
		from, to := s[0], s[1]
		alone, dalone := run(part(x, from, to), part(dy, from, to), 0, int32(to-from))
		if !slices.Equal(alone, y[from*heads*P:to*heads*P]) || !slices.Equal(dalone, dx[from*width:to*width]) {
			t.Errorf("rows %d..%d: packed they differ from what they are alone", from, to)
		}
	}
}

// TestStateSpaceCached: two texts in pieces, side by side and by themselves, are bit for bit what each is whole; a text
// that begins in a slot does not read what the slot held, and slots without a row stay as they are.
func TestStateSpaceCached(t *testing.T) {
	const tokens, slots, heads, groups, N, P, filter = 30, 3, 4, 2, 5, 6, 4
	width, filtered := 2*heads*P+2*groups*N+heads, heads*P+2*groups*N
	scan, conv := kernel.StateSpace{Heads: heads, Groups: groups, State: N}, kernel.ColumnsConv{From: heads * P}
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
	w, b, each := normal(1, filtered, filter), normal(2, filtered), normal(3, heads)
	var xs, mixed, want []kernel.Tensor
	for i, rows := range []int{21, 9} {
		xs = append(xs, normal(uint64(10+i), rows, width))
		cu := i32s([]int32{0, int32(rows)})
		mixed = append(mixed, evaluate(t, conv, xs[i], w, b, cu)[0])
		want = append(want, evaluate(t, scan, mixed[i], each, each, each, cu)[0])
	}
	rows, state := normal(40, slots, (filter-1)*filtered), normal(41, slots, heads*P*N) // what earlier texts left
	// step runs the next tokens of text 0 in slot 2 and of text 1 in slot 1, with bounds as an engine gives them.
	step := func(from0, to0, from1, to1 int) {
		n0, n1 := to0-from0, to1-from1
		cuQ := i32s([]int32{0, int32(n0), int32(n0), int32(n0 + n1)})
		cuK := i32s([]int32{2 * tokens, int32(2*tokens + to0), tokens, int32(tokens + to1)})
		untouched := [2][]float32{slices.Clone(part(rows, 0, 1).F32()), slices.Clone(part(state, 0, 1).F32())}
		out := evaluate(t, kernel.ColumnsConvCached{From: conv.From, Tokens: tokens},
			join(part(xs[0], from0, to0), part(xs[1], from1, to1)), w, b, cuQ, cuK, rows)
		same := func(what string, got kernel.Tensor, of []kernel.Tensor) {
			if !slices.Equal(got.F32(), join(part(of[0], from0, to0), part(of[1], from1, to1)).F32()) {
				t.Errorf("%s, tokens %d..%d and %d..%d: not what the whole texts give", what, from0, to0, from1, to1)
			}
		}
		same("convolution", out[0], mixed)
		rows = out[1]
		scanned := evaluate(t, kernel.StateSpaceCached{Scan: scan, Tokens: tokens}, out[0], each, each, each, cuQ, cuK,
			state)
		same("scan", scanned[0], want)
		state = scanned[1]
		if !slices.Equal(part(rows, 0, 1).F32(), untouched[0]) || !slices.Equal(part(state, 0, 1).F32(), untouched[1]) {
			t.Error("a slot without a row has changed")
		}
	}
	step(0, 7, 0, 0)
	step(7, 8, 0, 2)
	step(8, 10, 2, 3)
	step(10, 21, 3, 9)
}

func TestStateSpaceCachedCases(t *testing.T) {
	const tokens, rows = 8, 7
	scan := kernel.StateSpace{Heads: 2, Groups: 1, State: 3}
	cuQ, cuK := kerneltest.Ints([]int32{0, 3, 3, 5}, 4), kerneltest.Ints([]int32{8, 13, 0, 2}, 4)
	x, each := kerneltest.Normal(rows, 2*2*4+2*3+2), kerneltest.Normal(2)
	kerneltest.Run(t,
		kerneltest.Case{Name: "convolution", Kernel: kernel.ColumnsConvCached{From: 8, Tokens: tokens},
			In: []kerneltest.Input{x, kerneltest.Normal(14, 4), kerneltest.Normal(14), cuQ, cuK,
				kerneltest.Normal(2, 3*14)}, Bound: 5e-7},
		kerneltest.Case{Name: "scan", Kernel: kernel.StateSpaceCached{Scan: scan, Tokens: tokens},
			In: []kerneltest.Input{x, each, each, each, cuQ, cuK, kerneltest.Normal(2, 2*3*4)}, Bound: 1e-6},
	)
}

func TestStateSpaceRefusals(t *testing.T) {
	f, i := func(shape ...int) kernel.Type { return kernel.T(kernel.F32, shape...) }, kernel.T(kernel.I32, 2)
	scan := kernel.StateSpace{Heads: 2, Groups: 1, State: 3}
	for what, c := range map[string]struct {
		o  kernel.StateSpace
		in []kernel.Type
	}{
		"a column too few": {scan, []kernel.Type{f(5, 23), f(2), f(2), f(2), i}},
		"heads for a group": {kernel.StateSpace{Heads: 3, Groups: 2, State: 3},
			[]kernel.Type{f(5, 24), f(3), f(3), f(3), i}},
		"another head": {scan, []kernel.Type{f(5, 24), f(3), f(3), f(3), i}},
		"limits out of order": {kernel.StateSpace{Heads: 2, Groups: 1, State: 3, MinStep: 2, MaxStep: 1},
			[]kernel.Type{f(5, 24), f(2), f(2), f(2), i}},
		"no bounds":            {scan, []kernel.Type{f(5, 24), f(2), f(2), f(2), kernel.T(kernel.I32, 0)}},
		"a state of no column": {kernel.StateSpace{Heads: 2, Groups: 1}, []kernel.Type{f(5, 24), f(2), f(2), f(2), i}},
	} {
		if _, err := c.o.Shape(c.in); err == nil {
			t.Errorf("%s: %v is accepted", what, c.in)
		}
	}
	if _, err := (kernel.ColumnsConv{From: 3}).Shape([]kernel.Type{f(5, 6), f(4, 2), f(4), i}); err == nil {
		t.Error("columns beyond the last are accepted")
	}
}
