package step

import (
	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/kernel"
)

// GroupNorms names the group of states that holds the norms of the tensors' gradients.
const GroupNorms = "gradient norms"

// planTensorNorms adds a segment that computes the norm of each tensor's gradient in the same way as the global norm.
// The segment changes nothing that training reads.
func (b *builder) planTensorNorms() {
	b.Segment(SegmentNorms)
	for _, g := range b.grads {
		norm := b.State(GroupNorms, "norm of the "+g.Name, kernel.T(b.Float(), 2))
		b.Apply(kernel.GradNorm{Scaled: b.scaling != nil}, b.withScaling(b.Part(g), b.Loss, norm)...)
	}
	b.TensorNorms = b.Span(GroupNorms)
}

// TensorNorm is the norm of a trained tensor's gradient.
type TensorNorm struct {
	Name string  // PEFT's name of the tensor; experts in one tensor share the tensor's name
	Norm float64 // norm before clipping
}

// NormsIn returns the norms from the memory of TensorNorms, in the order of Trained.
func (t *Step) NormsIn(x kernel.Tensor) []TensorNorm {
	norms := make([]TensorNorm, len(t.Trained.Params))
	apart := x.Elems() / len(norms)
	for i, p := range t.Trained.Params {
		norms[i].Name = adapter.PEFTName(p.Name)
		if x.DType == kernel.F64 {
			norms[i].Norm = x.F64()[i*apart]
		} else {
			norms[i].Norm = float64(x.F32()[i*apart])
		}
	}
	return norms
}
