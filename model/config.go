// Package model says what a model is, as far as config.json says it: sizes,
// options and rotary frequencies. The families' layers are in its subfolders.
package model

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Config is a decoder-only model.
type Config struct {
	ModelType        string // the family, as "llama"
	VocabSize        int    // V
	HiddenSize       int    // C
	IntermediateSize int    // F
	NumLayers        int
	NumHeads         int // H
	NumKVHeads       int // K, divides H
	HeadDim          int // D, even; H*D may differ from C
	RMSNormEps       float64
	RopeTheta        float64
	RopeScaling      RopeScaling
	PartialRotary    float64 // the share of a head that is rotated, its first columns; 0 = all of it
	Interleaved      bool    // neighbouring columns of a head are rotated together, not those of its halves
	MaxPositions     int
	TieEmbeddings    bool // lm_head is embed_tokens and has no tensor of its own
	// gpt_oss: an expert's matrices are a linear layer each in the folder, as Unsloth quantises them
	ExpertLayers   bool
	TieWithoutHead bool // of a folder with images: so it is where the checkpoint has no lm_head
	HeadIfThere    bool // of a folder with images: so it is not where the checkpoint has an lm_head
	QKVBias        bool // biases on q, k and v
	OBias          bool // a bias on o
	MLPBias        bool // biases on gate, up and down
	// SlidingWindow is how many tokens, itself included, a token sees in the
	// windowed layers; 0 = no layer has a window. Window says it layer by layer.
	SlidingWindow int
	// LayerTypes is "full_attention", "sliding_attention" or "linear_attention" for each layer; nil =
	// all alike, windowed when SlidingWindow > 0.
	LayerTypes []string
	// DeltaNet are the sizes of the layers of linear attention; the zero value = there are none.
	DeltaNet DeltaNet
	// Gemma4 is how layers of Gemma 4 differ from each other; the zero value = it is another family.
	Gemma4 Gemma4
	// Multipliers of Granite, 0 = 1: of the embeddings, of what a layer adds to the residual stream, and the divisor
	// of the logits. AttentionScale multiplies the attention scores, 0 = 1/sqrt(HeadDim).
	EmbeddingScale, ResidualScale, LogitDivisor, AttentionScale float64
	// AttentionCap and LogitCap are soft caps Cap*tanh(x/Cap) of the attention scores and of the logits, 0 = none
	// (Gemma).
	AttentionCap, LogitCap float64
	// NoPositions are the layers whose queries and keys are not rotated; nil = none.
	NoPositions []bool
	// LocalRopeTheta and LocalRopeScaling are the rotary base and scaling of the windowed layers where they have their
	// own, 0 = those of the others (Gemma 3).
	LocalRopeTheta   float64
	LocalRopeScaling RopeScaling
	// Multimodal: the language model of a model of text and images, whose other parts are left out.
	Multimodal bool
	HiddenAct  string // "silu", "gelu_pytorch_tanh" or "gelu", the exact form
	QKNorm     bool   // an RMSNorm of every query and key head, before the rotation
	// Experts is how many experts a layer's mixture of experts has, 0 = no layer has one; ExpertLayer says which have.
	Experts         int
	ExpertsPerToken int   // K
	ExpertSize      int   // an expert's intermediate size
	SharedSize      int   // intermediate size of the expert that all tokens go through, 0 = there is none
	NormTopK        bool  // a token's weights of its K experts are divided by their sum
	ExpertStep      int   // of so many layers the last has experts; 0 = 1
	DenseLayers     []int // these layers have none
	// RouterAuxLoss is what training adds the experts' balance loss with; 0 = nothing.
	RouterAuxLoss float64
	// Unapplied are keys of dropouts of the base model that are not 0, with their values: training here applies none of
	// them.
	Unapplied []string
	BOS, EOS  []int  // token ids of the vocabulary; none when the file names none
	DType     string // "float32", "float16", "bfloat16", "float64" or "" when the file names none
	// Quantization is how the checkpoint stores its linear layers; nil = as numbers.
	Quantization *Quantization
}

// The attention kinds of layer_types.
const (
	FullAttention    = "full_attention"
	SlidingAttention = "sliding_attention"
)

// Window is the sliding window of a layer in tokens, 0 for full attention.
// A token at position i sees the positions j <= i with i-j < Window.
func (c Config) Window(layer int) int {
	if c.LayerTypes != nil && c.LayerTypes[layer] != SlidingAttention {
		return 0
	}
	return c.SlidingWindow
}

// Scope is what the names of the model's tensors but the head begin with.
func (c Config) Scope() string {
	if c.Multimodal {
		return "model.language_model"
	}
	return "model"
}

// HeadName is the tensor of the vocabulary head: the embeddings where the model ties them.
func (c Config) HeadName() string {
	if c.TieEmbeddings {
		return c.Scope() + ".embed_tokens.weight"
	}
	return "lm_head.weight"
}

// LocalRope is the configuration whose InvFreq is that of the windowed layers, and tells whether it is another.
func (c Config) LocalRope() (local Config, own bool) {
	if c.LocalRopeTheta == 0 {
		return c, false
	}
	c.RopeTheta, c.RopeScaling = c.LocalRopeTheta, c.LocalRopeScaling
	return c, true
}

// ExpertLayer tells whether a layer has a mixture of experts instead of an MLP.
func (c Config) ExpertLayer(layer int) bool {
	return c.Experts > 0 && (layer+1)%max(c.ExpertStep, 1) == 0 && !slices.Contains(c.DenseLayers, layer)
}

// Rotates tells whether a layer's queries and keys are rotated by their positions.
func (c Config) Rotates(layer int) bool { return c.NoPositions == nil || !c.NoPositions[layer] }

// ParseConfig reads a config.json as transformers 4 or 5 writes it, of a family that dialects holds by its model_type.
// Absent keys take the values that transformers gives them. What would change the numbers and is not supported, and
// every key that is not known, is an error that names it; the error lists all problems.
func ParseConfig(data []byte, dialects map[string]Dialect) (Config, error) {
	k, err := newKeys(data)
	if err != nil {
		return Config{}, err
	}
	var c Config
	k.Text("model_type", &c.ModelType)
	architectures := k.Texts("architectures")
	d, ok := dialects[c.ModelType]
	if c.ModelType == "" && k.bad["model_type"] == "" {
		c.ModelType, d, ok = byArchitecture(dialects, architectures)
	}
	if !ok {
		if k.bad["model_type"] != "" {
			return Config{}, problemList(k.bad)
		}
		if c.ModelType == "" {
			return Config{},
				fmt.Errorf("model_type is missing and architectures %q names no supported family (supported: %s)",
					architectures, names(dialects))
		}
		if k.given["text_config"] {
			return Config{}, k.withImages(c.ModelType, dialects)
		}
		if same := languageModels[c.ModelType]; same != "" {
			return Config{}, fmt.Errorf("model_type = %q is the language model of a model of text and images; of "+
				"text it computes what %s does: "+
				"save it as one, from the whole model's folder: %s", c.ModelType, same, saveAs(same))
		}
		return Config{}, fmt.Errorf("model_type = %q is not supported (supported: %s)", c.ModelType, names(dialects))
	}
	if len(architectures) > 0 && !d.named(architectures) {
		k.Fail("architectures", "= %q: a %s checkpoint must be a %s", architectures, c.ModelType, d.Architecture)
	}
	around, tied := false, false
	if d.Text != nil {
		around = k.Bool("tie_word_embeddings", &tied)
		k, d = k.text(d)
		c.Multimodal = true
	}
	c.read(k, d)
	if around { // where it contradicts text_config the checkpoint's tensors tell
		c.TieWithoutHead, c.HeadIfThere = tied && !c.TieEmbeddings, !tied && c.TieEmbeddings
	}
	k.rest(d)
	for key, msg := range c.problems() {
		if field, ok := strings.CutPrefix(key, "rope_scaling."); ok && k.given["rope_parameters"] {
			key = "rope_parameters." + field
		}
		if k.bad[key] == "" && !k.followsFromBad(key) {
			k.bad[key] = msg
		}
	}
	if err := problemList(k.bad); err != nil {
		return Config{}, err
	}
	return c, nil
}

func (c *Config) read(k *Keys, d Dialect) {
	c.RMSNormEps, c.HiddenAct, c.RopeTheta = 1e-6, "silu", 10000
	if d.Defaults != nil {
		d.Defaults(c)
	}
	k.dialect = d
	k.needInt("vocab_size", &c.VocabSize)
	k.needInt("hidden_size", &c.HiddenSize)
	k.needInt("intermediate_size", &c.IntermediateSize)
	k.needInt("num_hidden_layers", &c.NumLayers)
	k.needInt("num_attention_heads", &c.NumHeads)
	k.needInt("max_position_embeddings", &c.MaxPositions)
	if k.null("num_key_value_heads") {
		c.NumKVHeads = 0 // as many as heads, whatever the family has where the key is absent
	}
	if k.null("head_dim") {
		c.HeadDim = 0 // the width's share
	}
	if c.NumKVHeads == 0 {
		if !k.Has("num_key_value_heads") && !d.KVHeadsOptional {
			k.Fail("num_key_value_heads", "is missing")
		}
		c.NumKVHeads = c.NumHeads
	}
	k.Int("num_key_value_heads", &c.NumKVHeads)
	if !k.Int("head_dim", &c.HeadDim) && c.HeadDim == 0 && c.NumHeads > 0 {
		if c.HiddenSize%c.NumHeads != 0 {
			k.Fail("head_dim", "is missing and hidden_size %d is not a multiple of num_attention_heads %d",
				c.HiddenSize, c.NumHeads)
		}
		c.HeadDim = c.HiddenSize / c.NumHeads
	}
	k.Float("rms_norm_eps", &c.RMSNormEps)
	k.activation(c, d)
	k.Bool("tie_word_embeddings", &c.TieEmbeddings)
	// never the id of a token: small models keep their class's
	outside := func(id int) bool { return id < 0 || id >= c.VocabSize }
	c.BOS = slices.DeleteFunc(k.ids("bos_token_id"), outside)
	c.EOS = slices.DeleteFunc(k.ids("eos_token_id"), outside)
	k.Text("torch_dtype", &c.DType)
	k.Text("dtype", &c.DType) // transformers 5; it wins as it does there
	c.DType = strings.TrimPrefix(c.DType, "torch.")
	if d.LayerRope {
		k.splitRope()
	}
	c.readRope(k)
	c.readQuantization(k, d)
	d.Read(c, k)
}

// MaxLayers bounds num_hidden_layers.
const MaxLayers = 4096

// Validate reports every impossible size or option in one error.
func (c Config) Validate() error { return problemList(c.problems()) }

// problems maps the key of config.json to what is wrong with its value.
func (c Config) problems() map[string]string {
	bad := map[string]string{}
	check := func(ok bool, key, format string, args ...any) {
		if !ok && bad[key] == "" {
			bad[key] = fmt.Sprintf(format, args...)
		}
	}
	size := func(key string, v, limit int) {
		check(v >= 1 && v <= limit, key, "= %d: must be 1 to %d", v, limit)
	}
	size("vocab_size", c.VocabSize, 1<<24)
	size("hidden_size", c.HiddenSize, 1<<20)
	size("intermediate_size", c.IntermediateSize, 1<<22)
	size("num_hidden_layers", c.NumLayers, MaxLayers)
	size("num_attention_heads", c.NumHeads, 1<<14)
	size("num_key_value_heads", c.NumKVHeads, 1<<14)
	size("head_dim", c.HeadDim, 1<<14)
	size("max_position_embeddings", c.MaxPositions, 1<<30)
	check(c.HeadDim%2 == 0, "head_dim", "= %d: rotary embedding needs an even head size", c.HeadDim)
	if c.NumKVHeads > 0 {
		check(c.NumHeads%c.NumKVHeads == 0, "num_key_value_heads", "= %d does not divide num_attention_heads %d",
			c.NumKVHeads, c.NumHeads)
	}
	check(c.RMSNormEps > 0 && c.RMSNormEps < 1, "rms_norm_eps", "= %g: must be above 0 and below 1", c.RMSNormEps)
	check(slices.Contains(activations, c.HiddenAct), "hidden_act", "= %q: supported are %s", c.HiddenAct,
		activationNames)
	for key, v := range map[string]float64{"attn_logit_softcapping": c.AttentionCap,
		"final_logit_softcapping": c.LogitCap} {
		check(v >= 0 && v <= 1e6, key, "= %g: must be above zero", v)
	}
	check(c.NoPositions == nil || len(c.NoPositions) == c.NumLayers, "no_rope_layers",
		"names %d layers, num_hidden_layers is %d", len(c.NoPositions), c.NumLayers)
	scale := func(key string, v float64, sign bool) {
		size := v
		if sign {
			size = math.Abs(v)
		}
		check(v == 0 || size >= 1e-6 && size <= 1e6, key, "= %g: must be 1e-6 to 1e6", v)
	}
	scale("embedding_multiplier", c.EmbeddingScale, true)
	scale("residual_multiplier", c.ResidualScale, false)
	scale("attention_multiplier", c.AttentionScale, false)
	scale("logits_scaling", c.LogitDivisor, true)
	check(c.SlidingWindow >= 0 && c.SlidingWindow <= 1<<30, "sliding_window", "= %d: must be 1 to %d, or null",
		c.SlidingWindow, 1<<30)
	check(c.LayerTypes == nil || len(c.LayerTypes) == c.NumLayers, "layer_types",
		"names %d layers, num_hidden_layers is %d", len(c.LayerTypes), c.NumLayers)
	other := SlidingAttention
	if c.DeltaNet != (DeltaNet{}) {
		other = LinearAttention
	}
	for i, kind := range c.LayerTypes {
		check(kind == FullAttention || kind == other, "layer_types", "[%d] = %q: supported are %s and %s", i, kind,
			FullAttention, other)
	}
	c.deltaNetProblems(check)
	c.gemma4Problems(check)
	check(slices.Contains([]string{"", "float64", "float32", "float16", "bfloat16"}, c.DType), "dtype",
		"= %q: supported are float64, float32, float16 and bfloat16", c.DType)
	c.expertProblems(check)
	c.ropeProblems(check)
	return bad
}
