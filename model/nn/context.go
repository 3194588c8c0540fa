package nn

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// Context parallelism: if ranks share a sequence's tokens, every operation but attention works on a rank's own tokens.
// Before attention, ranks exchange tokens for heads (all-to-all), so that each rank attends with some of the heads over
// the whole sequence; after it they exchange back (Jacobs et al., "DeepSpeed Ulysses", 2023). Attention itself uses the
// same kernels with fewer heads.

// sharedAttention computes attention for this rank's tokens from queries, keys and values, or from one matrix of all
// three: -> [M,H*D].
func (n *Net) sharedAttention(in Batch, a Attention, qkv ...*Value) *Value {
	in.refusePrefix(n, "several ranks have the tokens of a sequence (training.context_parallel_size)")
	if err := n.sharesHeads(in, a); err != nil {
		n.Fail(err)
		return qkv[0]
	}
	split := kernel.HeadShares{Ranks: n.Ranks(), Heads: a.Heads, KVHeads: a.KVHeads, Fused: len(qkv) == 1}
	of := a.kernel()
	of.Heads, of.KVHeads = split.Own()
	var heads *Value // [T,H/P*D] of all tokens
	if a.Sinks {
		apart := make([]*Value, len(qkv)) // queries, keys and values as separate matrices, as the kernel reads them
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

// toHeads exchanges the ranks' tokens of all heads for all tokens of some heads.
func (n *Net) toHeads(s kernel.HeadShares, x ...*Value) *Value {
	return n.Apply(kernel.AllToAll{Ranks: n.Ranks()}, n.Apply(kernel.SplitHeads(s), x...))
}

// sharesHeads returns an error if ranks cannot share a layer's attention.
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
