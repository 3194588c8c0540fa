//go:build gpu

package kernel

import (
	"slices"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// bindLowRank queues GEMMs that share what is wide: d, a and b are the operands as a GEMM has them, the
// shared one alone. ok is false where no kernel serves or an address is no multiple of 16 bytes.
func (p gemmOp) bindLowRank(g *GPU, d, a, b []gpu.Ptr, scratch gpu.Ptr) (work func() error, ok bool, err error) {
	l, form := p.lowRank(max(len(d), len(a), len(b)))
	all := gpu.Ptr(0)
	for _, list := range [][]gpu.Ptr{d, a, b} {
		for _, x := range list {
			all |= x
		}
	}
	wide := map[lowRankForm][]gpu.Ptr{lowRankDown: a, lowRankUp: d, lowRankGrad: b, lowRankGradFlipped: a}[form]
	// In a model that is no wider than a rank, what GEMMs share may be their narrow operand: then there are several wide ones.
	if len(wide) != 1 || all%16 != 0 || g.Precision.Stored(ComputeType) == F32 {
		return nil, false, nil
	}
	layout, _ := p.layout()
	sizes := []any{int32(l.M), int32(l.C), int32(l.R)}
	switch form {
	case lowRankDown:
		work, err = g.Launch(l.Down(layout), slices.Concat(four(d), []any{wide[0]}, four(b), []any{int32(l.Count)}, sizes, []any{p.alpha})...)
	case lowRankUp:
		at, tiles := l.Up(layout)
		work, err = g.Launch(at, slices.Concat([]any{wide[0]}, four(a), four(b), sizes, []any{int32(tiles), p.alpha, p.beta})...)
	default:
		narrow, flip := a, int32(0)
		if form == lowRankGradFlipped {
			narrow, flip = b, 1
		}
		at, shares := l.Grad()
		counters := gpu.Ptr(0)
		if shares > 0 {
			counters = g.counters()
		}
		work, err = g.Launch(at, slices.Concat(four(d), []any{wide[0]}, four(narrow), []any{int32(l.Count)}, sizes, []any{flip, p.alpha, p.beta, scratch, counters})...)
	}
	return work, true, err
}

// four are addresses as lowrank.cu takes them.
func four(p []gpu.Ptr) []any {
	args := make([]any, 4)
	for i := range args {
		args[i] = gpu.Ptr(0)
		if i < len(p) {
			args[i] = p[i]
		}
	}
	return args
}
