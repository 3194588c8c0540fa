package kernel

import "fmt"

// HeadParts reorders the columns of a fused projection. The projection gives every head up to four parts, one after the
// other, as Qwen3-Next's linear attention has queries, keys, values and gates; HeadParts gives the first part of all
// heads, then the second of all heads, and so on.
//
//	x f[M,H*(W0+W1+W2+W3)], head by head -> y of the same shape, part by part
//
// Back reorders part by part to head by head, which is the gradient of the other.
type HeadParts struct {
	Heads  int
	Widths [4]int // columns of each part of a head; 0 = there is no such part
	Back   bool
}

// Name returns "head_parts".
func (HeadParts) Name() string { return "head_parts" }

// Shape returns the type of x.
func (o HeadParts) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]")
	if err != nil {
		return nil, err
	}
	for i, w := range o.Widths {
		if w < 0 || i == 0 && w == 0 {
			return nil, fmt.Errorf("parts of %v columns: the first must have 1 or more, and the others 0 or more",
				o.Widths)
		}
	}
	if o.Heads < 1 || d.At('C') != o.Heads*o.head() {
		return nil, fmt.Errorf("input 0 is %v, want %d columns for each of %d heads", in[0], o.head(), o.Heads)
	}
	return []Type{in[0]}, nil
}

// head returns the number of a head's columns.
func (o HeadParts) head() (width int) {
	for _, w := range o.Widths {
		width += w
	}
	return width
}

// Grads reorders the result's gradient the other way.
func (o HeadParts) Grads() Backward {
	k := o
	k.Back = !o.Back
	return Backward{Calls: []Call{{k, []Ref{Upstream()}}}, Grads: []Ref{FromCall(0, 0)}}
}

// CPU shares rows among workers.
func (o HeadParts) CPU(c *CPU, in, out []Tensor) func() {
	size, head := in[0].DType.Size(), o.head()
	x, y, row := in[0].Bytes(), out[0].Bytes(), o.Heads*head*size
	return c.Range(in[0].Shape[0], rowGrain(o.Heads*head), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			x, y, before := x[i*row:][:row], y[i*row:][:row], 0
			for _, w := range o.Widths {
				for h := range o.Heads {
					byHead, byPart := (h*head+before)*size, (o.Heads*before+h*w)*size
					if o.Back {
						copy(y[byHead:][:w*size], x[byPart:])
					} else {
						copy(y[byPart:][:w*size], x[byHead:])
					}
				}
				before += w
			}
		}
	})
}

// Cost counts the bytes that are read and written.
func (HeadParts) Cost(in, out []Type, _ Content) Cost { return Cost{Bytes: moved(in, out)} }

// Stored keeps x as the run computes.
func (HeadParts) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}
