package model

import "fmt"

// StateSpace holds the sizes of Mamba-2 layers, the selective state spaces of Granite 4 and others. Layers of that kind
// are LinearAttention in Config.LayerTypes.
type StateSpace struct {
	Heads    int
	HeadSize int // columns of a head
	Groups   int // divides Heads; the heads of a group share B and C
	State    int // columns of a state, for each column of a head
	Filter   int // number of tokens in the window of the convolution before the scan
	// MinStep and MaxStep are the limits of the time step; a MaxStep of 0 means that there is no upper limit.
	MinStep, MaxStep float64
	ConvBias         bool // the convolution has a bias
	Bias             bool // in_proj and out_proj have biases
	Norm             bool // of Falcon-H1: there is a norm behind the scan; other families have it
	keys             stateSpaceKeys
}

// Multipliers holds the factors of Falcon-H1: of the embeddings, the logits and the keys, of what attention and the
// Mamba-2 layer read and give, of the MLP's gate and its result, and of the five parts of in_proj.
type Multipliers struct {
	Embedding, Head, Key, AttentionIn, AttentionOut, ScanIn, ScanOut float64
	MLP, Scan                                                        []float64
}

// NoMultipliers are factors of one.
func NoMultipliers() *Multipliers {
	return &Multipliers{Embedding: 1, Head: 1, Key: 1, AttentionIn: 1, AttentionOut: 1, ScanIn: 1, ScanOut: 1,
		MLP: []float64{1, 1}, Scan: []float64{1, 1, 1, 1, 1}}
}

// stateSpaceKeys are the keys of config.json for the sizes of Mamba-2 layers.
type stateSpaceKeys struct{ heads, headSize, groups, state, filter string }

// mambaKeys are the names that most families have, nemotronKeys those of Nemotron-H.
var (
	mambaKeys    = stateSpaceKeys{"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"}
	nemotronKeys = stateSpaceKeys{"mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"}
)

func (s *StateSpace) read(k *Keys, keys stateSpaceKeys) {
	s.keys = keys
	k.Int(keys.heads, &s.Heads)
	k.Int(keys.groups, &s.Groups)
	k.Int(keys.state, &s.State)
	k.Int(keys.filter, &s.Filter)
}

// ReadNemotronMamba reads the keys of Mamba-2 layers as Nemotron-H names them, whose defaults must be set. As in
// transformers 5, time_step_min is the lower limit of the time steps and there is no upper one.
func ReadNemotronMamba(c *Config, k *Keys) {
	s := &c.StateSpace
	s.read(k, nemotronKeys)
	k.Int(nemotronKeys.headSize, &s.HeadSize)
	k.Bool("use_conv_bias", &s.ConvBias)
	k.Bool("use_bias", &s.Bias)
	s.MinStep = 0.001
	if k.Float("time_step_min", &s.MinStep); !(s.MinStep >= 0 && s.MinStep <= 1e6) {
		k.Fail("time_step_min", "= %g: must be 0 or more", s.MinStep)
	}
}

// ReadMamba reads the keys of Mamba-2 layers that Granite 4 and its relatives share, whose defaults must be set. expand
// is the default of the key that says how many times hidden_size the heads have together.
func ReadMamba(c *Config, k *Keys, expand int) { readMamba(c, k, expand, "", 0) }

// ReadMambaOfWidth is ReadMamba for a family with a key for the columns of all heads, whose default is width. null = as
// many as mamba_expand says.
func ReadMambaOfWidth(c *Config, k *Keys, key string, width int) {
	if k.null(key) {
		width = 0
	}
	k.Int(key, &width)
	readMamba(c, k, 2, key, width)
}

// readMamba reads the keys of both. width = 0 is what mamba_expand says.
func readMamba(c *Config, k *Keys, expand int, widthKey string, width int) {
	s := &c.StateSpace
	s.read(k, mambaKeys)
	k.Bool("mamba_conv_bias", &s.ConvBias)
	k.Bool("mamba_proj_bias", &s.Bias)
	k.Drop("mamba_chunk_size") // how a program computes the scan; the result is the same
	k.Int("mamba_expand", &expand)
	inner := 0
	if expand >= 1 && expand <= 64 && c.HiddenSize >= 1 && c.HiddenSize <= 1<<20 {
		inner = expand * c.HiddenSize
	} else {
		k.Fail("mamba_expand", "= %d: must be 1 to 64", expand)
	}
	of := fmt.Sprintf("mamba_expand %d times hidden_size %d", expand, c.HiddenSize)
	if width != 0 {
		inner, of = width, fmt.Sprintf("%s %d", widthKey, width)
		if width < 1 || width > 1<<22 {
			k.Fail(widthKey, "= %d: must be 1 to %d", width, 1<<22)
			inner = 0
		}
	}
	if s.Heads >= 1 && inner > 0 {
		if inner%s.Heads != 0 {
			k.Fail(mambaKeys.heads, "= %d does not divide %s", s.Heads, of)
		}
		s.HeadSize = max(1, inner/s.Heads)
	}
	if string(k.raw[mambaKeys.headSize]) == `"auto"` {
		k.Drop(mambaKeys.headSize)
	}
	size := s.HeadSize
	if k.Int(mambaKeys.headSize, &size); size != s.HeadSize && k.bad[mambaKeys.heads] == "" && inner > 0 {
		k.Fail(mambaKeys.headSize, "= %d: times mamba_n_heads %d it is not %s", size, s.Heads, of)
	}
	k.stepLimits(s)
}

// stepLimits reads time_step_limit, a list of two numbers. The second may be infinite.
func (k *Keys) stepLimits(s *StateSpace) {
	const key = "time_step_limit"
	var limits []any
	if !k.take(key, "a list of two numbers", &limits) {
		return
	}
	read := func(i int) (float64, bool) {
		if i >= len(limits) {
			return 0, false
		}
		switch v := limits[i].(type) {
		case float64:
			return v, v >= 0 && v <= 1e6
		case map[string]any: // as transformers 5 writes what JSON has no number for
			return 0, i == 1 && len(v) == 1 && v["__float__"] == infinity
		case string:
			return 0, i == 1 && v == infinity
		}
		return 0, false
	}
	least, lower := read(0)
	most, upper := read(1)
	if len(limits) != 2 || !lower || !upper || most != 0 && most < least {
		k.Fail(key, "= %v: must be two numbers in order, the second may be Infinity", limits)
		return
	}
	s.MinStep, s.MaxStep = least, most
}

// ReadMambaLayers reads which layers are Mamba-2 layers, from layer_types or its former name layers_block_type. Absent
// keys mean that all layers are.
func ReadMambaLayers(c *Config, k *Keys) {
	c.LayerTypes = k.Texts("layers_block_type")
	if own := k.Texts("layer_types"); own != nil {
		c.LayerTypes = own
	}
	if c.LayerTypes == nil && c.NumLayers > 0 && c.NumLayers <= MaxLayers {
		for range c.NumLayers {
			c.LayerTypes = append(c.LayerTypes, LinearAttention)
		}
	}
	c.LayerTypes = FormerKinds(c.LayerTypes)
}

// FormerKinds returns kinds of layers under their names in transformers 5, from those or the names before.
func FormerKinds(kinds []string) []string {
	for i, kind := range kinds {
		switch kind {
		case "mamba":
			kinds[i] = LinearAttention
		case "attention":
			kinds[i] = FullAttention
		}
	}
	return kinds
}

func (s StateSpace) problems(check func(ok bool, key, format string, args ...any)) {
	if s == (StateSpace{}) {
		return
	}
	for key, v := range map[string]int{s.keys.heads: s.Heads, s.keys.headSize: s.HeadSize,
		s.keys.groups: s.Groups, s.keys.state: s.State} {
		check(v >= 1 && v <= 1<<14, key, "= %d: must be 1 to %d", v, 1<<14)
	}
	check(s.Groups < 1 || s.Heads%s.Groups == 0, s.keys.groups, "= %d does not divide %s %d", s.Groups, s.keys.heads,
		s.Heads)
	check(s.Filter >= 1 && s.Filter <= maxFilter, s.keys.filter, "= %d: must be 1 to %d", s.Filter, maxFilter)
}
