package nn

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// Where ranks have a share of the tokens each, everything but attention is of a rank's own tokens. Before attention
// they exchange heads for tokens, so that each attends with some of the heads over the whole sequence, and behind it
// they exchange back (Jacobs et al., "DeepSpeed Ulysses", 2023): attention itself is the same calls with fewer heads.

// sharedAttention is attention of queries, keys and values, or of one matrix of all three, of this rank's tokens: ->
// [M,H*D].
func (n *Net) sharedAttention(in Batch, a Attention, qkv ...*Value) *Value {
	if err := n.sharesHeads(in, a); err != nil {
		n.Fail(err)
		return qkv[0]
	}
	split := kernel.HeadShares{Ranks: n.Ranks(), Heads: a.Heads, KVHeads: a.KVHeads, Fused: len(qkv) == 1}
	of := a.kernel()
	of.Heads, of.KVHeads = split.Own()
	var heads *Value // [T,H/P*D] of all tokens
	if a.Sinks {
		apart := make([]*Value, len(qkv)) // queries, keys and values, as this kernel reads them
		for i, x := range qkv {
			apart[i] = n.toHeads(kernel.HeadShares{Ranks: n.Ranks(), Heads: []int{a.Heads, a.KVHeads, a.KVHeads}[i]}, x)
		}
		heads = n.Apply(kernel.AttentionSinks{Attention: of, Ranks: n.Ranks()}, append(apart, in.CuQ, in.CuK,
			n.sinks(a))...)
	} else {
		heads = n.Apply(kernel.AttentionQKV(of), n.toHeads(split, qkv...), in.CuQ)
	}
	return n.Apply(kernel.JoinHeads{Ranks: n.Ranks(), Heads: a.Heads},
		n.Apply(kernel.AllToAll{Ranks: n.Ranks()}, heads))
}

// toHeads exchanges what ranks have of their tokens for some of the heads of all.
func (n *Net) toHeads(s kernel.HeadShares, x ...*Value) *Value {
	return n.Apply(kernel.AllToAll{Ranks: n.Ranks()}, n.Apply(kernel.SplitHeads(s), x...))
}

// sharesHeads says why a layer's attention cannot be shared among the ranks.
func (n *Net) sharesHeads(in Batch, a Attention) error {
	err := kernel.HeadShares{Ranks: n.Ranks(), Heads: a.Heads, KVHeads: a.KVHeads}.Check()
	switch {
	case in.Cache != nil:
		err = errors.New("keys and values that are kept between tokens are not shared among ranks")
	case err == nil && a.Sinks && a.KVHeads%n.Ranks() != 0:
		err = fmt.Errorf("attention with sinks shares %d key heads among ranks that divide them, not %d: choose "+
			"another training.context_parallel_size", a.KVHeads, n.Ranks())
	}
	return err
}
