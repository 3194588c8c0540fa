package export

import (
	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/export/llamacpp"
	"github.com/tierlora/tierlora/model/weights"
)

// countedRows is about how many rows of a tensor are looked at to tell what a file's type leaves of an update.
const countedRows = 256

// keeping counts what the types of a GGUF file leave of an adapter's update. Its zero value counts nothing.
type keeping struct {
	c     *checkpoint
	base  *llamacpp.Plan          // the same file of the model without the adapter; nil = there is no adapter
	lost  map[string]*layerCounts // by the tensors of the file
	types map[string]place        // where the model's tensors go to, by the model's names
	other map[string]*layerCounts // of tensors in bf16: what f16 would leave
}

// place is where a tensor of the model lies in a file.
type place struct {
	gguf.Type
	from llamacpp.Tensor
}

// rows counts n rows of tensor i, which begin at row and hold x with the update.
func (k *keeping) rows(i, row, n int, from llamacpp.Tensor, to gguf.Tensor, x []float32) error {
	for _, name := range k.c.names {
		if _, ok := k.types[name]; !ok {
			k.types[name] = place{to.Type, from}
		}
	}
	if k.base == nil || k.c.adapted == "" {
		return nil
	}
	width := to.Shape[0]
	stride := max(1, to.Len()/width/countedRows)
	counts, other := countsOf(k.lost, to.Name), (*layerCounts)(nil)
	if to.Type == gguf.BF16 {
		other = countsOf(k.other, to.Name)
	}
	base, was, then := make([]float32, width), make([]float32, width), make([]float32, width)
	y := make([]byte, 4*width+gguf.F32.BlockBytes())
	through := func(t gguf.Type, x, out []float32) {
		bytes := width / t.Block() * t.BlockBytes()
		t.Quantise(x, y[:bytes])
		t.Dequantise(y[:bytes], out)
	}
	for r := (stride - row%stride) % stride; r < n; r += stride {
		merged := x[r*width : (r+1)*width]
		if err := k.base.Tensors[i].Rows(row+r, base); err != nil {
			return err
		}
		through(to.Type, base, was)
		through(to.Type, merged, then)
		counts.add(base, merged, was, then, halfStepsOf(to.Type))
		if other != nil {
			through(gguf.F16, base, was)
			through(gguf.F16, merged, then)
			other.add(base, merged, was, then, halfStepsOf(gguf.F16))
		}
	}
	return nil
}

// countsOf are the sums of a tensor of the file.
func countsOf(all map[string]*layerCounts, tensor string) *layerCounts {
	if all[tensor] == nil {
		all[tensor] = &layerCounts{}
	}
	return all[tensor]
}

// halfStepsOf is halfSteps of a GGUF type; types in blocks have steps that follow from their blocks, which count as
// none.
func halfStepsOf(t gguf.Type) func(i int, w float32) float64 {
	switch t {
	case gguf.F32:
		return halfSteps(weights.F32)
	case gguf.F16:
		return halfSteps(weights.F16)
	case gguf.BF16:
		return halfSteps(weights.BF16)
	}
	return func(int, float32) float64 { return 0 }
}

// report says what is left of the update; nil = there is none.
func (k *keeping) report() (r *Rounding, notes []string) {
	if len(k.lost) == 0 {
		return nil, nil
	}
	all := roundingOf(k.lost)
	if len(k.other) > 0 && all.loses() {
		notes = append(notes, betterType(all, roundingOf(k.other), "f16", "f32"))
	}
	return &all, notes
}
