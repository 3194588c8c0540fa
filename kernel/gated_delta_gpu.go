//go:build gpu

package kernel

import (
	"errors"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// arguments returns the inputs of the rule and the sizes, which all of its kernels end with.
func (o GatedDelta) arguments(in []DeviceTensor) []any {
	return []any{in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, in[4].Ptr, in[5].Ptr, int32(in[0].Shape[0]),
		int32(in[5].Shape[0] - 1), int32(o.KeyHeads), int32(o.ValueHeads),
		int32(o.KeySize), int32(o.valueSize(in[0].Type))}
}

// deltaLaunches are launches one after the other, of which all end with the rule's arguments.
type deltaLaunches struct {
	g      *GPU
	inputs []any
	all    []func() error
	err    error
}

func (l *deltaLaunches) add(at cuda.Geometry, args ...any) {
	work, err := l.g.Launch(at, append(args, l.inputs...)...)
	l.all, l.err = append(l.all, work), errors.Join(l.err, err)
}

// GPU goes over the rows in windows, from the first to the last.
func (o GatedDelta) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, S, E, s, l := in[0].Shape[0], in[5].Shape[0]-1, o.valueSize(in[0].Type), o.scratch(in[0].Type),
		deltaLaunches{g: g, inputs: o.arguments(in)}
	for from := 0; from < M; from += cuda.DeltaWindow {
		to, turn := int32(min(from+cuda.DeltaWindow, M)), int64(from/cuda.DeltaWindow%2)
		behind, ahead := g.Scratch.Add(s.Edges+turn*s.Edge), g.Scratch.Add(s.Edges+(1-turn)*s.Edge)
		l.add(cuda.GatedDeltaPrepare(int(to)-from, o.KeyHeads), g.Scratch, out[0].Ptr, int32(from), to)
		l.add(cuda.GatedDelta(S, o.ValueHeads, E), out[0].Ptr, behind, ahead, g.Scratch, int32(from), to)
	}
	return inOrder(l.all...), l.err
}

// GPU goes over the rows in windows, from the last to the first. Where there are several, the states before them are
// worked out first.
func (o GatedDeltaGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	rule, dy, M, S, E := GatedDelta(o), in[6].Ptr, in[0].Shape[0], in[5].Shape[0]-1, GatedDelta(o).valueSize(in[0].Type)
	s, window, l := o.scratch(in[0].Type), cuda.DeltaWindow, deltaLaunches{g: g, inputs: rule.arguments(in)}
	prepared, states, grads := g.Scratch, g.Scratch.Add(s.States), g.Scratch.Add(s.Grads)
	forward := func(from int, states, ahead gpu.Ptr) {
		to := min(from+window, M)
		l.add(cuda.GatedDeltaPrepare(to-from, o.KeyHeads), prepared, gpu.Ptr(0), int32(from), int32(to))
		l.add(cuda.GatedDeltaStates(S, o.ValueHeads, E), states, g.Scratch.Add(s.Borders+int64(from/window)*s.Edge),
			ahead, prepared, int32(from), int32(to))
	}
	for from := 0; from+window < M; from += window {
		forward(from, 0, g.Scratch.Add(s.Borders+int64(from/window+1)*s.Edge))
	}
	for from := (M - 1) / window * window; from >= 0; from -= window {
		to, turn := min(from+window, M), int64(from/window%2)
		behind, before := g.Scratch.Add(s.Edges+(1-turn)*s.Edge), g.Scratch.Add(s.Edges+turn*s.Edge)
		forward(from, states, 0)
		l.add(cuda.GatedDeltaCarry(S, o.ValueHeads, E), out[0].Ptr, grads, behind, before, prepared, dy, int32(from),
			int32(to))
		l.add(cuda.GatedDeltaGradients(to-from, o.KeyHeads), out[0].Ptr, out[1].Ptr, out[2].Ptr, dy, states, grads,
			prepared, int32(from))
	}
	return inOrder(l.all...), l.err
}

func (o GatedDeltaCached) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, S, E := in[0].Shape[0], in[5].Shape[0]-1, o.Rule.valueSize(in[0].Type)
	return g.Launch(cuda.GatedDeltaCached(S, o.Rule.ValueHeads, E), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr,
		in[2].Ptr, in[3].Ptr, in[4].Ptr, in[5].Ptr, in[6].Ptr,
		int32(M), int32(S), int32(o.Rule.KeyHeads), int32(o.Rule.ValueHeads), int32(o.Rule.KeySize), int32(E),
		int32(in[7].Shape[0]), int32(o.Tokens))
}
