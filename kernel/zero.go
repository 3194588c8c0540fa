package kernel

import "fmt"

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
