package nn

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// Linear is a linear layer: y = x Wᵀ (+ bias).
type Linear interface {
	Apply(x *Value) *Value // [M,In] -> [M,Out]
	Size() (in, out int)
}

// Linear asks for the linear layer of that name in the current scope: stored as the run says, wrapped by
// the run's adapter.
func (n *Net) Linear(name string, in, out int, bias bool) Linear {
	var l Linear
	n.In(name, func() {
		var b *Value
		if bias {
			b = n.add(n.Scope()+".bias", []int{out}, kernel.T(n.Float(), out))
		}
		if n.scheme != nil {
			n.quantised = append(n.quantised, int64(in)*int64(out))
		}
		switch {
		case n.scheme == nil:
			l = newDense(n, in, out, b)
		case n.decoded && (n.decodedLinears == 0 || len(n.quantised) <= n.decodedLinears):
			l = newDecoded(n, in, out, b)
		default:
			l = newQuantized(n, in, out, b)
		}
		if n.wrap != nil {
			l = n.wrap(n, n.Scope(), l)
		}
	})
	return l
}

// Dense is a linear layer whose weight is stored as numbers.
type Dense struct {
	n       *Net
	in, out int
	w       *Value // [Out,In]
	b       *Value // [Out], or nil
}

func newDense(n *Net, in, out int, bias *Value) *Dense {
	return &Dense{n, in, out, n.add(n.Scope()+".weight", []int{out, in}, kernel.T(n.Float(), out, in)), bias}
}

// newDecoded is a dense layer whose weight has the values that its quantised form stands for: the numbers of
// Quantized, without decoding in the step.
func newDecoded(n *Net, in, out int, bias *Value) *Dense {
	name, cfg := n.Scope()+".weight", *n.scheme
	w := Weight{Name: name, Shape: []int{out, in}, Into: []string{name}, decoded: true}
	if product, ok := kernel.Packed[cfg.Type]; ok {
		w.device, w.packed = true, product(out, in, cfg.DoubleQuant)
	}
	w.fill = func(r Reader, dst []kernel.Tensor) error {
		p, err := quantize(r, name, out, in, cfg)
		if err != nil {
			return err
		}
		return fillFloats(decoded{p}, name, dst[0])
	}
	n.weights = append(n.weights, w)
	return &Dense{n, in, out, n.Frozen(name, kernel.T(n.Float(), out, in)), bias}
}

// decoded reads a packed weight as float32.
type decoded struct{ p quant.Packed }

func (d decoded) Float32s(_ string, from int, dst []float32) error {
	d.p.DequantizeRange(dst, from, from+len(dst))
	return nil
}

func (d *Dense) Size() (in, out int) { return d.in, d.out }

func (d *Dense) Apply(x *Value) *Value {
	return d.n.biased(d.n.Apply(kernel.MatMul{TransB: true}, x, d.w), d.b) // [M,In] [Out,In]ᵀ -> [M,Out]
}

func (n *Net) biased(y, bias *Value) *Value {
	if bias == nil {
		return y
	}
	return n.Apply(kernel.AddBias{}, y, bias)
}

// Quantized is a linear layer whose weight stays packed.
type Quantized struct {
	n       *Net
	in, out int
	kernel  kernel.Kernel
	packed  []*Value // codes, then the scales as the kernel wants them
	b       *Value
}

func newQuantized(n *Net, in, out int, bias *Value) *Quantized {
	name := n.Scope() + ".weight"
	cfg := *n.scheme
	product, ok := kernel.Packed[cfg.Type]
	if !ok {
		n.Fail(fmt.Errorf("quantization.type: no product with a weight stored as %q", cfg.Type))
		product = kernel.Packed[quant.Default().Type]
	}
	q := &Quantized{n: n, in: in, out: out, b: bias, kernel: product(out, in, cfg.DoubleQuant)}
	elems := in * out
	blocks := (elems + cfg.BlockSize - 1) / cfg.BlockSize
	type part struct {
		suffix string
		t      kernel.Type
	}
	parts := []part{{"", kernel.T(kernel.U8, (elems*cfg.Bits+7)/8)}, {".absmax", kernel.T(kernel.F32, blocks)}}
	if cfg.DoubleQuant {
		parts[1].t.DType = kernel.U8
		parts = append(parts,
			part{".nested_absmax", kernel.T(kernel.F32, (blocks+quant.NestedBlock-1)/quant.NestedBlock)},
			part{".nested_offset", kernel.T(kernel.F32, 1)})
	}
	w := Weight{Name: name, Shape: []int{out, in}, device: true, packed: q.kernel}
	for _, p := range parts {
		q.packed = append(q.packed, n.Frozen(name+p.suffix, p.t))
		w.Into = append(w.Into, name+p.suffix)
	}
	w.fill = func(r Reader, dst []kernel.Tensor) error {
		p, err := quantize(r, name, out, in, cfg)
		if err != nil {
			return err
		}
		copy(dst[0].Bytes(), p.Codes)
		if !cfg.DoubleQuant {
			copy(dst[1].F32(), p.Absmax)
			return nil
		}
		copy(dst[1].Bytes(), p.AbsmaxU8)
		copy(dst[2].F32(), p.Absmax2)
		dst[3].F32()[0] = p.Offset
		return nil
	}
	n.weights = append(n.weights, w)
	return q
}

// quantize reads a weight piece by piece and packs it: no float copy of the whole exists.
func quantize(r Reader, name string, rows, cols int, cfg quant.Config) (quant.Packed, error) {
	qz, err := quant.NewQuantizer(rows, cols, cfg)
	if err != nil {
		return quant.Packed{}, err
	}
	perChunk := max(1, fillChunk/cols)
	buf := make([]float32, perChunk*cols)
	for row := 0; row < rows; row += perChunk {
		part := buf[:min(perChunk, rows-row)*cols]
		if err := r.Float32s(name, row*cols, part); err != nil {
			return quant.Packed{}, err
		}
		if err := qz.Add(part); err != nil {
			return quant.Packed{}, err
		}
	}
	return qz.Finish()
}

func (q *Quantized) Size() (in, out int) { return q.in, q.out }

func (q *Quantized) Apply(x *Value) *Value {
	return q.n.biased(q.n.Apply(q.kernel, append([]*Value{x}, q.packed...)...), q.b) // [M,In] -> [M,Out]
}
