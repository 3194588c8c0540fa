package adapter

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// LoRA is the section lora of a run's configuration.
type LoRA struct {
	Shared       `yaml:",inline"`
	LoRASettings `yaml:",inline"`
}

// LoRASettings are the keys of the section lora that other sections do not have.
type LoRASettings struct {
	// ExcludeModules leaves out modules that TargetModules select: a list of names (the ends of their paths), or one
	// regular expression in Python's syntax that must match a whole path.
	ExcludeModules Targets `yaml:"exclude_modules,omitempty" resume:"compared"`
	// LayersToTransform lists the numbers of the layers to adapt, counted from 0. Empty means all layers. As in PEFT, a
	// target that is a whole path is adapted whatever its layer is, and TargetModules may not be a regular expression.
	LayersToTransform []string `yaml:"layers_to_transform,omitempty" form:"numbers" resume:"compared"`
	// LayersPattern lists names, or regular expressions for them, behind which a path has its layer's number, such as
	// layers. Empty means that the first number of a path counts.
	LayersPattern []string `yaml:"layers_pattern,omitempty" resume:"compared"`
	// UseRSLoRA divides alpha by sqrt(r) instead of r (rank-stabilised LoRA).
	UseRSLoRA bool `yaml:"use_rslora" resume:"compared"`
	// LoRAPlusLRRatio is the learning rate of B divided by that of A (LoRA+). 0 turns LoRA+ off.
	LoRAPlusLRRatio float64 `yaml:"loraplus_lr_ratio,omitempty" range:"[0,inf)" resume:"steers"`
	// InitLoRAWeights is how A and B of a fresh adapter are initialised, named as in PEFT. Empty means that A is
	// uniform and B zero; eva takes A from the directions in which the inputs of a layer vary most over the run's first
	// batches; gaussian draws A from the normal distribution with standard deviation 1/r. pissa starts from
	// the leading singular vectors of the base weight, which takes one to four minutes of a CPU core for a matrix of an
	// 8B model. pissa_niter_N, such as pissa_niter_4, approximates them with N power iterations in seconds. olora
	// starts from a QR decomposition. What A and B of these three start with is subtracted from the base weight before
	// it is quantised, so that the model computes the same as before. The adapter is saved with twice the rank: that
	// way it fits the unchanged base model in every program that loads PEFT's adapters. loftq starts from the leading
	// singular vectors of what quantisation rounds off a base weight, and leaves the base weights as they are.
	// loftq_iter_N, such as loftq_iter_5, quantises what A and B leave and repeats, N times in all; it is saved with
	// twice the rank.
	InitLoRAWeights string `yaml:"init_lora_weights,omitempty" form:"start" resume:"fixed"`
	// ModulesToSave lists modules that are trained in whole beside the adapter and saved with it, such as embed_tokens,
	// lm_head or norm. As in PEFT, a name is the end of a module's path: norm also means input_layernorm. New tokens of a
	// chat template need embed_tokens and lm_head. Modules stored quantised cannot be trained; embeddings, head and norms
	// never are quantised. Each trained weight takes 16 bytes with AdamW.
	ModulesToSave []string `yaml:"modules_to_save,omitempty" resume:"fixed"`
	// EnsureWeightTying trains the embeddings and the head of a model that ties them as one matrix, if ModulesToSave name
	// one of them. Without it they part, as in PEFT: with embed_tokens alone the head keeps the base model's weights.
	EnsureWeightTying bool `yaml:"ensure_weight_tying,omitempty" resume:"fixed"`
	// Bias trains biases of the base model beside the adapter and saves them with it: none, all, or lora_only, which
	// means those of the adapted layers. Empty means none.
	Bias string `yaml:"bias,omitempty" resume:"fixed"`
	// LoRABias gives B a bias, so that an update also adds a constant to a layer's output. Such an adapter can be
	// merged only if the adapted layers have biases.
	LoRABias bool `yaml:"lora_bias,omitempty" resume:"compared"`
	// TrainableTokenIndices lists tokens whose rows of the embeddings are trained beside the adapter and saved with it,
	// by their numbers, such as those of tokens that tokenizer.add_tokens adds. The head of a model that ties it to the
	// embeddings follows. lm_head:NUMBER is the row of an untied head, which PEFT has apart: [7, "lm_head:7"] trains
	// both. The other rows stay as they are.
	TrainableTokenIndices []string `yaml:"trainable_token_indices,omitempty" form:"numbers" resume:"fixed"`
}

// Config returns the section as methods read it.
func (l LoRA) Config() Config { return Config{Shared: l.Shared, Own: l.LoRASettings} }

func loraSection(s Sections) Config { return s.LoRA.Config() }

// Validate returns every problem of the section, each naming its key.
func (l LoRA) Validate() []error { return l.Config().Validate() }

func (LoRASettings) section() string { return loraSectionName }

// scale is alpha/r, or alpha/sqrt(r) for rsLoRA (Kalajdzievski 2023).
func (s LoRASettings) scale(alpha, rank float64) float64 {
	if s.UseRSLoRA {
		return alpha / math.Sqrt(rank)
	}
	return alpha / rank
}

func (s LoRASettings) problems(c Config) []error {
	return slices.Concat(checkLoRAStart(c), s.checkSaved(c), s.checkTokenRows(), s.checkTables(c), s.checkBiases(c),
		s.checkSelection(c))
}

// lora returns the settings of the section lora; where another section is the configuration's, with nothing set.
func (c Config) lora() LoRASettings {
	s, _ := c.Own.(LoRASettings)
	return s
}

// full returns the settings of the section full; where another section is the configuration's, with nothing set.
func (c Config) full() Full {
	s, _ := c.Own.(Full)
	return s
}

// lora is a linear layer with a low-rank update: y = base(x) + s (x Aᵀ) Bᵀ (Hu et al. 2021).
type lora struct {
	n       *nn.Net
	base    nn.Linear
	a, b    *nn.Value // [R,In], [Out,R]
	bias    *nn.Value // [Out], of B; nil = it has none
	scale   float64
	dropout dropout
}

const (
	suffixA = ".lora_A.weight"
	suffixB = ".lora_B.weight"
)

func wrapLoRA(t *Trained, c Config, n *nn.Net, path string, base nn.Linear) nn.Linear {
	return newLoRA(t, c, n, path, base)
}

// newLoRA declares A and B of a layer.
func newLoRA(t *Trained, c Config, n *nn.Net, path string, base nn.Linear) *lora {
	in, out := base.Size()
	r := c.Rank(path)
	l := &lora{n: n, base: base, scale: c.Scale(path), a: t.param(n, path+suffixA, r, in), b: t.param(n, path+suffixB, out, r)}
	if c.lora().LoRABias {
		l.bias = t.param(n, path+suffixBiasB, out)
		if !t.frozen {
			t.Undecayed[len(t.Undecayed)-1] = true
		}
	}
	l.dropout = newDropout(n, c)
	return l
}

func (l *lora) Size() (in, out int) { return l.base.Size() }

func (l *lora) Weight() *nn.Value { return l.base.Weight() }

func (l *lora) Apply(x *nn.Value) *nn.Value { return l.add(l.base.Apply(x), x) }

// add returns y + s (x Aᵀ) Bᵀ, or y + s ((x Aᵀ) Bᵀ + bias).
func (l *lora) add(y, x *nn.Value) *nn.Value {
	t := l.n.Apply(kernel.MatMul{TransB: true}, l.dropout.of(l.n, x), l.a) // [M,In] [R,In]ᵀ -> [M,R]
	if l.bias != nil {
		u := l.n.Apply(kernel.AddBias{}, l.n.Apply(kernel.MatMul{TransB: true}, t, l.b), l.bias)
		return l.n.Add(y, l.n.Scale(u, l.scale))
	}
	return l.n.Add(y, l.n.Apply(kernel.MatMul{TransB: true, Alpha: l.scale}, t, l.b)) // [M,R] [Out,R]ᵀ -> [M,Out]
}

// dropout zeroes inputs of an update while it is trained.
type dropout struct {
	p       float64
	counter *nn.Value // the batch value that masks are made from; nil where p is 0
}

// newDropout declares what the dropout of a configuration needs.
func newDropout(n *nn.Net, c Config) (d dropout) {
	if d.p = c.Dropout; d.p > 0 {
		d.counter = n.Batch(DropoutCounter, kernel.T(kernel.I32, 2))
	}
	return d
}

// of returns x with a mask that all updates of one input share.
func (d dropout) of(n *nn.Net, x *nn.Value) *nn.Value {
	if d.p == 0 {
		return x
	}
	return n.Shared(x, "dropout", func() *nn.Value {
		return n.Apply(kernel.Dropout{P: d.p, Stream: stream(n.Scope()), Ranks: n.Ranks()}, x, d.counter)
	})
}

// stream is the number that makes dropout masks of different inputs differ.
func stream(path string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(path))
	return h.Sum64()
}

// pairOf are a layer's A and B.
func pairOf(layer string, own []Param) (a, b Param, err error) {
	for _, p := range own {
		switch strings.TrimPrefix(p.Name, layer) {
		case suffixA:
			a = p
		case suffixB:
			b = p
		case suffixBiasB: // see mergeLoRABias
		default:
			return a, b, fmt.Errorf("tensor %s can't be merged", p.Name)
		}
	}
	if a.Data == nil || b.Data == nil {
		return a, b, fmt.Errorf("layer %s lacks a tensor: LoRA has %s and %s", layer, suffixA[1:], suffixB[1:])
	}
	return a, b, nil
}

// mergeScratch has the rows of sums and of A in float64 of the merges that run at a time.
var mergeScratch = sync.Pool{New: func() any { return new([]float64) }}

// mergeLoRA is W + s B A, summed in float64 and rounded once.
func mergeLoRA(c Config, layer string, own []Param) (Merger, error) {
	if a, b, ok := embeddingPair(layer, own); ok {
		return mergeEmbedding(c.Scale(layer), a, b), nil
	}
	a, b, err := pairOf(layer, own) // [R,In], [Out,R]
	if err != nil {
		return nil, err
	}
	rank, in, scale := a.Shape[0], a.Shape[1], c.Scale(layer)
	return func(w []float32, from int) {
		scratch := mergeScratch.Get().(*[]float64)
		defer mergeScratch.Put(scratch)
		*scratch = slices.Grow((*scratch)[:0], (1+rank)*in)
		row, wide := (*scratch)[:in], (*scratch)[in:(1+rank)*in]
		for i, x := range a.Data[:rank*in] {
			wide[i] = float64(x)
		}
		for ; len(w) >= in; w, from = w[in:], from+1 {
			for c, x := range w[:in] {
				row[c] = float64(x)
			}
			own, rows := b.Data[from*rank:(from+1)*rank], wide
			for ; len(own) >= 4; own, rows = own[4:], rows[4*in:] {
				addFour(row, rows, scale*float64(own[0]), scale*float64(own[1]), scale*float64(own[2]), scale*float64(own[3]))
			}
			for i, x := range own {
				s := scale * float64(x)
				for c, a := range rows[i*in : (i+1)*in] {
					row[c] += float64(s * a)
				}
			}
			for c, x := range row {
				w[c] = float32(x)
			}
		}
	}, nil
}

// addFour adds four rows times their factors, one after the other: the sums of four passes, in one.
func addFour(sum, rows []float64, s0, s1, s2, s3 float64) {
	n := len(sum)
	a0, a1, a2, a3 := rows[:n], rows[n:][:n], rows[2*n:][:n], rows[3*n:][:n]
	for c, x := range sum {
		x += float64(s0 * a0[c])
		x += float64(s1 * a1[c])
		x += float64(s2 * a2[c])
		x += float64(s3 * a3[c])
		sum[c] = x
	}
}
