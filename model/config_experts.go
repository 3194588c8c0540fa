package model

// MaxExperts is the most experts of a layer, MaxExpertsPerToken the most experts of a token.
const (
	MaxExperts         = 1024
	MaxExpertsPerToken = 64
)

// ReadExperts reads the keys of a mixture of experts that all families share. count lists the names of the key for the
// number of experts, the family's own name first.
func (c *Config) ReadExperts(k *Keys, perToken int, count ...string) {
	from := ""
	for _, key := range count {
		n := c.Experts
		if !k.Int(key, &n) {
			continue
		}
		if from != "" && n != c.Experts {
			k.Fail(key, "= %d, but %s is %d", n, from, c.Experts)
			continue
		}
		c.Experts, from = n, key
	}
	c.ExpertsPerToken = perToken
	k.Int("num_experts_per_tok", &c.ExpertsPerToken)
	on, coefficient := false, 0.001
	k.Bool("output_router_logits", &on)
	k.Float("router_aux_loss_coef", &coefficient)
	if !(coefficient >= 0 && coefficient <= 1e6) {
		k.Fail("router_aux_loss_coef", "= %g: must be 0 to 1e6", coefficient)
	}
	if on {
		c.RouterAuxLoss = coefficient
	}
}

func (c Config) expertProblems(check func(ok bool, key, format string, args ...any)) {
	if c.Experts == 0 {
		return
	}
	check(c.Experts >= 1 && c.Experts <= MaxExperts, "num_experts", "= %d: must be 1 to %d", c.Experts, MaxExperts)
	check(c.ExpertsPerToken >= 1 && c.ExpertsPerToken <= min(c.Experts, MaxExpertsPerToken), "num_experts_per_tok",
		"= %d: must be 1 to %d, and at most the %d experts", c.ExpertsPerToken, MaxExpertsPerToken, c.Experts)
	check(c.ExpertSize >= 1 && c.ExpertSize <= 1<<22, "moe_intermediate_size", "= %d: must be 1 to %d",
		c.ExpertSize, 1<<22)
	check(c.SharedSize >= 0 && c.SharedSize <= 1<<22, "shared_expert_intermediate_size", "= %d: must be 1 to %d",
		c.SharedSize, 1<<22)
	check(c.ExpertStep >= 0, "decoder_sparse_step", "= %d: must be 1 or more", c.ExpertStep)
}
