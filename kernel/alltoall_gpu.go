//go:build gpu

package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// share is this rank's place among so many neighbours that have a share of the tokens each.
func (g *GPU) share(ranks int) (place int, err error) {
	switch {
	case ranks < 2:
		return 0, nil
	case g.Comm == nil || g.Comm.World%ranks != 0:
		return 0, fmt.Errorf("the plan is for ranks in groups of %d, and %s has not joined such", ranks, g.Device.Name)
	}
	return g.Comm.Rank % ranks, nil
}

// turn is where each exchange of a plan notes that it writes: so they are queued one behind the other, on all ranks in one
// order, as NCCL asks. No memory lies there.
var turn = Access{At: 1, Bytes: 1, Write: true}

func (k AllToAll) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	place, err := g.share(k.Ranks)
	if err != nil {
		return nil, err
	}
	block := in[0].Bytes() / int64(k.Ranks)
	s, own := g.Stream, int64(place)*block
	keep := func() error {
		if block == 0 {
			return nil
		}
		return s.Copy(out[0].Ptr.Add(own), in[0].Ptr.Add(own), block)
	}
	if k.Ranks < 2 {
		return keep, nil
	}
	first := g.Comm.Rank - place
	var parts []gpu.Part
	for r := range k.Ranks {
		if r != place {
			at := int64(r) * block
			parts = append(parts, gpu.Part{At: in[0].Ptr.Add(at), Bytes: block, Peer: first + r},
				gpu.Part{At: out[0].Ptr.Add(at), Bytes: block, Peer: first + r, Receive: true})
		}
	}
	g.Accesses = append(g.Accesses, turn)
	move := g.Comm.Exchange(parts)
	return inOrder(keep, func() error { return move.Run(s) }), nil
}
