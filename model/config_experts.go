package model

// MaxExperts is the most experts of a layer, MaxExpertsPerToken the most experts of a token.
const (
	MaxExperts         = 1024
	MaxExpertsPerToken = 64
)

// Routing describes routers that choose experts by scores with a correction, as DeepSeek-V3 does (kernel.RouteScores).
type Routing struct {
	Scored            bool // false = the other fields have no meaning
	Softmax           bool // the scores are the logits' softmax instead of their sigmoids
	Corrected         bool // each expert has a correction that is added to its score for the choice
	CorrectionRow     bool // the checkpoint has the corrections as a matrix of one row
	Groups, TopGroups int  // experts are chosen from the TopGroups best of Groups groups; 0 or 1 = from all
	Best              int  // a group counts the sum of its Best best scores: 1 or 2
	Epsilon, Least    float64
	Scale             float64 // factor of all weights
}

// maxExpertGroups is the most groups of a layer's experts.
const maxExpertGroups = 32

// ReadRouting reads the keys of routers that DeepSeek-V3 and its relatives share: groups, and the factor of the
// weights. Defaults must be set.
func (c *Config) ReadRouting(k *Keys) {
	r := &c.Routing
	k.Int("n_group", &r.Groups)
	k.Int("topk_group", &r.TopGroups)
	k.Float("routed_scaling_factor", &r.Scale)
	k.Bool("norm_topk_prob", &c.NormTopK)
}

// ReadShared reads how many experts' sizes the shared expert has.
func (c *Config) ReadShared(k *Keys, key string, shared int) {
	if k.Int(key, &shared); shared < 0 || shared > MaxExperts {
		k.Fail(key, "= %d: must be 0 to %d", shared, MaxExperts)
		return
	}
	c.SharedSize = shared * c.ExpertSize
}

// ReadExpertSizes reads the intermediate sizes of an expert and of the shared expert; size and shared replace absent
// keys.
func ReadExpertSizes(c *Config, k *Keys, size, shared int) {
	c.ExpertSize, c.SharedSize = size, shared
	k.Int("moe_intermediate_size", &c.ExpertSize)
	if k.Int("shared_expert_intermediate_size", &c.SharedSize); c.SharedSize < 1 {
		k.Fail("shared_expert_intermediate_size", "= %d: must be 1 or more", c.SharedSize)
	}
}

// ReadDenseLayers reads which layers of Qwen's mixtures have an MLP and no experts.
func ReadDenseLayers(c *Config, k *Keys) {
	c.ExpertStep = 1
	if k.Int("decoder_sparse_step", &c.ExpertStep); c.ExpertStep < 1 {
		k.Fail("decoder_sparse_step", "= %d: must be 1 or more", c.ExpertStep)
	}
	c.DenseLayers, _ = k.Ints("mlp_only_layers")
}

// ReadFirstDense reads the number of first layers that have an MLP in place of experts.
func (c *Config) ReadFirstDense(k *Keys, key string, first int) {
	if k.Int(key, &first); first < 0 || first > MaxLayers {
		k.Fail(key, "= %d: must be 0 to %d", first, MaxLayers)
		return
	}
	for i := range min(first, c.NumLayers) {
		c.DenseLayers = append(c.DenseLayers, i)
	}
}

func (c Config) routingProblems(check func(ok bool, key, format string, args ...any)) {
	r := c.Routing
	if !r.Scored {
		return
	}
	check(r.Scale > 0 && r.Scale <= 1e6, "routed_scaling_factor", "= %g: must be above 0", r.Scale)
	check(r.Groups >= 0 && r.Groups <= maxExpertGroups, "n_group", "= %d: must be 1 to %d", r.Groups, maxExpertGroups)
	if r.Groups <= 1 || r.Groups > maxExpertGroups {
		return
	}
	size := c.Experts / r.Groups
	check(c.Experts%r.Groups == 0 && size >= r.Best, "n_group",
		"= %d does not divide the %d experts into groups of %d or more", r.Groups, c.Experts, r.Best)
	check(r.TopGroups >= 1 && r.TopGroups <= r.Groups, "topk_group", "= %d: must be 1 to %d", r.TopGroups, r.Groups)
	check(c.ExpertsPerToken <= r.TopGroups*size, "num_experts_per_tok", "= %d, but %d groups have %d experts",
		c.ExpertsPerToken, r.TopGroups, r.TopGroups*size)
}

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
	c.routingProblems(check)
	check(c.ExpertStep >= 0, "decoder_sparse_step", "= %d: must be 1 or more", c.ExpertStep)
}
