package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// slow says whether a GEMM goes by mma.sync, on a device whose fast kernel is wgmma's, for no other reason than that rows of its
// matrices are no multiple of 16 bytes. Where experts have few rows, or a matrix has at most 64 rows or columns, others are as fast.
func (p expertShape) slow(sm int) SlowPath {
	even := p
	even.n, even.k = (p.n+7)/8*8, (p.k+7)/8*8
	if p.up() || p.hopper(sm) || even.up() || !even.hopper(sm) {
		return SlowPath{}
	}
	return SlowPath{fmt.Sprintf("experts' GEMMs of %d columns and depth %d run on mma.sync: compute capability 9.0 has wgmma kernels for multiples of 8", p.n, p.k),
		NotMeasured, "a lora.r that is a multiple of 8 where it is one of the two, else none for this model; without training.strict the run goes by it"}
}

// slowExperts is slow of experts' matrices [n,k], which are multiplied transposed or not.
func slowExperts(experts, n, k int, transposed bool, in []Type, sm int) SlowPath {
	if transposed {
		n, k = k, n
	}
	return expertShape{experts: experts, rows: in[0].Shape[0], n: n, k: k, operand: in[0].DType}.slow(sm)
}

func (k ExpertMatMul) SlowGPU(in, out []Type, sm int) SlowPath {
	return slowExperts(k.Experts, out[0].Shape[1], in[0].Shape[1], false, in, sm)
}

func (k ExpertMatMulTo) SlowGPU(in, out []Type, sm int) SlowPath {
	return ExpertMatMul(k).SlowGPU(in, out, sm)
}

func (k ExpertMatMulNF4) SlowGPU(in, _ []Type, sm int) SlowPath {
	return slowExperts(k.Experts, k.N, k.K, k.Transposed, in, sm)
}

func (k ExpertMatMulNF4To) SlowGPU(in, out []Type, sm int) SlowPath {
	return ExpertMatMulNF4(k).SlowGPU(in, out, sm)
}

func (k ExpertMatMulInt8) SlowGPU(in, _ []Type, sm int) SlowPath {
	return slowExperts(k.Experts, k.N, k.K, k.Transposed, in, sm)
}

func (k ExpertMatMulInt8To) SlowGPU(in, out []Type, sm int) SlowPath {
	return ExpertMatMulInt8(k).SlowGPU(in, out, sm)
}

func (k ExpertMatMulMXFP4) SlowGPU(in, _ []Type, sm int) SlowPath {
	return slowExperts(k.Experts, k.N, k.K, k.Transposed, in, sm)
}

func (k ExpertMatMulMXFP4To) SlowGPU(in, out []Type, sm int) SlowPath {
	return ExpertMatMulMXFP4(k).SlowGPU(in, out, sm)
}

// SlowGPU is that of Base, or that the update is a kernel of its own.
func (k ExpertUpdate) SlowGPU(in, out []Type, sm int) SlowPath {
	base, _, low := splitUpdate(k, in)
	if s, ok := k.Base.(SlowOnGPU); ok {
		if slow := s.SlowGPU(base, out, sm); slow.What != "" {
			return slow
		}
	}
	rank := low[0].Shape[1]
	p := expertShape{experts: k.Low.Experts, rows: base[0].Shape[0], n: out[0].Shape[1], k: base[0].Shape[1], operand: base[0].DType}
	if cuda.ExpertsTakeUpdate(rank) || p.up() || !p.hopper(sm) {
		return SlowPath{}
	}
	return SlowPath{fmt.Sprintf("experts' GEMMs take no update of rank %d along, which is a kernel of its own: the fast one takes ranks that are multiples of 8", rank),
		"479 us a GEMM in place of 380 (128 experts, 65,536 rows, rank 16, H200, docs/internals/decisions/0079-updates-taken-along.md)", "a lora.r that is a multiple of 8"}
}
