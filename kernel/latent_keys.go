package kernel

import "fmt"

// LatentKeys lays out the keys of multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024) for Attention: a
// projection gives every head Own columns of a key, and other columns, such as a value's, behind them. Shared more
// columns of the key, which are rotated, are the same in all heads.
//
//	x f[M,H*Of], shared f[M,R] -> keys f[M,H*(Own+R)], of each head its first Own columns of x, then the shared ones
type LatentKeys struct{ Heads, Of, Own int }

func (LatentKeys) Name() string { return "latent_keys" }

func (o LatentKeys) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "f[M,R]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if d.At('C') != o.Heads*o.Of || d.At('R') == 0 {
		return nil, fmt.Errorf("inputs are %v and %v, want %d columns, %d for each head, and shared ones", in[0], in[1],
			o.Heads*o.Of, o.Of)
	}
	return []Type{T(in[0].DType, d.At('M'), o.Heads*(o.Own+d.At('R')))}, nil
}

func (o LatentKeys) check() error {
	if o.Heads < 1 || o.Own < 1 || o.Own > o.Of {
		return fmt.Errorf("keys are the first %d of %d columns in each of %d heads", o.Own, o.Of, o.Heads)
	}
	return nil
}

func (o LatentKeys) Grads() Backward {
	return Backward{
		Calls: []Call{{LatentKeysGrad(o), []Ref{Upstream()}}},
		Grads: []Ref{FromCall(0, 0), FromCall(0, 1)},
	}
}

func (o LatentKeys) CPU(c *CPU, in, out []Tensor) func() {
	size := in[0].DType.Size()
	x, shared, keys := in[0].Bytes(), in[1].Bytes(), out[0].Bytes()
	of, own, rest := o.Of*size, o.Own*size, in[1].Shape[1]*size
	return c.Range(in[0].Shape[0]*o.Heads, rowGrain(o.Own), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			key := keys[i*(own+rest):][:own+rest]
			copy(key, x[i*of:][:own])
			copy(key[own:], shared[i/o.Heads*rest:])
		}
	})
}

// LatentKeysGrad is the gradient of LatentKeys: zeros in the columns of x that are no key's, and for the shared columns
// the sum over the heads, in their order.
//
//	dkeys f[M,H*(Own+R)] -> dx f[M,H*Of], dshared f[M,R]
type LatentKeysGrad LatentKeys

func (LatentKeysGrad) Name() string { return "latent_keys_grad" }

func (o LatentKeysGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]")
	if err != nil {
		return nil, err
	}
	if err := LatentKeys(o).check(); err != nil {
		return nil, err
	}
	shared := d.At('C')/o.Heads - o.Own
	if d.At('C')%o.Heads != 0 || shared < 1 {
		return nil, fmt.Errorf("input 0 is %v, want %d heads of more than %d columns", in[0], o.Heads, o.Own)
	}
	return []Type{T(in[0].DType, d.At('M'), o.Heads*o.Of), T(in[0].DType, d.At('M'), shared)}, nil
}

func (o LatentKeysGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], latentKeysGrad[float32], latentKeysGrad[float64])(c, o, in, out)
}

func latentKeysGrad[F Float](c *CPU, o LatentKeysGrad, in, out []Tensor) func() {
	dkeys, dx, dshared, rest := Floats[F](in[0]), Floats[F](out[0]), Floats[F](out[1]), out[1].Shape[1]
	return c.Range(in[0].Shape[0], rowGrain(o.Heads*o.Of), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			sum := dshared[i*rest:][:rest]
			clear(sum)
			for h := i * o.Heads; h < (i+1)*o.Heads; h++ {
				key, to := dkeys[h*(o.Own+rest):][:o.Own+rest], dx[h*o.Of:][:o.Of]
				copy(to, key[:o.Own])
				clear(to[o.Own:])
				for j, d := range key[o.Own:] {
					sum[j] += d
				}
			}
		}
	})
}

// Cost reads a head's own columns alone, and the shared ones once.
func (o LatentKeys) Cost(in, out []Type, _ Content) Cost {
	own := T(in[0].DType, in[0].Shape[0], o.Heads*o.Own)
	return Cost{Bytes: own.Bytes() + in[1].Bytes() + moved(out)}
}

func (o LatentKeysGrad) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in, out), int64(out[1].Elems()) * int64(o.Heads)}
}

func (LatentKeys) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

func (LatentKeysGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType, ComputeType}
}
