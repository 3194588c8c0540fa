package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/simd"
)

// Add is the sum of two tensors of one type.
//
//	y = a + b
type Add struct{}

func (Add) Name() string { return "add" }

func (Add) Shape(in []Type) ([]Type, error) {
	if _, err := sameFloats(in, 2); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (Add) Grads() Backward { return Backward{Grads: []Ref{Upstream(), Upstream()}} }

func (Add) InPlace() []Alias { return []Alias{{0, 0}, {0, 1}} }

func (Add) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], add[float32], add[float64])(c, in, out)
}

// AddTo adds its second input to the first, in the first one's memory.
type AddTo struct{}

func (AddTo) Name() string { return "add" }

func (AddTo) Shape(in []Type) ([]Type, error) { return Add{}.Shape(in) }

func (AddTo) Overwrites() []Alias { return []Alias{{0, 0}} }

func (AddTo) CPU(c *CPU, in, out []Tensor) func() { return Add{}.CPU(c, in, out) }

func add[F Float](c *CPU, in, out []Tensor) func() {
	a, b, y := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0])
	return c.Range(len(y), 1<<14, func(lo, hi int) {
		a, b, y := a[lo:hi], b[lo:hi], y[lo:hi]
		for i := range y {
			y[i] = a[i] + b[i]
		}
	})
}

func (Add) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (AddTo) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

// Stored keeps a sum of numbers that are stored in fp32, such as gradients of log-probabilities, in fp32.
func (Add) Stored(in []DType) (want, out []DType) {
	if in[0] == F32 && in[1] == F32 {
		return []DType{F32, F32}, []DType{F32}
	}
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

// term returns the type in which the second term of a residual sum is read: fp32 if it is stored so.
func term(stored DType) DType {
	if stored == F32 {
		return F32
	}
	return ComputeType
}

func (o AddLowBits) Stored(in []DType) (want, out []DType) {
	want = []DType{ComputeType, term(in[1])}
	if o.Carried {
		want = append(want, U8)
	}
	return want, []DType{ComputeType, U8}
}

func (AddTo) Stored(in []DType) (want, out []DType) {
	return []DType{in[0], in[0]}, []DType{in[0]}
}

// AddLowBits is a residual sum that is stored with low bits, eight more bits than ComputeType has (cuda/residual.cuh),
// for plans of a GPU whose ComputeType is not fp32. Carried: a has low bits. b may be stored as fp32.
//
//	a, b f[M,C], low bits of a u8[M,C] if Carried -> y f[M,C] = a + b, its low bits u8[M,C]
type AddLowBits struct{ Carried bool }

// noLowBits are those of a number that ComputeType holds.
const noLowBits = 0x80

func (AddLowBits) Name() string { return "add" }

func (o AddLowBits) Shape(in []Type) ([]Type, error) {
	patterns := []string{"f[M,C]", "f[M,C]"}
	if o.Carried {
		patterns = append(patterns, "u8[M,C]")
	}
	if _, err := Want(in, patterns...); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	return []Type{in[0], T(U8, in[0].Shape...)}, nil
}

func (o AddLowBits) InPlace() []Alias {
	at := []Alias{{0, 0}, {0, 1}}
	if o.Carried {
		at = append(at, Alias{1, 2})
	}
	return at
}

// CPU stores the sum whole.
func (AddLowBits) CPU(c *CPU, in, out []Tensor) func() {
	add, low := Add{}.CPU(c, in[:2], out[:1]), out[1].Bytes()
	return func() {
		add()
		for i := range low {
			low[i] = noLowBits
		}
	}
}

func (AddLowBits) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

// AddBias adds a vector to every row.
//
//	y = x + b   // x f[M,N], b w[N] -> f[M,N]
type AddBias struct{}

func (AddBias) Name() string { return "bias" }

func (AddBias) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,N]", "w[N]"); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

// Grads passes on what arrives, and adds up its rows where the vector is trained.
func (AddBias) Grads() Backward {
	return Backward{Calls: []Call{{BiasGrad{}, []Ref{Upstream()}}}, Grads: []Ref{Upstream(), FromCall(0, 0)}}
}

func (AddBias) InPlace() []Alias { return []Alias{{0, 0}} }

func (AddBias) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], addBias[float32], addBias[float64])(c, in, out)
}

func addBias[F Float](c *CPU, in, out []Tensor) func() {
	x, y := Floats[F](in[0]), Floats[F](out[0])
	bias, load := frozenRow[F](in[1])
	n := len(bias)
	return after(load, c.Range(in[0].Shape[0], max(1, 1<<14/max(n, 1)), func(lo, hi int) {
		for m := lo; m < hi; m++ {
			x, y := x[m*n:][:n], y[m*n:][:n]
			for i, b := range bias {
				y[i] = x[i] + b
			}
		}
	}))
}

func (AddBias) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (AddBias) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

// BiasGrad is the gradient of AddBias for its vector: the sum over the rows, each column in their order.
//
//	dy f[M,N] -> db f[N]
type BiasGrad struct{}

// Name returns "bias_grad".
func (BiasGrad) Name() string { return "bias_grad" }

// Shape returns the type of a row.
func (BiasGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,N]")
	if err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('N'))}, nil
}

// CPU binds the float64 or the float32 body.
func (BiasGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], biasGrad[float32], biasGrad[float64])(c, in, out)
}

// biasGrad adds up in float64.
func biasGrad[F Float](c *CPU, in, out []Tensor) func() {
	const columns = 16
	dy, db := Floats[F](in[0]), Floats[F](out[0])
	rows, width := in[0].Shape[0], len(db)
	return c.Range(width, columns, func(lo, hi int) {
		for ; lo < hi; lo += columns { // one piece may be the whole width
			var sums [columns]float64
			n := min(columns, hi-lo)
			for row := range rows {
				for j, g := range dy[row*width+lo:][:n] {
					sums[j] += float64(g)
				}
			}
			for j := range n {
				db[lo+j] = F(sums[j])
			}
		}
	})
}

// Cost counts a sum for each number.
func (BiasGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 1) }

// Stored keeps the gradient in fp32.
func (BiasGrad) Stored([]DType) (want, out []DType) { return []DType{ComputeType}, []DType{F32} }

// ScratchGPU returns the bytes of the sums of parts of the rows.
func (BiasGrad) ScratchGPU(in, out []Type, _ int) int64 { return columnParts(in[0].Shape[0], out[0]) }

// columnParts returns the bytes of sums of parts of M rows.
func columnParts(M int, out Type) int64 { return int64(cuda.ColumnParts(M)) * int64(out.Elems()) * 4 }

// Scale multiplies by a constant.
//
//	x f[M,C] -> y f[M,C] = By*x
type Scale struct{ By float64 }

func (Scale) Name() string { return "scale" }

func (o Scale) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,C]"); err != nil {
		return nil, err
	}
	if math.IsNaN(o.By) || math.IsInf(o.By, 0) {
		return nil, fmt.Errorf("attribute By is %v, want a finite number", o.By)
	}
	return []Type{in[0]}, nil
}

func (o Scale) Grads() Backward {
	return Backward{Calls: []Call{{o, []Ref{Upstream()}}}, Grads: []Ref{FromCall(0, 0)}}
}

func (Scale) InPlace() []Alias { return []Alias{{0, 0}} }

func (o Scale) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], scale[float32], scale[float64])(c, o, in, out)
}

func scale[F Float](c *CPU, o Scale, in, out []Tensor) func() {
	x, y, by := Floats[F](in[0]), Floats[F](out[0]), F(o.By)
	return c.Range(len(y), 1<<14, func(lo, hi int) {
		x, y := x[lo:hi], y[lo:hi]
		for i := range y {
			y[i] = by * x[i]
		}
	})
}

func (Scale) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (Scale) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}

// ScaleBy multiplies by a frozen number of the model, as Gemma 4 does with what a layer gives. The number has no
// gradient.
//
//	x f[M,C], s f[1] -> y f[M,C] = s*x
type ScaleBy struct{}

func (ScaleBy) Name() string { return "scale_by" }

func (ScaleBy) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "f[S]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if d.At('S') != 1 {
		return nil, fmt.Errorf("input 1 is %v, want one number", in[1])
	}
	return []Type{in[0]}, nil
}

func (o ScaleBy) Grads() Backward {
	return Backward{Calls: []Call{{o, []Ref{Upstream(), In(1)}}}, Grads: []Ref{FromCall(0, 0), {}}}
}

func (ScaleBy) InPlace() []Alias { return []Alias{{0, 0}} }

func (ScaleBy) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], scaleBy[float32], scaleBy[float64])(c, in, out)
}

func scaleBy[F Float](c *CPU, in, out []Tensor) func() {
	x, s, y := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0])
	return c.Range(len(y), 1<<14, func(lo, hi int) {
		by, x, y := s[0], x[lo:hi], y[lo:hi]
		for i := range y {
			y[i] = by * x[i]
		}
	})
}

func (ScaleBy) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

// Stored keeps the number in fp32.
func (ScaleBy) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32}, []DType{ComputeType}
}

// RowFactors multiplies every row of x by the row of a table that which names for it; where the factor is zero the
// result is, whatever x is there. It chooses among adapters that lie side by side: each row of a batch keeps the
// columns of its own, times that adapter's scale. It has no gradient: in training there is one adapter.
//
//	x f[M,C], which i32[M], table w[A,C] -> y f[M,C] = x[m,c] * table[which[m],c], 0 where which[m] is no row of the table
type RowFactors struct{}

func (RowFactors) Name() string { return "row_factors" }

func (RowFactors) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,C]", "i32[M]", "w[A,C]"); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (RowFactors) InPlace() []Alias { return []Alias{{0, 0}} }

func (RowFactors) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], rowFactors[float32], rowFactors[float64])(c, in, out)
}

func rowFactors[F Float](c *CPU, in, out []Tensor) func() {
	x, which, y := Floats[F](in[0]), in[1].I32(), Floats[F](out[0])
	table, load := frozenRow[F](in[2])
	tables, width := in[2].Shape[0], in[2].Shape[1]
	return after(load, c.Range(in[0].Shape[0], rowGrain(width), func(lo, hi int) {
		for m := lo; m < hi; m++ {
			row, to := x[m*width:][:width], y[m*width:][:width]
			a := int(which[m])
			if a < 0 || a >= tables {
				clear(to)
				continue
			}
			for i, by := range table[a*width:][:width] {
				v := by * row[i]
				if by == 0 {
					v = 0
				}
				to[i] = v
			}
		}
	}))
}

func (RowFactors) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (RowFactors) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, F32}, []DType{ComputeType}
}

// SoftCap bounds numbers smoothly, as Gemma 2 does its logits.
//
//	x f[M,V] -> y f[M,V] = Cap*tanh(x/Cap)
type SoftCap struct{ Cap float64 }

func (SoftCap) Name() string { return "softcap" }

func (o SoftCap) Shape(in []Type) ([]Type, error) {
	t, err := sameFloats(in, 1)
	if err != nil {
		return nil, err
	}
	if !(o.Cap > 0) || math.IsInf(o.Cap, 0) {
		return nil, fmt.Errorf("attribute Cap is %v, want a number above zero", o.Cap)
	}
	return []Type{t}, nil
}

func (SoftCap) InPlace() []Alias { return []Alias{{0, 0}} }

func (o SoftCap) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], softCap[float32], softCap[float64])(c, o, in, out)
}

func softCap[F Float](c *CPU, o SoftCap, in, out []Tensor) func() {
	x, y, l := Floats[F](in[0]), Floats[F](out[0]), simd.Best[F]()
	return c.Range(len(y), 1<<12, func(lo, hi int) { l.SoftCap(y[lo:hi], x[lo:hi], F(o.Cap)) })
}

func (SoftCap) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 3) }

func (SoftCap) Stored([]DType) (want, out []DType) { return []DType{F32}, []DType{F32} }

// Zero overwrites its input, of any type, with zeros.
type Zero struct{}

func (Zero) Name() string { return "zero" }

func (Zero) Shape(in []Type) ([]Type, error) {
	if len(in) != 1 {
		return nil, fmt.Errorf("takes 1 input, got %d", len(in))
	}
	return []Type{in[0]}, nil
}

func (Zero) Overwrites() []Alias { return []Alias{{0, 0}} }

func (Zero) CPU(c *CPU, _, out []Tensor) func() {
	mem := out[0].Bytes()
	return c.Range(len(mem), 1<<18, func(lo, hi int) { clear(mem[lo:hi]) })
}

// Cost writes alone.
func (Zero) Cost(_, out []Type, _ Content) Cost { return Cost{Bytes: moved(out)} }

func (Zero) Stored(in []DType) (want, out []DType) { return in, in }
