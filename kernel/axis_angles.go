package kernel

import (
	"errors"
	"fmt"
	"math"
)

// AxisAngles makes rotary angles for tokens whose position has several coordinates, as patches of an image have
// (M-RoPE, interleaved): frequency i of a token turns by coordinate 1 if i%3 is 1 and i is below 3*Rows, by coordinate
// 2 if i%3 is 2 and i is below 3*Columns, and else by coordinate 0. RoPE reads row m of the result as the angles of
// token m.
// With Contiguous the last Columns frequencies turn by coordinate 2, the Rows before them by coordinate 1.
// A coordinate outside the table makes its angles NaN: the caller checks coordinates.
//
//	table f[P,R], positions i32[3*M] (a token's three coordinates side by side) -> f[M,R]
type AxisAngles struct {
	Rows    int // frequencies of coordinate 1
	Columns int // frequencies of coordinate 2
	// Contiguous says that the frequencies of a coordinate follow one another.
	Contiguous bool
}

// Name returns "axis_angles".
func (AxisAngles) Name() string { return "axis_angles" }

// Shape returns a row of the table for each token.
func (o AxisAngles) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[P,R]", "i32[N]")
	if err != nil {
		return nil, err
	}
	switch {
	case d.At('R')%2 != 0:
		return nil, fmt.Errorf("input 0 is %v: rows must be even, for they hold cosines and sines", in[0])
	case d.At('N')%3 != 0:
		return nil, fmt.Errorf("input 1 is %v: tokens have three coordinates", in[1])
	case o.Rows < 0 || o.Columns < 0:
		return nil, fmt.Errorf("attributes Rows and Columns are %d and %d, want no negative number", o.Rows, o.Columns)
	}
	if half := d.At('R') / 2; o.Contiguous && o.Rows+o.Columns > half {
		return nil, fmt.Errorf("attributes Rows and Columns are %d and %d, the table has %d frequencies", o.Rows,
			o.Columns, half)
	}
	return []Type{T(in[0].DType, d.At('N')/3, d.At('R'))}, nil
}

// CPU binds the float64 or the float32 body.
func (o AxisAngles) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], axisAngles[float32], axisAngles[float64])(c, o, in, out)
}

func axisAngles[F Float](c *CPU, o AxisAngles, in, out []Tensor) func() {
	table, positions, y := Floats[F](in[0]), in[1].I32(), Floats[F](out[0])
	rows, width, nan := in[0].Shape[0], in[0].Shape[1], F(math.NaN())
	half := width / 2
	return c.Range(len(positions)/3, rowGrain(width), func(lo, hi int) {
		for m := lo; m < hi; m++ {
			to := y[m*width:][:width]
			for i := range half {
				p := int(positions[3*m+o.axis(i, half)])
				if p < 0 || p >= rows {
					to[i], to[half+i] = nan, nan
					continue
				}
				to[i], to[half+i] = table[p*width+i], table[p*width+half+i]
			}
		}
	})
}

// axis returns the coordinate that frequency i of count turns by.
func (o AxisAngles) axis(i, count int) int {
	switch {
	case o.Contiguous && i >= count-o.Columns:
		return 2
	case o.Contiguous && i >= count-o.Columns-o.Rows:
		return 1
	case o.Contiguous:
		return 0
	case i%3 == 1 && i < 3*o.Rows:
		return 1
	case i%3 == 2 && i < 3*o.Columns:
		return 2
	}
	return 0
}

// ErrSectionsGPU is the error of contiguous frequencies of coordinates, which GPUs have no kernel for.
var ErrSectionsGPU = errors.New("positions of images whose rotary frequencies lie coordinate by coordinate, as " +
	"Qwen2.5-VL's do, have no kernel on GPUs: use device: cpu, or rows without images")

// CheckGPU refuses contiguous frequencies.
func (o AxisAngles) CheckGPU(_, _ []Type, _ int) error {
	if o.Contiguous {
		return ErrSectionsGPU
	}
	return nil
}

// Cost reads of the table what is taken, or the table once where it is smaller.
func (AxisAngles) Cost(in, out []Type, _ Content) Cost {
	return Cost{Bytes: in[1].Bytes() + min(in[0].Bytes(), moved(out)) + moved(out)}
}

// Stored keeps angles in fp32.
func (AxisAngles) Stored([]DType) (want, out []DType) { return []DType{F32, I32}, []DType{F32} }
