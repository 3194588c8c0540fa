package nn

// adapted is a layer of the base model, the layer with what an adapter trains beside it, and the layer with the frozen
// adapter of a reference. Those that no adapter changes are equal to base.
type adapted[L any] struct{ base, own, reference L }

// view says which of the three a network is being built with.
type view int

const (
	viewOwn view = iota
	viewBase
	viewReference
)

// of returns the layer that a network is being built with.
func (l adapted[L]) of(n *Net) L {
	switch n.view {
	case viewBase:
		return l.base
	case viewReference:
		return l.reference
	}
	return l.own
}

// AsReference runs build with the layers of the reference that preference objectives compare a model with: those of the
// base model, with the frozen adapter of Options.WrapReference where there is one. The network declares the same layers
// as outside of build, adapter included. What build does to RouterLogits and Balance is undone.
func AsReference(n *Net, build func()) {
	before, logits, balance := n.view, n.RouterLogits, n.balance
	n.view = viewBase
	if n.WrapReference != nil {
		n.view = viewReference
	}
	build()
	n.view, n.RouterLogits, n.balance = before, logits[:len(logits):len(logits)], balance
}
