package kernel

// KVAppend writes rows into a cache in place: row t goes to row start+t of the cache. Rows that fall outside
// the cache are dropped; the caller sees to it that there are none.
//
//	cache f[P,W], rows f[T,W], start i32[1] -> cache'
type KVAppend struct{}

func (KVAppend) Name() string { return "kvappend" }

func (KVAppend) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[P,W]", "f[T,W]", "i32[1]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (KVAppend) Overwrites() []Alias { return []Alias{{0, 0}} }

func (KVAppend) CPU(_ *CPU, in, out []Tensor) func() {
	cache, rows, start := out[0].Bytes(), in[1].Bytes(), in[2].I32()
	size := in[0].Shape[1] * in[0].DType.Size() // of a row
	return func() {
		from, to := int(start[0])*size, 0
		if from < 0 {
			from, to = 0, min(-from, len(rows))
		}
		if from < len(cache) {
			copy(cache[from:], rows[to:])
		}
	}
}

// Cost is of the rows alone: the rest of the cache stays.
func (KVAppend) Cost(in, _ []Type, _ Content) Cost {
	return Cost{Bytes: 2*in[1].Bytes() + in[2].Bytes()}
}
