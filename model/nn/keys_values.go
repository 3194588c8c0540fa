package nn

// KeysValues are keys and values of a layer's attention that later layers attend to, all of a cache where there is one.
type KeysValues struct{ key, value *Value }

// keysAndValues are those of a layer, before a cache; keys are not yet normed.
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
