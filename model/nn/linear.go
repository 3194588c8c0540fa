package nn

import (
	"fmt"
	"sync"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// Linear is a linear layer: y = x Wᵀ (+ bias).
type Linear interface {
	Apply(x *Value) *Value // [M,In] -> [M,Out]
	Size() (in, out int)
	Weight() *Value // W [Out,In] of the base model, as numbers of the computation's type
}

// Linear declares the linear layer called name in the current scope, stored as the run's options say and wrapped by the
// run's adapter.
func (n *Net) Linear(name string, in, out int, bias bool) Linear {
	return n.linear(name, in, out, bias, true)
}

// linear does what Linear does, with or without the adapter's wrapper.
func (n *Net) linear(name string, in, out int, bias, wrapped bool) Linear {
	l := once(n, name, func() (l adapted[Linear]) {
		n.In(name, func() {
			l.base = n.newLinear(in, out, bias)
			l.own, l.reference = l.base, l.base
			if n.Wrap != nil && wrapped {
				l.own = n.Wrap(n, n.Scope(), l.base)
			}
			if n.WrapReference != nil && wrapped {
				l.reference = n.WrapReference(n, n.Scope(), l.base)
			}
		})
		return l
	})
	return l.of(n)
}

// newLinear declares the linear layer of the current scope.
func (n *Net) newLinear(in, out int, bias bool) (l Linear) {
	var b *Value
	if bias {
		b = n.add(n.Scope()+".bias", []int{out}, kernel.T(n.Float(), out))
	}
	scheme := n.Scheme
	if n.Stored != nil {
		scheme = n.Stored(n.Scope() + ".weight")
	}
	if scheme != nil {
		n.quantised = append(n.quantised, int64(in)*int64(out))
	}
	switch {
	case scheme == nil:
		l = newDense(n, in, out, b)
	case n.Dequantised && (n.DequantisedLinears == 0 || len(n.quantised) <= n.DequantisedLinears):
		l = newDequantised(n, in, out, b, *scheme)
	default:
		l = newQuantised(n, in, out, b, *scheme)
	}
	return l
}

// router wraps base, a mixture's router whose weight is a parameter in transformers, with the run's adapter. base is
// the linear layer called name in the current scope.
func (n *Net) router(name string, base Linear) Linear {
	if n.WrapRouter == nil {
		return base
	}
	wrapped := once(n, name+" (router)", func() (l Linear) {
		n.In(name, func() { l = n.WrapRouter(n, n.Scope(), base) })
		return l
	})
	return adapted[Linear]{base, wrapped, base}.of(n)
}

// Dense is a linear layer whose weight is not quantised.
type Dense struct {
	n       *Net
	in, out int
	w       *Value // [Out,In]
	b       *Value // [Out], or nil
}

func newDense(n *Net, in, out int, bias *Value) *Dense {
	name := n.Scope() + ".weight"
	return &Dense{n, in, out, n.add(name, []int{out, in}, matrix(n, out, in, name)), bias}
}

// newDequantised returns a dense layer whose weight holds the dequantised values: the same results as Quantised without
// dequantising in every step.
func newDequantised(n *Net, in, out int, bias *Value, cfg quant.Config) *Dense {
	name := n.Scope() + ".weight"
	p := packed{rows: out, cols: in, scheme: cfg, dequantised: true}
	if k, ok := kernel.Packed[cfg.Type]; ok {
		p.gemm = k.MatMul(out, in, cfg)
	}
	n.frozen(name, "quantised")
	n.declare(Weight{Name: name, Shape: []int{out, in}, Into: []string{name}, storage: p})
	return &Dense{n, in, out, n.Frozen(name, kernel.T(n.Float(), out, in)), bias}
}

func (d *Dense) Size() (in, out int) { return d.in, d.out }

// Weight returns the stored weight.
func (d *Dense) Weight() *Value { return d.w }

func (d *Dense) Apply(x *Value) *Value {
	return d.n.biased(d.n.Apply(kernel.MatMul{TransB: true}, x, d.w), d.b) // [M,In] [Out,In]ᵀ -> [M,Out]
}

// Plain is a linear layer of the base model whose product and bias an adapter may take apart.
type Plain interface {
	Linear
	// Product returns x Wᵀ without the bias, [M,In] -> [M,Out]; wide keeps it in fp32 on a GPU.
	Product(x *Value, wide bool) *Value
	// Biased returns y with the layer's bias added, and y itself where the layer has none.
	Biased(y *Value) *Value
}

// Product returns x Wᵀ without the bias.
func (d *Dense) Product(x *Value, wide bool) *Value {
	return d.n.Apply(kernel.MatMul{TransB: true, FP32Out: wide}, x, d.w)
}

// Biased returns y with the bias added.
func (d *Dense) Biased(y *Value) *Value { return d.n.biased(y, d.b) }

func (n *Net) biased(y, bias *Value) *Value {
	if bias == nil {
		return y
	}
	return n.Apply(kernel.AddBias{}, y, bias)
}

// Quantised is a linear layer whose weight stays packed.
type Quantised struct {
	n       *Net
	in, out int
	kernels kernel.PackedWeight
	scheme  quant.Config
	packed  []*Value // parts of the packed weight
	b       *Value
}

func newQuantised(n *Net, in, out int, bias *Value, cfg quant.Config) *Quantised {
	name := n.Scope() + ".weight"
	kernels, ok := kernel.Packed[cfg.Type]
	if !ok {
		n.Fail(fmt.Errorf("quantization.type: no GEMM takes a weight stored as %q", cfg.Type))
		cfg = quant.Default()
		kernels = kernel.Packed[cfg.Type]
	}
	q := &Quantised{n: n, in: in, out: out, b: bias, kernels: kernels, scheme: cfg}
	parts := cfg.Parts(out, in)
	w := Weight{Name: name, Shape: []int{out, in}, storage: packed{rows: out, cols: in, scheme: cfg,
		gemm: q.matMul(), parts: parts}}
	for _, p := range parts {
		d := kernel.U8
		if p.Floats != nil {
			d = kernel.F32
		}
		q.packed = append(q.packed, n.Frozen(name+p.Suffix, kernel.T(d, p.Len)))
		w.Into = append(w.Into, name+p.Suffix)
	}
	n.frozen(name, "quantised")
	n.declare(w)
	return q
}

func (q *Quantised) matMul() kernel.Kernel { return q.kernels.MatMul(q.out, q.in, q.scheme) }

// packers are reused between weights: otherwise their buffers would outgrow the weights before the garbage collector
// frees them.
var packers = sync.Pool{New: func() any { return new(packer) }}

type packer struct {
	quant.Quantiser
	chunk []float32
}

// quantise reads a weight piece by piece and packs it, so that no complete float copy exists. A weight that the
// checkpoint has packed is passed on unchanged. use must not keep its argument.
func quantise(r Reader, name string, rows, cols int, cfg quant.Config, use func(*quant.Packed) error) error {
	if stored, ok := packedIn(r, name); ok {
		return use(&stored)
	}
	p := packers.Get().(*packer)
	defer packers.Put(p)
	if err := p.Reset(rows, cols, cfg); err != nil {
		return err
	}
	perChunk := max(1, fillChunk/cols)
	if n := min(perChunk, rows) * cols; len(p.chunk) < n {
		p.chunk = make([]float32, n)
	}
	for row := 0; row < rows; row += perChunk {
		part := p.chunk[:min(perChunk, rows-row)*cols]
		if err := r.Float32s(name, row*cols, part); err != nil {
			return err
		}
		if err := p.Add(part); err != nil {
			return err
		}
	}
	packed, err := p.Finish()
	if err != nil {
		return err
	}
	return use(&packed)
}

func (q *Quantised) Size() (in, out int) { return q.in, q.out }

// Weight dequantises: every call records a kernel.
func (q *Quantised) Weight() *Value {
	return q.n.Apply(q.kernels.Dequantise(q.out, q.in, q.scheme, q.n.Float()), q.packed...)
}

func (q *Quantised) Apply(x *Value) *Value {
	return q.n.biased(q.n.Apply(q.matMul(), append([]*Value{x}, q.packed...)...), q.b) // [M,In] -> [M,Out]
}

// Product returns x Wᵀ without the bias, from the packed weight.
func (q *Quantised) Product(x *Value, wide bool) *Value {
	k := q.matMul()
	if w, ok := k.(kernel.FP32Output); ok && wide {
		if to, ok := w.WithFP32Out(); ok {
			k = to
		}
	}
	return q.n.Apply(k, append([]*Value{x}, q.packed...)...)
}

// Biased returns y with the bias added.
func (q *Quantised) Biased(y *Value) *Value { return q.n.biased(y, q.b) }

// rowSquares is the storage of the sums of squares of a weight's rows.
type rowSquares struct{ of Weight }

// RowSquares declares the sum of squares of every row of a linear layer's weight, as the network computes with it. It
// is computed once, when the weight loads. name is the weight's name in the checkpoint.
func RowSquares(n *Net, name string) *Value {
	w, ok := n.Weight(name)
	if !ok || len(w.Shape) != 2 {
		n.Fail(fmt.Errorf("%s is no weight of its own, so the norms of its rows can't be computed", name))
		return n.Frozen(name+".row_squares", kernel.T(n.Float(), 1))
	}
	own := name + ".row_squares"
	n.declare(Weight{Into: []string{own}, storage: rowSquares{w}})
	return n.Frozen(own, kernel.T(n.Float(), w.Shape[0]))
}

// fill sums each row in float64.
func (s rowSquares) fill(_ Weight, r Reader, dst []kernel.Tensor) error {
	rows, cols := s.of.Shape[0], s.of.Shape[1]
	each := func(first int, values []float32) {
		for i := range len(values) / cols {
			sum := 0.0
			for _, x := range values[i*cols:][:cols] {
				sum += float64(x) * float64(x)
			}
			if dst[0].DType == kernel.F64 {
				dst[0].F64()[first+i] = sum
			} else {
				dst[0].F32()[first+i] = float32(sum)
			}
		}
	}
	chunk := make([]float32, min(rows, max(1, fillChunk/cols))*cols)
	if p, ok := s.of.packed(); ok {
		return quantise(r, s.of.Name, p.rows, p.cols, p.scheme, func(q *quant.Packed) error {
			for row := 0; row < rows; row += len(chunk) / cols {
				part := chunk[:min(len(chunk), (rows-row)*cols)]
				q.DequantiseRange(part, row*cols, row*cols+len(part))
				each(row, part)
			}
			return nil
		})
	}
	for row := 0; row < rows; row += len(chunk) / cols {
		part := chunk[:min(len(chunk), (rows-row)*cols)]
		if err := r.Float32s(s.of.Name, row*cols, part); err != nil {
			return err
		}
		each(row, part)
	}
	return nil
}

// loads returns nil: the host computes the sums.
func (rowSquares) loads(Weight, Reader) []graph.WeightLoad { return nil }
