//go:build gpu

package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// PacksOnGPU is a GEMM with a packed weight whose numbers the device can pack.
type PacksOnGPU interface {
	Kernel
	// PackGPU plans to pack the weight from numbers of type from. dst is where the GEMM reads its inputs
	// after x; dequantised, one place for the numbers that the packed weight stands for. ok is false where g has
	// no kernel for it.
	PackGPU(g *GPU, dst []DeviceTensor, from DType, dequantised bool) (p Packing, ok bool)
}

// Packing packs one weight. Its work is queued on the stream of the g that it is given: pieces on any streams,
// Finish when all of them are done.
type Packing struct {
	Block   int   // a piece begins at a multiple of so many numbers
	Staging int64 // bytes of working memory, in use from the first piece to the end of Finish
	// Piece packs numbers [from, from+n), which lie at src.
	Piece func(g *GPU, staging, src gpu.Ptr, from, n int) error
	// Finish makes the scales final. check receives an f32 that is finite if and only if all numbers are.
	Finish func(g *GPU, staging, check gpu.Ptr) error
}

// On returns g for work on another stream, which may be another goroutine's: the same device, kernels, precision and
// constants.
func (g *GPU) On(s *gpu.Stream) *GPU {
	if g.code == nil {
		g.code = newCode()
	}
	return &GPU{Precision: g.Precision, Device: g.Device, Stream: s, Constants: g.Constants, code: g.code}
}

// Once queues a kernel that runs a single time.
func (g *GPU) Once(at cuda.Geometry, args ...any) error {
	f, err := g.function(at.Stem, at.Entry)
	if err != nil {
		return err
	}
	l, err := f.Prepare(at.Grid, at.Block, at.Shared, args...)
	if err != nil {
		return err
	}
	defer l.Free()
	return l.Run(g.Stream)
}

// Converts tells whether the device has a kernel for Convert.
func Converts(from, to DType) bool {
	at := cuda.Convert(from.String(), to.String(), 1)
	return cuda.Has(at.Stem, at.Entry)
}

// Convert queues dst <- src, n numbers of another element type, to nearest. Addresses are multiples of 16.
func (g *GPU) Convert(dst gpu.Ptr, to DType, src gpu.Ptr, from DType, n int) error {
	if !Converts(from, to) {
		return fmt.Errorf("%v cannot be converted to %v on the device", from, to)
	}
	return g.Once(cuda.Convert(from.String(), to.String(), int64(n)), dst, src, int64(n))
}
