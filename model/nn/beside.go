package nn

import "github.com/tierlora/tierlora/kernel"

// Beside returns the network of another model in the computation of n, such as a teacher's beside a student's. Its
// tensors in memory have the prefix before their names, so that both models may have tensors of one name. Only frozen
// weights are allowed in it. A network has at most one other beside it, which later calls return.
func Beside(n *Net, prefix string, o Options) *Net {
	if n.beside == nil {
		other := New(o)
		other.Builder, other.prefix = n.Builder, prefix
		n.beside = other
	}
	return n.beside
}

// Other returns the network that Beside has made beside n; nil = there is none.
func Other(n *Net) *Net { return n.beside }

// Frozen declares data of this network that is written once, while its model loads.
func (n *Net) Frozen(name string, t kernel.Type) *Value { return n.Builder.Frozen(n.prefix+name, t) }

// inMemory returns the names in memory of tensors of a network.
func inMemory(n *Net, names []string) []string {
	if n.prefix == "" {
		return names
	}
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = n.prefix + name
	}
	return all
}
