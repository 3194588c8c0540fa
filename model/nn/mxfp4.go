package nn

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// MXFP4Block divides the input size of experts in MXFP4.
const MXFP4Block = quant.MXFP4Block

// MXFP4Reader is a Reader for a checkpoint that may have stacks of experts in MXFP4.
type MXFP4Reader interface {
	Reader
	// MXFP4 returns the experts' matrices, transposed and one below the other; ok is false if the checkpoint stores
	// numbers. They may alias the file's memory. Their scales are not checked.
	MXFP4(name string) (w quant.MXFP4, ok bool)
}

// inMXFP4 reports whether the checkpoint stores a tensor of the current scope in MXFP4 and the run keeps it so.
func (n *Net) inMXFP4(name string) bool {
	if n.Stored == nil || n.DequantisedExperts {
		return false
	}
	s := n.Stored(n.Scope() + "." + name)
	return s != nil && s.Type == quant.NameMXFP4
}

// expertsMXFP4 multiplies rows sorted by expert by the experts' matrices [experts,in,out], which stay in the
// checkpoint's form.
func (n *Net) expertsMXFP4(x, starts *Value, name string, experts, in, out int) *Value {
	if in%quant.MXFP4Block != 0 {
		n.Fail(fmt.Errorf("%s.%s has %d inputs: in MXFP4 they must be a multiple of %d", n.Scope(), name, in,
			quant.MXFP4Block))
		return n.Apply(kernel.ExpertMatMul{Experts: experts}, x, n.Frozen(n.Scope()+"."+name,
			kernel.T(n.Float(), experts*in, out)), starts)
	}
	own := n.Scope() + "." + name
	size := experts * in * out
	codes, scales := n.Frozen(own+".codes", kernel.T(kernel.U8, size/2)), n.Frozen(own+".scales",
		kernel.T(kernel.U8, size/quant.MXFP4Block))
	n.frozen(own, "in MXFP4")
	n.declare(Weight{Name: own, Shape: []int{experts, in, out}, Into: []string{own + ".codes", own + ".scales"},
		storage: mxfp4{}})
	return n.Apply(kernel.ExpertMatMulMXFP4{Experts: experts, N: out, K: in}, x, starts, codes, scales)
}

// mxfp4 stores experts' matrices in the checkpoint's form: codes, then scales.
type mxfp4 struct{}

func (mxfp4) fill(w Weight, r Reader, dst []kernel.Tensor) error {
	q, err := mxfp4In(r, w.Name)
	if err == nil {
		err = quant.CheckMXFP4(q.Scales, 0)
	}
	if err != nil {
		return err
	}
	copy(dst[0].Bytes(), q.Codes)
	copy(dst[1].Bytes(), q.Scales)
	return nil
}

func (mxfp4) loads(w Weight, r Reader) []graph.WeightLoad {
	stored, missing := mxfp4In(r, w.Name)
	load := func(i int, from []byte, check func(piece []byte, at int) error) graph.WeightLoad {
		return graph.WeightLoad{Into: w.Into[i : i+1], Elems: len(from), DType: kernel.U8, Read: func(dst []byte,
			at int) error {
			if missing != nil {
				return missing
			}
			copy(dst, from[at:])
			return check(dst, at)
		}}
	}
	return []graph.WeightLoad{load(0, stored.Codes, func([]byte, int) error {
		return nil
	}), load(1, stored.Scales, quant.CheckMXFP4)}
}

func mxfp4In(r Reader, name string) (quant.MXFP4, error) {
	if p, ok := r.(MXFP4Reader); ok {
		if w, ok := p.MXFP4(name); ok {
			return w, nil
		}
	}
	return quant.MXFP4{}, fmt.Errorf("%s is not in MXFP4", name)
}
