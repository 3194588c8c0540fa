//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU gives a thread block 128 rows of 32 columns of a block.
func (o BlockRotate) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.BlockRotate(M, C, o.Block), out[0].Ptr, in[0].Ptr, in[1].Ptr, int32(M), int32(C),
		int32(o.Block), flag(o.TransB))
}

// GPU sums slices of rows, and then the slices in their order.
func (o BlockOuter) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	rows, err := g.Launch(cuda.BlockOuter(M, C, o.Block, blockOuterSlice), g.Scratch, in[0].Ptr, in[1].Ptr, int32(M),
		int32(C), int32(o.Block), int32(blockOuterSlice))
	if err != nil {
		return nil, err
	}
	total := int64(C) * int64(o.Block)
	sum, err := g.Launch(cuda.BlockSum(total), out[0].Ptr, g.Scratch, total,
		int32(cuda.BlockSlices(M, blockOuterSlice)))
	return inOrder(rows, sum), err
}
