package nn

// KeysValues holds a layer's keys and values, including cached ones, for later layers that attend to them.
type KeysValues struct{ key, value *Value }

// keysAndValues computes a layer's keys and values, before they enter a cache. Keys are not normed yet.
func (n *Net) keysAndValues(x *Value, a Attention) (key, value *Value) {
	kv := a.KVHeads * a.HeadDim
	key = n.Linear("k_proj", x.Width(), kv, a.QKVBias).Apply(x)
	if value = key; !a.ValuesAreKeys {
		value = n.Linear("v_proj", x.Width(), kv, a.QKVBias).Apply(x)
	}
	if a.ValueNorm != nil {
		value = a.ValueNorm(value, a.KVHeads)
	}
	return key, value
}
