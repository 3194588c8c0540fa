package nn

// adapted is a layer of the base model, and the layer with what an adapter trains beside it; the two are equal where
// the adapter leaves the layer as it is.
type adapted[L any] struct{ base, own L }

// of returns the layer that a network is being built with.
func (l adapted[L]) of(n *Net) L {
	if n.bare {
		return l.base
	}
	return l.own
}

// WithoutAdapter runs build with the adapter switched off: the network returns layers of the base model alone.
// Preference objectives take the base model as their reference. The network declares the same layers as outside of
// build, adapter included. What build does to RouterLogits and Balance is undone.
func WithoutAdapter(n *Net, build func()) {
	bare, logits, balance := n.bare, n.RouterLogits, n.balance
	n.bare = true
	build()
	n.bare, n.RouterLogits, n.balance = bare, logits[:len(logits):len(logits)], balance
}
