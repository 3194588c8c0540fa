package nn

import "github.com/tierlora/tierlora/kernel"

// Latent describes multi-head latent attention (MLA; DeepSeek-AI, "DeepSeek-V2", 2024): keys and values of all heads
// are computed from KVRank numbers of a token, and Rotated columns of every key are the same in all heads.
type Latent struct {
	Heads     int
	QueryRank int // queries are computed from that many numbers; 0 = from the hidden state
	KVRank    int
	Own       int // columns of a head's key and query that are not rotated; Rotated ones follow
	Rotated   int
	Value     int     // columns of a head's value
	Bias      bool    // biases on q_a_proj, kv_a_proj_with_mqa and o_proj
	Scale     float64 // factor of the scores; 0 = 1/sqrt(Own+Rotated)
	RoPE      *Value  // table of angles [P,Rotated]
	// Interleaved rotates neighbouring columns instead of halves.
	Interleaved bool
}

// latentEps is the epsilon of the norms within latent attention, whatever the model's own is.
const latentEps = 1e-6

// LatentAttention computes o_proj(attention(queries, keys, values)): [M,C] -> [M,C]. Keys and values are expanded to
// one of each for every head before attention, and a cache holds them so. Values narrower than keys are followed by
// zeros there.
func LatentAttention(n *Net, name string, x *Value, in Batch, l Latent) *Value {
	var y *Value
	n.In(name, func() {
		width, head, wide := x.Width(), l.Own+l.Rotated, l.Own+l.Value
		query := n.Apply(kernel.RoPE{Heads: l.Heads, HeadDim: head, From: l.Own, Interleaved: l.Interleaved},
			l.queries(n, x), l.RoPE, in.Positions)

		both := n.Linear("kv_a_proj_with_mqa", width, l.KVRank+l.Rotated, l.Bias).Apply(x)
		part := func(from, width int) *Value {
			return n.Apply(kernel.HeadColumns{Heads: 1, Of: both.Width(), From: from, Width: width}, both)
		}
		latent := n.RMSNorm("kv_a_layernorm", part(0, l.KVRank), latentEps)
		shared := n.Apply(kernel.RoPE{Heads: 1, HeadDim: l.Rotated, Interleaved: l.Interleaved},
			part(l.KVRank, l.Rotated), l.RoPE, in.Positions)

		expanded := n.Linear("kv_b_proj", l.KVRank, l.Heads*wide, false).Apply(latent)
		key := n.Apply(kernel.LatentKeys{Heads: l.Heads, Of: wide, Own: l.Own}, expanded, shared)
		value := n.Apply(kernel.HeadColumns{Heads: l.Heads, Of: wide, From: l.Own, Width: l.Value}, expanded)
		values := kernel.HeadColumns{Heads: l.Heads, Of: head, Width: l.Value}
		if l.Value < head {
			value = n.Apply(kernel.HeadColumnsGrad(values), value)
		}
		if in.Cache != nil && n.Ranks() == 1 {
			key, value = n.cached("key", key, in), n.cached("value", value, in)
		}
		heads := attend(n, in, Attention{Heads: l.Heads, KVHeads: l.Heads, HeadDim: head, Scale: l.Scale}, query, key,
			value)
		if l.Value < head {
			heads = n.Apply(values, heads)
		}
		y = n.Linear("o_proj", l.Heads*l.Value, width, l.Bias).Apply(heads)
	})
	return y
}

// queries returns the queries of all heads, not rotated: [M,C] -> [M,H*(Own+Rotated)].
func (l Latent) queries(n *Net, x *Value) *Value {
	all := l.Heads * (l.Own + l.Rotated)
	if l.QueryRank == 0 {
		return n.Linear("q_proj", x.Width(), all, false).Apply(x)
	}
	q := n.Linear("q_a_proj", x.Width(), l.QueryRank, l.Bias).Apply(x)
	return n.Linear("q_b_proj", l.QueryRank, all, false).Apply(n.RMSNorm("q_a_layernorm", q, latentEps))
}
