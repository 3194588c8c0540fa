// Package model describes a model as config.json defines it: sizes, options and rotary frequencies. The layers of the
// families are in its subfolders.
package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Config is the configuration of a decoder-only model.
type Config struct {
	ModelType        string // the family, such as "llama"
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
	PartialRotary    float64 // part of a head that is rotated, its first columns; 0 = the whole head
	Interleaved      bool    // rotation pairs neighbouring columns of a head instead of columns of its two halves
	MaxPositions     int
	TieEmbeddings    bool // lm_head shares the tensor of embed_tokens
	// ExpertLayers reports whether the folder stores an expert's matrices as separate linear layers, as Unsloth
	// quantises gpt_oss.
	ExpertLayers   bool
	TieWithoutHead bool // for a folder with images: embeddings are tied if the checkpoint has no lm_head
	HeadIfThere    bool // for a folder with images: embeddings are not tied if the checkpoint has an lm_head
	QKVBias        bool // biases on q, k and v
	OBias          bool // a bias on o
	MLPBias        bool // biases on gate, up and down
	// SlidingWindow is the number of tokens that a token attends to in windowed layers, itself included; 0 = no layer
	// has a window. Window returns it for each layer.
	SlidingWindow int
	// LayerTypes is "full_attention", "sliding_attention", "linear_attention" or "conv" for each layer; nil =
	// all alike, windowed when SlidingWindow > 0.
	LayerTypes []string
	// OneMixer reports that a layer has one of attention, linear attention, an MLP and experts, as LayerTypes says: the
	// last two are MLPLayer and ExpertsLayer.
	OneMixer bool
	// DeltaNet holds the sizes of linear attention layers; the zero value = there are none.
	DeltaNet DeltaNet
	// StateSpace holds the sizes of Mamba-2 layers; the zero value = there are none.
	StateSpace StateSpace
	// Latent holds the sizes of multi-head latent attention; the zero value = another attention.
	Latent Latent
	// ShortConv is the number of tokens in the window of layers with a short convolution (LFM2); 0 = there are none.
	ShortConv int
	// Gemma4 holds the differences between layers of Gemma 4; the zero value = another family.
	Gemma4 Gemma4
	// EmbeddingScale, ResidualScale and LogitDivisor are Granite's multipliers, 0 = 1: of the embeddings, of a layer's
	// contribution to the residual stream, and the divisor of the logits. AttentionScale multiplies the attention
	// scores, 0 = 1/sqrt(HeadDim).
	EmbeddingScale, ResidualScale, LogitDivisor, AttentionScale float64
	// Multipliers holds Falcon-H1's factors; nil = another family.
	Multipliers *Multipliers
	// AttentionCap and LogitCap are soft caps Cap*tanh(x/Cap) of the attention scores and of the logits (Gemma); 0 =
	// none.
	AttentionCap, LogitCap float64
	// NoPositions marks the layers whose queries and keys are not rotated; nil = all are rotated.
	NoPositions []bool
	// LocalRopeTheta and LocalRopeScaling are the rotary base and scaling of windowed layers (Gemma 3); 0 = the same as
	// other layers.
	LocalRopeTheta   float64
	LocalRopeScaling RopeScaling
	// Head is what the checkpoint has behind its layers.
	Head Head
	// Multimodal reports whether the configuration is the language model of a model of text and images. Its other parts
	// are left out.
	Multimodal bool
	// TextScope is the scope of the language model's tensors in a folder with images; "" = model.language_model.
	TextScope string
	HiddenAct string // "silu", "gelu_pytorch_tanh" or "gelu" (the exact form); ReLU2 or XIELU in MLPs without a gate
	QKNorm    bool   // RMSNorm of every query and key head, before the rotation
	// LateQKNorm makes QKNorm follow the rotation.
	LateQKNorm bool
	// WholeQKNorm makes QKNorm one norm over all query heads and one over all key heads, in mixtures of experts.
	WholeQKNorm bool
	// Experts is the number of experts of a layer's mixture of experts; 0 = no layer has one. ExpertLayer reports which
	// layers have one.
	Experts         int
	ExpertsPerToken int   // K
	ExpertSize      int   // an expert's intermediate size
	SharedSize      int   // intermediate size of the shared expert; 0 = there is none
	ExpertLatent    int   // columns that experts read and write, between two linear layers; 0 = HiddenSize
	NormTopK        bool  // a token's weights of its K experts are divided by their sum
	ExpertStep      int   // the last of every ExpertStep layers has experts; 0 = 1
	DenseLayers     []int // layers without experts
	// Routing says how routers choose and weigh experts; the zero value = by the softmax of their logits.
	Routing Routing
	// RouterAuxLoss is the coefficient of the experts' balance loss in training; 0 = no balance loss.
	RouterAuxLoss float64
	// Unapplied lists the keys of the base model's dropouts that are not 0, with their values. Training applies none of
	// them.
	Unapplied []string
	BOS, EOS  []int  // token ids of the vocabulary; empty if the file names none
	DType     string // "float32", "float16", "bfloat16" or "float64"; "" if the file names none
	// Quantization describes how the checkpoint stores its linear layers; nil = unquantised.
	Quantization *Quantization
}

// Attention kinds of layer_types.
const (
	FullAttention    = "full_attention"
	SlidingAttention = "sliding_attention"
)

// Window returns the sliding window of a layer in tokens, or 0 for full attention. A token at position i attends to
// positions j <= i with i-j < Window.
func (c Config) Window(layer int) int {
	if c.LayerTypes != nil && c.LayerTypes[layer] != SlidingAttention {
		return 0
	}
	return c.SlidingWindow
}

// Scope returns the prefix of the names of all tensors but the head.
func (c Config) Scope() string {
	if c.Multimodal {
		return cmp.Or(c.TextScope, "model.language_model")
	}
	return "model"
}

// HeadName returns the name of the vocabulary head's tensor: that of the embeddings if the model ties them.
func (c Config) HeadName() string {
	if c.TieEmbeddings {
		return c.Scope() + ".embed_tokens.weight"
	}
	return "lm_head.weight"
}

// LocalRope returns the configuration whose InvFreq belongs to the windowed layers. own reports whether it differs from
// c.
func (c Config) LocalRope() (local Config, own bool) {
	if c.LocalRopeTheta == 0 {
		return c, false
	}
	c.RopeTheta, c.RopeScaling = c.LocalRopeTheta, c.LocalRopeScaling
	return c, true
}

// ExpertLayer reports whether a layer has a mixture of experts in place of an MLP.
func (c Config) ExpertLayer(layer int) bool {
	return c.Experts > 0 && (layer+1)%max(c.ExpertStep, 1) == 0 && !slices.Contains(c.DenseLayers, layer)
}

// Rotates reports whether a layer rotates its queries and keys by their positions.
func (c Config) Rotates(layer int) bool { return c.NoPositions == nil || !c.NoPositions[layer] }

// ParseConfig reads a config.json as transformers 4 or 5 writes it. Its model_type must be a key of dialects. Absent
// keys get transformers' defaults. Every unknown key, and every value that would change the result and is not
// supported, is an error that names the key. The error lists all problems.
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
	if len(architectures) > 0 {
		var known bool
		if c.Head, known = d.head(architectures); !known {
			k.Fail("architectures", "= %q: a %s checkpoint must be a %s", architectures, c.ModelType, d.Architecture)
		}
	}
	around, tied := false, false
	if d.Text != nil {
		around = k.Bool("tie_word_embeddings", &tied)
		c.Multimodal, c.TextScope = true, d.TextScope
		k, d = k.text(d)
	}
	c.read(k, d)
	if around { // if it contradicts text_config, the checkpoint's tensors decide
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
	k.needInt("num_hidden_layers", &c.NumLayers) // a negative default stays for d.Read
	k.needInt("num_attention_heads", &c.NumHeads)
	k.needInt("max_position_embeddings", &c.MaxPositions)
	if k.null("num_key_value_heads") {
		c.NumKVHeads = 0 // as many as heads, whatever the family's default is
	}
	if k.null("head_dim") {
		c.HeadDim = 0 // derived from the width
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
	// not an error: small models keep the token ids of their class
	outside := func(id int) bool { return id < 0 || id >= c.VocabSize }
	c.BOS = slices.DeleteFunc(k.ids("bos_token_id"), outside)
	c.EOS = slices.DeleteFunc(k.ids("eos_token_id"), outside)
	k.Text("torch_dtype", &c.DType)
	k.Text("dtype", &c.DType) // transformers 5 writes it and prefers it
	c.DType = strings.TrimPrefix(c.DType, "torch.")
	if d.LayerRope {
		k.splitRope()
	}
	c.readRope(k)
	c.readQuantization(k, d)
	d.Read(c, k)
}

// FromLayerTypes is the Config.NumLayers that a dialect has by default if its list of kinds gives the number of layers.
const FromLayerTypes = -1

// MaxLayers is the largest num_hidden_layers.
const MaxLayers = 4096

// Validate returns an error that lists every impossible size or option.
func (c Config) Validate() error { return problemList(c.problems()) }

// problems maps each key of config.json with a bad value to the reason.
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
	check(c.HiddenAct == ReLU2 || c.HiddenAct == XIELU || slices.Contains(activations, c.HiddenAct), "hidden_act",
		"= %q: supported are %s", c.HiddenAct, activationNames)
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
	if c.DeltaNet != (DeltaNet{}) || c.StateSpace != (StateSpace{}) {
		other = LinearAttention
	}
	if c.ShortConv != 0 {
		other = ConvLayer
		check(c.ShortConv >= 2 && c.ShortConv <= maxFilter, "conv_L_cache", "= %d: must be 2 to %d", c.ShortConv,
			maxFilter)
	}
	for i, kind := range c.LayerTypes {
		if c.OneMixer {
			check(slices.Contains([]string{FullAttention, other, MLPLayer, ExpertsLayer}, kind), "layers_block_type",
				"[%d] = %q: supported are %s, %s, %s and %s", i, kind, FullAttention, other, MLPLayer, ExpertsLayer)
			continue
		}
		check(kind == FullAttention || kind == other, "layer_types", "[%d] = %q: supported are %s and %s", i, kind,
			FullAttention, other)
	}
	c.deltaNetProblems(check)
	c.StateSpace.problems(check)
	c.latentProblems(check)
	c.gemma4Problems(check)
	check(slices.Contains([]string{"", "float64", "float32", "float16", "bfloat16"}, c.DType), "dtype",
		"= %q: supported are float64, float32, float16 and bfloat16", c.DType)
	c.expertProblems(check)
	c.ropeProblems(check)
	return bad
}
