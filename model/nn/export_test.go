package nn

// ExpertLayers is a linear layer for each of some experts.
func ExpertLayers(n *Net, path, name string, experts, in, out int) Experts {
	return n.expertLayers(path, Parameter{}, false, experts, in, out, name)[0]
}
