package nn

import (
	"errors"

	"github.com/tierlora/tierlora/kernel"
)

// Where ranks have a share of the tokens each, everything but attention is of a rank's own tokens. Before attention they
// exchange heads for tokens, so that each attends with some of the heads over the whole sequence, and behind it they
// exchange back (Jacobs et al., "DeepSpeed Ulysses", 2023): attention itself is the same calls with fewer heads.

// sharedAttention is attention of queries, keys and values, or of one matrix of all three, of this rank's tokens: -> [M,H*D].
func (n *Net) sharedAttention(in Batch, a Attention, qkv ...*Value) *Value {
	if err := n.sharesHeads(in, a); err != nil {
		n.Fail(err)
		return qkv[0]
	}
	split := kernel.HeadShares{Ranks: n.ranks, Heads: a.Heads, KVHeads: a.KVHeads, Fused: len(qkv) == 1}
	of := a.kernel()
	of.Heads, of.KVHeads = split.Own()
	x := n.Apply(kernel.AllToAll{Ranks: n.ranks}, n.Apply(kernel.SplitHeads(split), qkv...))
	y := n.Apply(kernel.AllToAll{Ranks: n.ranks}, n.Apply(kernel.AttentionQKV(of), x, in.CuQ))
	return n.Apply(kernel.JoinHeads{Ranks: n.ranks, Heads: a.Heads}, y)
}

// sharesHeads says why a layer's attention cannot be shared among the ranks.
func (n *Net) sharesHeads(in Batch, a Attention) error {
	err := kernel.HeadShares{Ranks: n.ranks, Heads: a.Heads, KVHeads: a.KVHeads}.Check()
	switch {
	case in.Cache != nil:
		err = errors.New("keys and values that are kept between tokens are not shared among ranks")
	case a.Sinks:
		err = errors.New("attention with sinks is not shared among ranks: training.context_parallel_size must be 1")
	}
	return err
}
