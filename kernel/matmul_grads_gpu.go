//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/gpu"

// GPU is one reading of dy where sizes, types and addresses allow it, else the two GEMMs.
func (k MatMulGrads) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	l, ok := gradsLaunch(in[0].Type, in[1].Type, g.Device.SM())
	if !ok || (in[0].Ptr|in[1].Ptr|in[2].Ptr|out[0].Ptr|out[1].Ptr|g.Scratch)%16 != 0 {
		first, second := gradsOperands(in)
		dt, err := k.first().GPU(g, first, out[:1])
		if err != nil {
			return nil, err
		}
		db, err := k.second().GPU(g, second, out[1:])
		if err != nil {
			return nil, err
		}
		return inOrder(dt, db), nil
	}
	at := l.Grads()
	wide, err := gpu.NewTensorMap(in[0].Ptr, []int64{int64(l.C), int64(l.M)}, []int64{int64(2 * l.C)}, at.Box[:], 128)
	if err != nil {
		return nil, err
	}
	dts, dbs := g.Scratch, g.Scratch.Add(at.ScratchDT)
	pass, err := g.Launch(at.Pass, wide, in[1].Ptr, in[2].Ptr, dts, dbs, int32(l.M), int32(l.C), int32(at.Tiles))
	if err != nil {
		return nil, err
	}
	finish, err := g.Launch(at.Finish, out[0].Ptr, out[1].Ptr, dts, dbs, int64(l.M*l.R), int64(l.C*l.R),
		int32(at.Pass.Grid[0]), int32(at.Pass.Grid[1]), float32(k.first().alpha()))
	if err != nil {
		return nil, err
	}
	return inOrder(pass, finish), nil
}
