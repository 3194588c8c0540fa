package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// slow says whether attention whose output is of type y goes by mma.sync on a device whose fast kernels are wgmma's.
func (o Attention) slow(y Type, sm int) SlowPath {
	a, D, err := o.geometry(y, sm)
	if err != nil || sm != 90 || a.Family != cuda.MMA {
		return SlowPath{}
	}
	cost := NotMeasured
	switch {
	case D > 256:
		cost = "heads of 512 reach 103 and 74 TFLOP/s forward and backward where heads of 256 reach 192 and 94 (H200, docs/internals/decisions/0094-heads-of-512.md)"
	case D > 128:
		cost = "heads of 256 reach 177 and 100 TFLOP/s forward and backward where heads of 128 reach 490 and 310 to 350 (H200, docs/PERFORMANCE.md)"
	}
	return SlowPath{fmt.Sprintf("attention over heads of %d runs on mma.sync: compute capability 9.0 has wgmma kernels for heads of 40 to 128", D),
		cost, "none for this model; without training.strict the run goes by it"}
}

func (o Attention) SlowGPU(_, out []Type, sm int) SlowPath { return o.slow(out[0], sm) }

func (o AttentionQKV) SlowGPU(_, out []Type, sm int) SlowPath { return Attention(o).slow(out[0], sm) }
