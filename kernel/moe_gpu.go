//go:build gpu

package kernel

import (
	"cmp"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

func (o RouteExperts) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, E := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.MoERoute(M, E), out[0].Ptr, out[1].Ptr, in[0].Ptr, int32(M), int32(E), int32(o.TopK),
		flag(o.Normalise))
}

func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

func (o RouteExpertsGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, E, K := in[0].Shape[0], in[0].Shape[1], in[1].Shape[1]
	return g.Launch(cuda.MoERouteGrad(M, E), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(M), int32(E), int32(K),
		flag(o.Normalise))
}

func (o RouteScores) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, E := in[0].Shape[0], in[0].Shape[1]
	var correction gpu.Ptr
	if o.Corrected {
		correction = in[1].Ptr
	}
	softmax, normalise, epsilon, least, scale := o.Weigh.arguments()
	return g.Launch(cuda.MoEScores(M, E), out[0].Ptr, out[1].Ptr, in[0].Ptr, correction, int32(M), int32(E),
		int32(o.TopK), int32(o.Groups), int32(o.TopGroups), int32(o.Best), softmax, normalise, epsilon, least, scale)
}

// arguments returns the weights' settings as kernels take them.
func (w ScoreWeights) arguments() (softmax, normalise int32, epsilon, least, scale float32) {
	return flag(w.Softmax), flag(w.Normalise), float32(w.Epsilon), float32(w.Least), float32(cmp.Or(w.Scale, 1))
}

func (o RouteScoresGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, E, K := in[0].Shape[0], in[0].Shape[1], in[1].Shape[1]
	softmax, normalise, epsilon, least, scale := o.Weigh.arguments()
	return g.Launch(cuda.MoEScoresGrad(M, E), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(M), int32(E), int32(K),
		softmax, normalise, epsilon, least, scale)
}

func (WeighExperts) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n, E := int64(out[0].Elems()), int32(in[2].Elems())
	return g.Launch(cuda.MoEWeigh(n), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, E, n)
}

func (o SortByExpert) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n, E, K := in[0].Elems(), o.Experts, in[0].Shape[1]
	var real gpu.Ptr
	if o.Real {
		real = in[1].Ptr
	}
	count, err := g.Launch(cuda.MoECount(n, E), g.Scratch, in[0].Ptr, real, int32(n), int32(E), int32(K))
	if err != nil {
		return nil, err
	}
	offsets, err := g.Launch(cuda.MoEOffsets(), out[2].Ptr, g.Scratch, int32(cuda.MoEPieces(n)), int32(E))
	if err != nil {
		return nil, err
	}
	place, err := g.Launch(cuda.MoEPlace(n, E), out[0].Ptr, out[1].Ptr, in[0].Ptr, real, g.Scratch, out[2].Ptr,
		int32(n), int32(E), int32(K))
	return inOrder(count, offsets, place), err
}

func (GatherTokens) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	S, C := out[0].Shape[0], out[0].Shape[1]
	return g.Launch(cuda.MoERows("moe_gather", S, C), out[0].Ptr, in[0].Ptr, in[2].Ptr, int32(S), int32(C),
		int32(in[1].Shape[1]))
}

func (SumTokens) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := out[0].Shape[0], out[0].Shape[1]
	return g.Launch(cuda.MoERows("moe_sum", M, C), out[0].Ptr, in[0].Ptr, in[1].Ptr, int32(M), int32(C),
		int32(in[1].Shape[1]))
}

func (ScaleSlots) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	S, F := out[0].Shape[0], out[0].Shape[1]
	return g.Launch(cuda.MoERows("moe_scale", S, F), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[3].Ptr, int32(S), int32(F))
}

func (ScaleSlotsGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := in[2].Elems()
	return g.Launch(cuda.MoEScaleGrad(n), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(n), int32(in[0].Shape[1]))
}

func (o BalanceLoss) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, E := in[o.logits()].Shape[0], in[o.logits()].Shape[1]
	labels, scale, real, scores := in[1].Ptr, in[2].Ptr, in[3].Ptr, flag(o.Scores)
	part, share := g.Scratch, g.Scratch.Add(o.partBytes(E))
	var work []func() error
	add := func(f func() error, err error) error {
		work = append(work, f)
		return err
	}
	for l, x := range in[o.logits():] {
		at := part.Add(int64(l) * cuda.MoEBalanceBlocks * 2 * int64(E) * 4)
		if err := add(g.Launch(cuda.MoEBalanceRows(E), at, x.Ptr, real, int32(M), int32(E), int32(o.TopK),
			scores)); err != nil {
			return nil, err
		}
	}
	var scaling gpu.Ptr
	if o.Scaled {
		scaling = in[4].Ptr
	}
	if err := add(g.Launch(cuda.MoEBalanceFinish(), out[0].Ptr, share, in[0].Ptr, part, labels, scale, real, scaling,
		int32(o.Layers), int32(M), int32(E), float32(o.Coef))); err != nil {
		return nil, err
	}
	for l, x := range in[o.logits():] {
		if err := add(g.Launch(cuda.MoEBalanceGrad(M, E), out[1+l].Ptr, x.Ptr, share, real, int32(M), int32(E),
			int32(o.TopK), scores)); err != nil {
			return nil, err
		}
	}
	return inOrder(work...), nil
}
