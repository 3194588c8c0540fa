//go:build gpu

package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// GPU receives every slice where the parts lie, which have one buffer for all slices.
func (k AllGather) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	rank, err := g.place(k.World)
	if err != nil {
		return nil, err
	}
	all := gpu.Ptr(uint64(out[0].Ptr) - uint64(k.At[0]))
	for i, o := range out {
		if o.Ptr != all.Add(k.At[i]) {
			return nil, fmt.Errorf("part %d is not %d bytes behind the first slice", i, k.At[i])
		}
	}
	slice, s := in[0].Bytes(), g.Stream
	at := func(r int) gpu.Ptr { return all.Add(int64(r) * slice) }
	var parts []gpu.Part
	for r := range k.World {
		if r != rank {
			parts = append(parts, gpu.Part{At: in[0].Ptr, Bytes: slice, Peer: r}, gpu.Part{At: at(r), Bytes: slice, Peer: r, Receive: true})
		}
	}
	work := []func() error{func() error { return s.Copy(at(rank), in[0].Ptr, slice) }}
	if g.Comm != nil {
		move := g.Comm.Exchange(parts)
		work = append(work, func() error { return move.Run(s) })
	}
	return inOrder(work...), nil
}
