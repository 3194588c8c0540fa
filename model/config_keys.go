package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
)

// Dialect describes how a family's config.json differs from that of other families.
type Dialect struct {
	Architecture string // the name that architectures may have
	// another architecture name, in files from before transformers supported the family; "" = none
	Former          string
	KVHeadsOptional bool // absent num_key_value_heads means num_attention_heads
	PartialRotary   bool // partial_rotary_factor may be below 1
	// MRoPE allows rope_parameters to divide the rotation among the three coordinates of an image patch. For text the
	// three coordinates are equal.
	MRoPE         bool
	MXFP4         bool   // experts may be stored in MXFP4
	ActivationKey string // the key of the activation, see activations; "" = hidden_act
	SiLU          bool   // the activation must be silu
	// Ungated is the activation of a family whose MLPs have no gate, the only one; "" = MLPs have a gate.
	Ungated string
	// RopeTypes maps the names of rotary scaling in files to kinds; nil = the general ones (rope.go).
	RopeTypes map[string]string
	// LayerRope allows rope_parameters to hold an object for each kind of layer.
	LayerRope bool
	// QueryScale makes rotary scaling define how queries grow with their position (Config.QueryScale).
	QueryScale bool
	// RopeAlpha makes the key alpha of dynamic scaling a stretch of its own.
	RopeAlpha bool
	// Rope is the rotation of files that do not define one; nil = plain rotation.
	Rope *DefaultRope
	// Text maps the model_type of text_config, the language model of a model of text and images, to its dialect.
	// TextType is the model_type if text_config has none. Other lists the keys beside text_config that only concern
	// images, of which any value is accepted. nil = a language model alone.
	Text     map[string]Dialect
	TextType string
	Other    []string
	// TextScope is Config.TextScope of such a folder.
	TextScope string
	// Defaults sets the family's values of absent keys. General defaults are 1e-6 for rms_norm_eps, 10000 for
	// rope_theta, false for tie_word_embeddings and hidden_size / num_attention_heads for head_dim; other sizes are
	// required. nil = general defaults.
	Defaults func(c *Config)
	// Read reads the family's own keys, after those that all families share.
	Read func(c *Config, k *Keys)
	// Fixed maps keys to the one value that is supported.
	Fixed map[string]Fixed
}

func names(dialects map[string]Dialect) string {
	return strings.Join(slices.Sorted(maps.Keys(dialects)), ", ")
}

// named reports whether architectures contains one of the dialect's names.
func (d Dialect) named(architectures []string) bool {
	return slices.ContainsFunc(architectures, func(a string) bool {
		return strings.EqualFold(a, d.Architecture) || d.Former != "" && strings.EqualFold(a, d.Former)
	})
}

// OwnCode accepts auto_map if the code that it names is also part of transformers, with the class model.
func (k *Keys) OwnCode(model string) {
	var code map[string]any
	k.Object("auto_map", &code)
	if of, ok := code["AutoModelForCausalLM"]; ok {
		if name, _ := of.(string); !strings.HasSuffix(name, "."+model) {
			k.Fail("auto_map", "names %v: models that bring their own code are not supported", of)
		}
	}
}

func byArchitecture(dialects map[string]Dialect, architectures []string) (string, Dialect, bool) {
	for _, name := range slices.Sorted(maps.Keys(dialects)) {
		d := dialects[name]
		if d.named(architectures) {
			return name, d, true
		}
	}
	return "", Dialect{}, false
}

// Fixed is a key that changes the result and of which only this value (or null) is supported.
type Fixed struct {
	Value any // number, bool or nil (only null and empty are allowed)
	Why   string
}

const (
	dropout = "training here has no dropout in the base model"
	experts = "this part of a mixture of experts is not supported in this family"
	towers  = "only text models are supported"
	softcap = "this change to the attention or the logits is not supported"
)

var fixedKeys = map[string]Fixed{
	"attention_dropout": {0.0, dropout}, "attn_pdrop": {0.0, dropout}, "embd_pdrop": {0.0, dropout},
	"resid_pdrop": {0.0, dropout},
	"dropout":     {0.0, dropout}, "hidden_dropout": {0.0, dropout}, "hidden_dropout_prob": {0.0, dropout},
	"num_experts": {nil, experts}, "num_local_experts": {nil, experts}, "num_experts_per_tok": {nil, experts},
	"n_routed_experts": {nil, experts}, "n_shared_experts": {nil, experts}, "moe_intermediate_size": {nil, experts},
	"shared_expert_intermediate_size": {nil, experts}, "decoder_sparse_step": {nil, experts},
	"norm_topk_prob":  {nil, experts},
	"mlp_only_layers": {nil, experts}, "router_aux_loss_coef": {nil, experts}, "output_router_logits": {false, experts},
	"text_config": {nil, towers}, "vision_config": {nil, towers}, "audio_config": {nil, towers},
	"attn_logit_softcapping": {nil, softcap}, "final_logit_softcapping": {nil, softcap},
	"query_pre_attn_scalar": {nil, softcap},
	"clip_qkv":              {nil, softcap}, "use_qk_norm": {false, softcap}, "qk_layernorm": {false, softcap},
	"partial_rotary_factor": {1.0, "rotation of a part of the head is not supported"},
	"rope_interleaved":      {false, "only the rotate-half layout is supported"},
	"use_mrope":             {false, "multimodal rotary embedding is not supported"},
	"compression_config": {nil,
		"weights that compressed-tensors (llm-compressor) has quantised are not supported; " + useOriginal},
	"auto_map":                    {nil, "models that bring their own code are not supported"},
	"pruned_heads":                {nil, "pruned heads are not supported"},
	"is_encoder_decoder":          {false, "only decoders are supported"},
	"add_cross_attention":         {false, "only decoders are supported"},
	"cross_attention_hidden_size": {nil, "only decoders are supported"},
}

// harmlessKeys do not change what a causal language model computes in training: bookkeeping, initialisation, generation
// defaults, heads for other tasks. pretraining_tp splits a GEMM into slices with the same sum.
var harmlessKeys = func() map[string]bool {
	m := map[string]bool{}
	for _, k := range strings.Fields(`
		transformers_version transformers.js_config name_or_path tokenizer_class tokenizer_type prefix use_cache initializer_range
		pretraining_tp gradient_checkpointing attn_implementation use_bfloat16 tf_legacy_loss torchscript return_dict
		output_hidden_states output_attentions chunk_size_feed_forward is_decoder tie_encoder_decoder is_llama_config
		pad_token_id sep_token_id decoder_start_token_id unk_token_id
		finetuning_task id2label label2id num_labels problem_type task_specific_params classifier_dropout
		max_length max_new_tokens min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty
		temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size
		encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores return_dict_in_generate
		forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty
		suppress_tokens begin_suppress_tokens unsloth_fixed unsloth_version max_sequence_length model_max_length`) {
		m[k] = true
	}
	return m
}()

// Keys is a JSON object whose keys are read one by one. A value of a wrong type, or a call of Fail, records a problem
// for the key.
type Keys struct {
	raw   map[string]json.RawMessage
	given map[string]bool   // the keys of the file
	nulls map[string]bool   // keys that were read and are null
	bad   map[string]string // problems by key
	scope string            // "rope_scaling." inside that object
	// dialect is the file's dialect; parts holds the values of partial_rotary_factor inside rope_scaling and
	// rope_parameters.
	dialect Dialect
	parts   map[string]float64
	five    bool // transformers 5 or later wrote the file
}

// infinity is a number that Python writes and JSON does not have.
const infinity = "Infinity"

// quoteInfinity returns JSON with the number Infinity as a string, which transformers before version 5 wrote bare.
func quoteInfinity(data []byte) []byte {
	if !bytes.Contains(data, []byte(infinity)) {
		return data
	}
	var out []byte
	for i, quoted := 0, false; i < len(data); i++ {
		switch {
		case quoted && data[i] == '\\' && i+1 < len(data):
			out = append(out, data[i])
			i++
		case data[i] == '"':
			quoted = !quoted
		case !quoted && bytes.HasPrefix(data[i:], []byte(infinity)):
			out = append(out, `"`+infinity+`"`...)
			i += len(infinity) - 1
			continue
		}
		out = append(out, data[i])
	}
	return out
}

func newKeys(data []byte) (*Keys, error) {
	raw, err := object(quoteInfinity(data))
	if err != nil {
		return nil, err
	}
	k := &Keys{raw: raw, bad: map[string]string{}, given: map[string]bool{}, parts: map[string]float64{}}
	for key := range raw {
		k.given[key] = true
	}
	var version string
	if json.Unmarshal(raw["transformers_version"], &version) == nil {
		major, _, _ := strings.Cut(version, ".")
		n, err := strconv.Atoi(major)
		k.five = err == nil && n >= 5
	}
	return k, nil
}

// followsFromBad reports whether the file lacks key and the value from which it is derived is reported already.
func (k *Keys) followsFromBad(key string) bool {
	head := []string{"partial_rotary_factor", "head_dim", "num_attention_heads", "hidden_size"}
	from := map[string][]string{
		"rope_scaling.short_factor": head, "rope_scaling.long_factor": head, "rope_parameters.short_factor": head,
		"rope_parameters.long_factor": head,
		"num_key_value_heads":         {"num_attention_heads"},
		"head_dim":                    {"num_attention_heads", "hidden_size"},
		"bos_token_id":                {"vocab_size"},
		"eos_token_id":                {"vocab_size"},
		"layer_types":                 {"num_hidden_layers"},
	}[key]
	derived := !k.given[key] || key == "bos_token_id" || key == "eos_token_id" || key == "layer_types"
	return derived && slices.ContainsFunc(from, func(f string) bool { return k.bad[f] != "" })
}

// object splits a JSON object into its keys. A repeated key is an error.
func object(data []byte) (map[string]json.RawMessage, error) {
	if wrong := jsonerr.Check(data); wrong != nil {
		return nil, fmt.Errorf("not JSON: %w", wrong)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	raw := map[string]json.RawMessage{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key := tok.(string)
		if _, ok := raw[key]; ok {
			return nil, fmt.Errorf("duplicate key %q", key)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		raw[key] = value
	}
	return raw, nil
}

// Fail records a problem for a key. Only the first problem of a key is kept.
func (k *Keys) Fail(key, format string, args ...any) {
	if key = k.scope + key; k.bad[key] == "" {
		k.bad[key] = fmt.Sprintf(format, args...)
	}
}

// Has reports whether the key exists, null or not, and has not been read.
func (k *Keys) Has(key string) bool { _, ok := k.raw[key]; return ok }

// null reports whether the key exists and is null.
func (k *Keys) null(key string) bool { return string(k.raw[key]) == "null" }

// absent reports whether the key is missing or null.
func (k *Keys) absent(key string) bool { return !k.Has(key) || k.null(key) }

// Five reports whether transformers 5 or later wrote the file, according to transformers_version.
func (k *Keys) Five() bool { return k.five }

// Given reports whether the file has the key, null or not, read or not.
func (k *Keys) Given(key string) bool { return k.given[key] }

// Said reports whether the file has the key with a value other than null. The key must have been read.
func (k *Keys) Said(key string) bool { return k.given[key] && !k.nulls[key] }

// Drop marks a key as read, whatever its value.
func (k *Keys) Drop(key string) { delete(k.raw, key) }

// take reads key into v and reports whether it exists and is not null.
func (k *Keys) take(key, kind string, v any) bool {
	raw, ok := k.raw[key]
	k.Drop(key)
	if ok && string(raw) == "null" {
		if k.nulls == nil {
			k.nulls = map[string]bool{}
		}
		k.nulls[key] = true
	}
	if !ok || string(raw) == "null" {
		return false
	}
	if err := json.Unmarshal(raw, v); err != nil {
		k.Fail(key, "= %s: must be %s", shown(raw), kind)
		return false
	}
	return true
}

func (k *Keys) Int(key string, v *int) bool       { return k.take(key, "a whole number", v) }
func (k *Keys) Float(key string, v *float64) bool { return k.take(key, "a number", v) }
func (k *Keys) Bool(key string, v *bool) bool     { return k.take(key, "true or false", v) }
func (k *Keys) Text(key string, v *string) bool   { return k.take(key, "a string", v) }

func (k *Keys) Object(key string, v *map[string]any) bool { return k.take(key, "an object", v) }

func (k *Keys) Texts(key string) (list []string) {
	k.take(key, "a list of strings", &list)
	return list
}

// Ints reads a list of integers; ok reports whether there was one.
func (k *Keys) Ints(key string) (list []int, ok bool) {
	ok = k.take(key, "a list of whole numbers", &list)
	return list, ok
}

// Floats reads a list of numbers.
func (k *Keys) Floats(key string) (list []float64) {
	k.take(key, "a list of numbers", &list)
	return list
}

func (k *Keys) needInt(key string, v *int) {
	if !k.Int(key, v) && *v == 0 {
		k.Fail(key, "is missing")
	}
}

// activations lists the supported activations of an MLP's gate by transformers' names.
var activations = []string{"silu", "gelu_pytorch_tanh", "gelu"}

const activationNames = "silu, gelu_pytorch_tanh and gelu"

// ReLU2 and XIELU are the activations of MLPs without a gate, by transformers' names.
const (
	ReLU2 = "relu2"
	XIELU = "xielu" // of Apertus
)

// sameActivation maps other names of the same functions to those of activations.
var sameActivation = map[string]string{"swish": "silu", "gelu_new": "gelu_pytorch_tanh",
	"gelu_fast":     "gelu_pytorch_tanh",
	"gelu_accurate": "gelu_pytorch_tanh", "gelu_python": "gelu"}

// activation reads the MLP's activation. A family with a key of its own ignores hidden_act.
func (k *Keys) activation(c *Config, d Dialect) {
	key := "hidden_act"
	if d.ActivationKey != "" && d.ActivationKey != key {
		key = d.ActivationKey
		k.Drop("hidden_act")
	}
	k.Text(key, &c.HiddenAct)
	if same := sameActivation[c.HiddenAct]; same != "" {
		c.HiddenAct = same
	}
	switch {
	case d.Ungated != "":
		if c.HiddenAct != d.Ungated {
			k.Fail(key, "= %q: only %s is supported", c.HiddenAct, d.Ungated)
		}
	case d.SiLU && c.HiddenAct != "silu":
		k.Fail(key, "= %q: only silu is supported", c.HiddenAct)
	case !slices.Contains(activations, c.HiddenAct):
		k.Fail(key, "= %q: supported are %s", c.HiddenAct, activationNames)
		c.HiddenAct = activations[0]
	}
}

// ids reads one token id or a list of token ids.
func (k *Keys) ids(key string) []int {
	var one int
	var list []int
	if raw := k.raw[key]; len(raw) > 0 && raw[0] == '[' {
		k.take(key, "a token id or a list of them", &list)
		return list
	}
	if k.take(key, "a token id or a list of them", &one) {
		return []int{one}
	}
	return nil
}

// rest checks the keys that nothing has read.
func (k *Keys) rest(d Dialect) {
	for key, raw := range k.raw {
		f, ok := d.Fixed[key]
		if !ok {
			f, ok = fixedKeys[key]
		}
		switch {
		case ok:
			if !f.allows(raw) {
				k.Fail(key, "= %s: %s", shown(raw), f.Why)
			}
		case harmlessKeys[key] || strings.HasPrefix(key, "_"):
		default:
			k.Fail(key, "= %s: unknown key; tierlora does not know whether it changes the model", shown(raw))
		}
	}
}

func (f Fixed) allows(raw json.RawMessage) bool {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return false
	}
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return f.Value == nil && len(v) == 0
	case map[string]any:
		return f.Value == nil && len(v) == 0
	}
	return v == f.Value
}

// shown formats a value for an error message, cut to one line.
func shown(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return strconv.Quote(string(raw))
	}
	if r := []rune(b.String()); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return b.String()
}

// problemList returns one error with a line for each key, or nil if there are no problems.
func problemList(bad map[string]string) error {
	if len(bad) == 0 {
		return nil
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(bad)) {
		sep := " "
		if strings.HasPrefix(bad[key], "[") {
			sep = ""
		}
		lines = append(lines, key+sep+bad[key])
	}
	if len(lines) == 1 {
		return errors.New(lines[0])
	}
	return fmt.Errorf("%d problems:\n  %s", len(lines), strings.Join(lines, "\n  "))
}
