//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// GPU copies the slice and zeroes what lies behind a shorter one.
func (k TakeSlice) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	rank, err := g.place(k.World)
	if err != nil {
		return nil, err
	}
	from, to := k.Of(in[0].Elems(), rank)
	s, x, slice := g.Stream, in[0].Ptr.Add(4*int64(from)), out[0].Ptr
	bytes, rest := 4*int64(to-from), out[0].Bytes()-4*int64(to-from)
	return func() error {
		if bytes > 0 {
			if err := s.Copy(slice, x, bytes); err != nil {
				return err
			}
		}
		if rest > 0 {
			return s.Fill(slice.Add(bytes), 0, rest)
		}
		return nil
	}, nil
}

// GPU receives the other ranks' slices where they belong, and then rounds all numbers to the copy in 16 bits.
func (k SpreadSlices) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	rank, err := g.place(k.World)
	if err != nil {
		return nil, err
	}
	n, s, x, mine := out[0].Elems(), g.Stream, out[0].Ptr, in[1].Ptr
	slice := func(r int) (at gpu.Ptr, bytes int64) {
		from, to := k.Of(n, r)
		return x.Add(4 * int64(from)), 4 * int64(to-from)
	}
	own, bytes := slice(rank)
	work := []func() error{func() error {
		if bytes == 0 {
			return nil
		}
		return s.Copy(own, mine, bytes)
	}}
	if g.Comm != nil {
		var parts []gpu.Part
		for r := range k.World {
			if r != rank {
				at, length := slice(r)
				parts = append(parts, gpu.Part{At: mine, Bytes: bytes, Peer: r},
					gpu.Part{At: at, Bytes: length, Peer: r, Receive: true})
			}
		}
		g.Accesses = append(g.Accesses, turn)
		move := g.Comm.Exchange(parts)
		work = append(work, func() error { return move.Run(s) })
	}
	if g.Copy != 0 {
		round, err := g.Launch(cuda.Convert("f32", g.Precision.Stored(ComputeType).String(), int64(n)), g.Copy, x,
			int64(n))
		if err != nil {
			return nil, err
		}
		work = append(work, round)
	}
	return inOrder(work...), nil
}
