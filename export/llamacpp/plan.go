// Package llamacpp says what a model is to llama.cpp: the keys, the names and layouts of tensors, the tokenizer and the
// chat template of a GGUF file, which package gguf writes. What llama.cpp computes otherwise is refused, or noted where
// it is the same up to a length.
package llamacpp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Source reads the weights of a checkpoint, by the names that the model knows.
type Source interface {
	// Shape of a tensor; nil = there is none.
	Shape(name string) []int
	// Floats reads elements [from, from+len(dst)), row-major.
	Floats(name string, from int, dst []float32) error
}

// Model is what becomes a file.
type Model struct {
	Name      string // shown to people
	Licence   string // "" = not known
	Config    model.Config
	Tokenizer *tokenizer.Tokenizer
	Chat      *chat.Sources // whose default template is taken, and the tokens that answers end with
	System    string        // the system message that every conversation was trained with; "" = none
	Source    Source
	Tensors   []string // that the network reads: each must find its place
	Pooling   Pooling  // how the model makes a vector of a text; 0 = it writes text
}

// Pooling is how llama.cpp makes a vector of a text, as it numbers the ways.
type Pooling uint32

// Values of Pooling.
const (
	PoolMean Pooling = 1 // the mean of the tokens' vectors
	PoolLast Pooling = 3 // the vector of the last token
)

// Tensor is a tensor of the file and where its rows are from.
type Tensor struct {
	Name  string
	Shape []int // as ggml has it: the row length first
	Plain bool  // stays in F32: norms, biases, routers
	// Rows reads the rows from row on that dst has room for.
	Rows func(row int, dst []float32) error
	// From is the checkpoint's tensor, and Order where a row of a matrix is in it, nil = in its place: what an adapter
	// follows.
	From    string
	Order   func(row int) int
	Columns func(column int) int // likewise
	// Transposed says that a row is a column of the checkpoint's tensor [E,in,out].
	Transposed bool
	// Stack are the checkpoint's tensors, one for each expert; nil = it is one.
	Stack []string
}

// Plan is a file's content.
type Plan struct {
	Architecture string
	KVs          []gguf.KV
	Tensors      []Tensor
	Notes        []string // where llama.cpp differs

	c    model.Config
	src  Source
	used map[string]bool
	errs []string
}

// family is how a model type becomes an architecture of llama.cpp.
type family struct {
	arch  string
	build func(p *Plan)
}

// families are the model types that are written. Each line was compared with llama.cpp: scripts/export_check.py.
var families = map[string]family{
	"ernie4_5":            {"ernie4_5", ernie},
	"gemma":               {"gemma", gemma},
	"gemma2":              {"gemma2", gemma2},
	"gemma3":              {"gemma3", gemma3},
	"gemma3_text":         {"gemma3", gemma3},
	"gemma4":              {"gemma4", gemma4},
	"gemma4_text":         {"gemma4", gemma4},
	"gemma4_unified":      {"gemma4", gemma4},
	"gemma4_unified_text": {"gemma4", gemma4},
	"glm4":                {"glm4", glm4},
	"gpt_oss":             {"gpt-oss", gptOSS},
	"granite":             {"granite", granite},
	"llama":               {"llama", llama},
	"mistral":             {"llama", llama},
	"mistral3":            {"llama", llama},
	"mixtral":             {"llama", mixtral},
	"olmo2":               {"olmo2", olmo2},
	"phi3":                {"phi3", phi3},
	"qwen2":               {"qwen2", qwen2},
	"qwen2_moe":           {"qwen2moe", qwen2MoE},
	"qwen3":               {"qwen3", qwen3},
	"qwen3_moe":           {"qwen3moe", qwen3MoE},
	"qwen3_5":             {"qwen35", qwen35Dense},
	"qwen3_5_text":        {"qwen35", qwen35Dense},
	"qwen3_5_moe":         {"qwen35moe", qwen35MoE},
	"qwen3_5_moe_text":    {"qwen35moe", qwen35MoE},
	"smollm3":             {"smollm3", smollm3},
}

// Make plans the file of a model, without its file type, which follows from how tensors are stored.
func Make(m Model) (*Plan, error) {
	p, err := network(m)
	if err != nil {
		return nil, err
	}
	if err := p.tokens(m); err != nil {
		return nil, fmt.Errorf("the tokenizer as llama.cpp has it: %w", err)
	}
	return p, nil
}

// network plans all but the tokenizer.
func network(m Model) (*Plan, error) {
	f, ok := families[m.Config.ModelType]
	if !ok {
		return nil,
			fmt.Errorf("model_type %q is not written as GGUF; those that are: %s",
				m.Config.ModelType, strings.Join(slices.Sorted(maps.Keys(families)), ", "))
	}
	p := &Plan{Architecture: f.arch, c: m.Config, src: m.Source, used: map[string]bool{}}
	p.add("general.architecture", f.arch)
	p.add("general.type", "model")
	if m.Name != "" {
		p.add("general.name", m.Name)
	}
	if m.Licence != "" {
		p.add("general.license", m.Licence)
	}
	p.common()
	if m.Pooling != 0 {
		p.set("pooling_type", uint32(m.Pooling))
		p.note("an embedding model: llama-server --embeddings answers /v1/embeddings with vectors of length 1")
	}
	f.build(p)
	for _, name := range m.Tensors {
		if !p.used[name] {
			p.fail("the tensor %s has no place in the architecture %s", name, f.arch)
		}
	}
	if p.errs != nil {
		return nil, fmt.Errorf("a %s model as llama.cpp's %s: %s", m.Config.ModelType, f.arch,
			strings.Join(p.errs, "; "))
	}
	return p, nil
}

func (p *Plan) add(key string, value any) { p.KVs = append(p.KVs, gguf.KV{Key: key, Value: value}) }

// set adds a key of the architecture, in the place of one that is there.
func (p *Plan) set(key string, value any) {
	if n, ok := value.(int); ok {
		value = uint32(n)
	}
	if x, ok := value.(float64); ok {
		value = float32(x)
	}
	key = p.Architecture + "." + key
	if at := slices.IndexFunc(p.KVs, func(kv gguf.KV) bool { return kv.Key == key }); at >= 0 {
		p.KVs[at].Value = value
		return
	}
	p.add(key, value)
}

func (p *Plan) note(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(p.Notes, s) {
		p.Notes = append(p.Notes, s)
	}
}

func (p *Plan) fail(format string, args ...any) {
	p.errs = append(p.errs, fmt.Sprintf(format, args...))
}

func (p *Plan) need(ok bool, format string, args ...any) {
	if !ok {
		p.fail(format, args...)
	}
}

// common are the keys that every architecture reads.
func (p *Plan) common() {
	c := p.c
	p.set("vocab_size", c.VocabSize)
	p.set("context_length", c.MaxPositions)
	p.set("embedding_length", c.HiddenSize)
	p.set("block_count", c.NumLayers)
	p.set("feed_forward_length", c.IntermediateSize)
	p.set("attention.head_count", c.NumHeads)
	p.set("attention.head_count_kv", c.NumKVHeads)
	p.set("attention.key_length", c.HeadDim)
	p.set("attention.value_length", c.HeadDim)
	p.set("attention.layer_norm_rms_epsilon", c.RMSNormEps)
	p.set("rope.dimension_count", c.RotaryColumns())
	p.set("rope.freq_base", c.RopeTheta)
}
