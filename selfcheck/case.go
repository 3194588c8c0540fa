package selfcheck

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
)

// check is a small graph around one kernel.
type check struct {
	kernel, name string
	in           []checkInput
	build        func(b *graph.Builder, in []*graph.Value) []*graph.Value
	bounds       []bound // of each output
	// a plain implementation that rounds as a format; nil = the reference, rounded
	plain   func(f format, in [][]float64) [][]float64
	inPlace []int // inputs whose memory outputs may take
	gemm    bool  // it multiplies matrices
	fp8     bool  // it belongs to the precision with 8-bit floats alone
}

// bound is how far an output may be from float64, relative to its norm.
type bound int

const (
	rounded   bound = iota // twice the error of plain, four times in one element
	masked                 // the same, and zero exactly where the reference is
	single                 // 2e-6: computed in fp32
	summed                 // 1e-5: a GEMM summed in fp32
	iterated               // 5e-2: iterations whose steps are rounded to bf16, which float64 does not do
	exact                  // equal
	lastBound              // that of the last output: a single number that sums up that output
)

// checkInput is data of a check. A number of the computation has type 0.
type checkInput struct {
	typ    kernel.DType
	shape  []int
	values []float64
	state  bool // overwritten
}

func (x checkInput) overwritten() checkInput {
	x.state = true
	return x
}

// checkNumbers makes the inputs of checks, the same ones every time.
type checkNumbers struct{ *rand.Rand }

func newNumbers() checkNumbers { return checkNumbers{rand.New(rand.NewPCG(3, 5))} }

// normal returns normally distributed numbers that every type of a GPU's activations holds: bf16's 8 bits in fp16's
// range.
func (n checkNumbers) normal(scale float64, shape ...int) checkInput {
	x := n.normal32(scale, shape...)
	formats[kernel.PrecisionBF16].all(x.values)
	formats[kernel.PrecisionFP16].all(x.values)
	return x
}

// normal32 returns normally distributed numbers that fp32 holds.
func (n checkNumbers) normal32(scale float64, shape ...int) checkInput {
	x := checkInput{shape: shape, values: make([]float64, kernel.T(kernel.F32, shape...).Elems())}
	for i := range x.values {
		x.values[i] = float64(float32(n.NormFloat64() * scale))
	}
	return x
}

// zeros returns added to a number to make it a computed one of the same value.
func zeros(shape ...int) checkInput {
	return checkInput{shape: shape, values: make([]float64, kernel.T(kernel.F32, shape...).Elems())}
}

func given(shape []int, values ...float64) checkInput {
	v := slices.Clone(values)
	for i := range v {
		v[i] = float64(float32(v[i]))
	}
	return checkInput{shape: shape, values: v}
}

func integers[T int | int32](v ...T) checkInput {
	x := checkInput{typ: kernel.I32, shape: []int{len(v)}, values: make([]float64, len(v))}
	for i := range v {
		x.values[i] = float64(v[i])
	}
	return x
}

// format is how numbers are rounded where a GPU stores activations and operands of GEMMs.
type format struct {
	round func(float64) float64
	unit  float64 // largest relative error
	// fp32's are rounded no less often in between: sums in another order are a case of their own.
	sums bool
}

var bf16Format = format{func(x float64) float64 { return float64(kernel.FromBF16(kernel.ToBF16(float32(x)))) },
	1. / 256, false}

// formats are those of the precisions. Stored as fp32, tensor cores cut TF32's operands to 10 bits of mantissa.
var formats = map[kernel.Precision]format{
	kernel.PrecisionBF16: bf16Format, kernel.PrecisionFP8: bf16Format,
	kernel.PrecisionFP16: {func(x float64) float64 { return float64(kernel.FromF16(kernel.ToF16(float32(x)))) },
		1. / 2048, false},
	kernel.PrecisionTF32: {func(x float64) float64 {
		return float64(math.Float32frombits(math.Float32bits(float32(x)) &^ (1<<13 - 1)))
	}, 1. / 1024, true},
	kernel.PrecisionFP32: {func(x float64) float64 { return float64(float32(x)) }, 1. / (1 << 24), true},
}

func (f format) all(v []float64) {
	for i := range v {
		v[i] = f.round(v[i])
	}
}

// one is a graph of one kernel.
func one(k kernel.Kernel) func(b *graph.Builder, in []*graph.Value) []*graph.Value {
	return func(b *graph.Builder, in []*graph.Value) []*graph.Value { return b.ApplyAll(k, in...) }
}

// computed returns the check with the inputs that may be overwritten computed by the graph.
func (c check) computed() check {
	build, n, in := c.build, len(c.in), slices.Clone(c.in)
	for _, i := range c.inPlace {
		in = append(in, zeros(c.in[i].shape...))
	}
	places := c.inPlace
	c.in = in
	c.build = func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		v := slices.Clone(in[:n])
		for j, i := range places {
			v[i] = b.Apply(kernel.Add{}, in[i], in[n+j])
		}
		return build(b, v)
	}
	return c
}

// run computes the outputs on a machine, several times, which must agree.
func (c check) run(on graph.Machine, float kernel.DType, times int) (out [][]float64, err error) {
	b := graph.NewBuilder(float)
	values, names := make([]*graph.Value, len(c.in)), make([]string, len(c.in))
	var again []string // what a run changes, or may
	for i, x := range c.in {
		typ := kernel.T(x.typ, x.shape...)
		if x.typ == 0 {
			typ.DType = float
		}
		names[i] = fmt.Sprintf("input %d", i)
		switch {
		case x.state:
			values[i] = b.State("", names[i], typ)
			again = append(again, names[i])
		case typ.DType == kernel.I32:
			values[i] = b.Batch(names[i], typ)
			again = append(again, names[i])
		default:
			values[i] = b.Frozen(names[i], typ)
		}
	}
	outputs := c.build(b, values)
	if err := b.Err(); err != nil {
		return nil, err
	}
	plan, err := on.Compile(b, outputs...)
	if err != nil {
		return nil, err
	}
	m, err := session.Hold(on, func(store graph.Store) error {
		return errors.Join(c.fill(store, names),
			store.Put(names...))
	}, &session.Program{Plan: plan})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	run := m.Runs[0]
	for pass := range times {
		if pass > 0 {
			if err := c.fill(m, names); err != nil {
				return nil, err
			}
			if err := m.Put(again...); err != nil {
				return nil, err
			}
		}
		if err := run.Run("main"); err != nil {
			return nil, err
		}
		for i, v := range outputs {
			t, err := run.Read(v)
			if err != nil {
				return nil, err
			}
			x := float64s(t)
			if pass == 0 {
				out = append(out, x)
			} else if !slices.EqualFunc(x, out[i], func(a, b float64) bool { return a == b || a != a && b != b }) {
				return nil, fmt.Errorf("output %d differs between two runs", i)
			}
		}
	}
	return out, nil
}

func (c check) fill(store graph.Store, names []string) error {
	for i, x := range c.in {
		t, err := store.Tensor(names[i])
		if err != nil {
			return err
		}
		switch t.DType {
		case kernel.F64:
			copy(t.F64(), x.values)
		case kernel.F32:
			to := t.F32()
			for j, v := range x.values {
				to[j] = float32(v)
			}
		case kernel.I32:
			to := t.I32()
			for j, v := range x.values {
				to[j] = int32(v)
			}
		default:
			to := t.Bytes()
			for j, v := range x.values {
				to[j] = byte(v)
			}
		}
	}
	return nil
}

func float64s(t kernel.Tensor) []float64 {
	x := make([]float64, t.Elems())
	switch t.DType {
	case kernel.F64:
		copy(x, t.F64())
	case kernel.I32:
		for i, v := range t.I32() {
			x[i] = float64(v)
		}
	case kernel.U8:
		for i, v := range t.Bytes() {
			x[i] = float64(v)
		}
	default:
		for i, v := range t.F32() {
			x[i] = float64(v)
		}
	}
	return x
}

// sumError is how far sums in fp32 may be from float64.
const sumError = 1e-5

// limit is how large errors may be: of all numbers, relative to their norm, and of one number.
type limit struct{ norm, element float64 }

// limits returns those of each output.
func (c check) limits(f format, want [][]float64) []limit {
	plain := make([][]float64, len(want))
	if c.plain != nil {
		in := make([][]float64, len(c.in))
		for i := range in {
			in[i] = c.in[i].values
		}
		plain = c.plain(f, in)
	}
	limits, whole := make([]limit, len(want)), 0.0 // whole: the largest number of all outputs
	for _, w := range want {
		largest, _ := largestError(w, make([]float64, len(w)))
		whole = max(whole, largest)
	}
	for i, b := range c.bounds {
		largest, _ := largestError(want[i], make([]float64, len(want[i])))
		switch b {
		case rounded, masked:
			if plain[i] == nil {
				plain[i] = slices.Clone(want[i])
				f.all(plain[i])
			}
			worst, _ := largestError(plain[i], want[i])
			limits[i] = limit{2*relativeError(plain[i], want[i]) + 1e-7, 4*worst + 1e-6*largest}
			if len(want[i]) <= 16 { // a few numbers may round well by chance: twice the worst case
				limits[i] = limit{max(limits[i].norm, f.unit), max(limits[i].element, 2*f.unit*largest)}
			}
			switch {
			case f.sums && largest <= sumError*whole: // sums that cancel: they are off as much as they are large
				limits[i] = limit{math.Inf(1), 4 * sumError * whole}
			case f.sums:
				limits[i] = limit{max(limits[i].norm, sumError), max(limits[i].element, 4*sumError*largest)}
			}
		case single:
			limits[i] = limit{2e-6, 8e-6 * largest}
		case summed:
			limits[i] = limit{sumError, 4 * sumError * largest}
		case iterated:
			limits[i] = limit{5e-2, 0.2 * largest}
		}
	}
	for i, b := range c.bounds {
		if b == lastBound {
			limits[i] = limit{limits[len(limits)-1].norm, math.Inf(1)}
		}
	}
	return limits
}
