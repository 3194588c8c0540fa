package kernel

// AddLowBits is a residual sum that is stored with low bits, eight more bits than ComputeType has (cuda/residual.cuh), for
// plans of a GPU whose ComputeType is not fp32. Carried: a has low bits. b may be stored as fp32.
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
