package olmo2

import (
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Exaone4 describes config.json of an EXAONE 4 model: OLMo 2 with a norm of every query and key head. Where the model
// has a window, layers without it are not rotated by positions.
var Exaone4 = model.Dialect{Architecture: "Exaone4ForCausalLM", Defaults: func(c *model.Config) {
	c.RMSNormEps = 1e-5
}, Read: func(c *model.Config, k *model.Keys) {
	c.QKNorm = true
	model.ReadWindowPattern(c, k)
}, Fixed: map[string]model.Fixed{
	"attention_bias": {Value: false, Why: "exaone4 has no biases"},
	"mlp_bias":       {Value: false, Why: "exaone4 has no biases"},
}}

// qkNorm returns the norm of queries and keys: of each head, or of all heads of a token together.
func qkNorm(n *nn.Net, c model.Config) func(name string, x *nn.Value, heads int) *nn.Value {
	if c.QKNorm {
		return func(name string, x *nn.Value, heads int) *nn.Value {
			return n.HeadsRMSNorm(name, x, heads, c.RMSNormEps)
		}
	}
	return func(name string, x *nn.Value, _ int) *nn.Value { return n.RMSNorm(name, x, c.RMSNormEps) }
}
