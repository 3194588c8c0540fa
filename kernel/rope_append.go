package kernel

import (
	"errors"
	"fmt"
)

// RoPEAppend rotates queries and keys and writes keys and values into their caches in place, for plans of a GPU: RoPE twice and
// KVAppend twice.
//
//	q f[M,Q], k f[M,K], v f[M,V], table f[P,R], positions i32[M], key cache f[N,K], value cache f[N,V], at i32[M]
//	  -> q', key cache', value cache'
type RoPEAppend struct {
	Heads, KVHeads int
	HeadDim        int // as in RoPE
}

func (RoPEAppend) Name() string { return "rope_append" }

// parts are the rotations.
func (o RoPEAppend) parts() (q, k RoPE) {
	return RoPE{Heads: o.Heads, HeadDim: o.HeadDim}, RoPE{Heads: o.KVHeads, HeadDim: o.HeadDim}
}

func (o RoPEAppend) Shape(in []Type) ([]Type, error) {
	if len(in) != 8 {
		return nil, fmt.Errorf("takes 8 inputs, got %d", len(in))
	}
	q, k := o.parts()
	query, err := q.Shape([]Type{in[0], in[3], in[4]})
	if err != nil {
		return nil, fmt.Errorf("queries: %w", err)
	}
	key, err := k.Shape([]Type{in[1], in[3], in[4]})
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	keys, err := KVAppend{}.Shape([]Type{in[5], key[0], in[7]})
	if err != nil {
		return nil, fmt.Errorf("cache of keys: %w", err)
	}
	values, err := KVAppend{}.Shape([]Type{in[6], in[2], in[7]})
	if err != nil {
		return nil, fmt.Errorf("cache of values: %w", err)
	}
	if in[0].Shape[0] != in[1].Shape[0] || in[5].Shape[0] != in[6].Shape[0] {
		return nil, errors.New("queries and keys, or their caches, differ in rows")
	}
	return []Type{query[0], keys[0], values[0]}, nil
}

func (RoPEAppend) Overwrites() []Alias { return []Alias{{0, 0}, {1, 5}, {2, 6}} }

// Scratch holds the rotated keys.
func (RoPEAppend) Scratch(in []Type, _ int) int64 { return in[1].Bytes() }

func (o RoPEAppend) CPU(c *CPU, in, out []Tensor) func() {
	q, k := o.parts()
	key := NewTensor(in[1].Type, c.Scratch)
	work := []func(){
		q.CPU(c, []Tensor{in[0], in[3], in[4]}, out[:1]),
		k.CPU(c, []Tensor{in[1], in[3], in[4]}, []Tensor{key}),
		KVAppend{}.CPU(c, []Tensor{in[5], key, in[7]}, out[1:2]),
		KVAppend{}.CPU(c, []Tensor{in[6], in[2], in[7]}, out[2:]),
	}
	return func() {
		for _, w := range work {
			w()
		}
	}
}

// Cost is of the rows alone: the rest of the caches stays.
func (o RoPEAppend) Cost(in, out []Type, c Content) Cost {
	q, k := o.parts()
	turned, kept := q.Cost([]Type{in[0], in[3], in[4]}, out[:1], c), k.Cost([]Type{in[1], in[3], in[4]}, in[1:2], c)
	return Cost{turned.Bytes + kept.Bytes + 2*in[2].Bytes() + in[7].Bytes(), turned.FLOPs + kept.FLOPs}
}

// Stored: the caches hold what attention reads.
func (RoPEAppend) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType, F32, I32, ComputeType, ComputeType, I32}, []DType{ComputeType, ComputeType, ComputeType}
}

// ScratchGPU: the device rotates keys on their way to the cache.
func (RoPEAppend) ScratchGPU([]Type, []Type, int) int64 { return 0 }
