package nn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tierlora/tierlora/kernel"
)

// Batch is the input of a network: M tokens of S sequences, packed one after the other.
type Batch struct {
	IDs       *Value // i32[M]; this rank's share if ranks share the tokens (Net.Ranks)
	Positions *Value // i32[M], the token's position in its sequence
	CuQ       *Value // i32[S+1], boundaries of the sequences among the tokens of all ranks
	CuK       *Value // i32[S+1], the same for keys; it differs from CuQ with a cache only
	Prefix    *Value // i32[S], the sequence that each sequence continues (kernel.Attention); nil = none continues one
	Spans     *Value // i32[2*M], tokens that see one another (kernel.Attention); nil = none do
	Real      *Value // i32[M], 0 for padding; nil = no padding, or padding needs no special treatment
	MaxLen    int    // all positions are smaller
	Cache     *Cache // nil in training
}

// Cache holds the keys and values of earlier tokens of several sequences, each in rows of its own.
type Cache struct {
	Rows   int    // of all sequences
	Tokens int    // rows of one sequence, one after the other
	At     *Value // i32[M,C] flat, the C cache rows for each token's key and value; -1 = not stored
	// States reports whether a layer keeps a state of each sequence that is not a row for each token. Such layers set
	// it.
	States bool
	// Longest is the most tokens of a text if the plan shares frozen tables with a batch whose sequences have MaxLen
	// tokens; 0 = MaxLen and own tables.
	Longest int
	// Owner begins the names of the cache and of its group, where plans with caches of other sizes share a memory; "" =
	// the only cache.
	Owner string
}

// state declares a tensor of the cache in the present scope.
func (c *Cache) state(n *Net, what string, t kernel.Type) *Value {
	return n.State(c.Owner+CacheGroup, c.Owner+n.Scope()+"."+what, t)
}

// tokenEmbedding is the scope of the embedding of tokens, as checkpoints name it. Other embeddings, such as those that
// Gemma 4 has for each layer, get no noise.
const tokenEmbedding = "embed_tokens"

// Embed looks up token vectors: [M] -> [M,C].
func (n *Net) Embed(name string, vocab, width int, ids *Value) *Value {
	return n.ScaledEmbed(name, vocab, width, ids, 0)
}

// ScaledEmbed is Embed times scale, rounded as kernel.Embedding documents; 0 means 1.
func (n *Net) ScaledEmbed(name string, vocab, width int, ids *Value, scale float64) *Value {
	var y *Value
	n.In(name, func() {
		name := n.Scope() + ".weight"
		table := n.add(name, []int{vocab, width}, matrix(n, vocab, width, name))
		y = n.Apply(kernel.Embedding{Float: n.Float(), Scale: scale}, ids, table)
		if n.WrapEmbedding == nil {
			return
		}
		change := once(n, "(adapted)", func() EmbeddingLayer { return n.WrapEmbedding(n, n.Scope(), vocab, width) })
		if change != nil && n.view == viewOwn {
			y = change(ids, y, scale)
		}
	})
	if n.Noise != nil && name == tokenEmbedding {
		y = n.Noise(y)
	}
	if n.Images != nil && name == tokenEmbedding { // after the noise, which images do not get
		y = n.Images(y)
	}
	return y
}

// AfterLayer returns the result of a layer of n with what images of the batch add to it.
func AfterLayer(n *Net, layer int, x *Value) *Value {
	if n.ImagesAfter == nil {
		return x
	}
	return n.ImagesAfter(layer, x)
}

// RMSNorm computes y = w x / sqrt(mean(x²) + eps) for each row.
func (n *Net) RMSNorm(name string, x *Value, eps float64) *Value {
	return n.HeadsRMSNorm(name, x, 1, eps)
}

// HeadsRMSNorm norms each of a row's heads separately, all with one weight [width/heads].
func (n *Net) HeadsRMSNorm(name string, x *Value, heads int, eps float64) *Value {
	return n.norm(name, x, kernel.RMSNorm{Eps: eps, Heads: heads})
}

// GroupsRMSNorm norms each of a row's groups separately, with a weight [width] of the whole row. One group or 0 is
// Net.RMSNorm.
func GroupsRMSNorm(n *Net, name string, x *Value, groups int, eps float64) *Value {
	if groups <= 1 {
		return n.RMSNorm(name, x, eps)
	}
	var y *Value
	n.In(name, func() {
		width := x.Width()
		w := n.add(n.Scope()+".weight", []int{width}, kernel.T(n.Float(), width))
		y = ScaleColumns(n, n.Apply(kernel.RMSNorm{Eps: eps, Heads: groups}, x, ones(n, width/groups)), w)
	})
	return y
}

// ScaleColumns multiplies the columns of x [M,C] by the numbers of by [C].
func ScaleColumns(n *Net, x, by *Value) *Value {
	return n.Apply(kernel.DoRAScale{}, x, by, ones(n, by.Type.Elems()))
}

// ones is a frozen vector of ones.
func ones(n *Net, width int) *Value {
	return Constant(n, fmt.Sprintf("ones of %d", width), func(dst []float64) {
		for i := range dst {
			dst[i] = 1
		}
	}, width)
}

// PlusOneRMSNorm is HeadsRMSNorm for a weight that is stored minus one: y = (1 + w) x / sqrt(mean(x²) + eps).
func (n *Net) PlusOneRMSNorm(name string, x *Value, heads int, eps float64) *Value {
	return n.norm(name, x, kernel.RMSNorm{Eps: eps, Heads: heads, PlusOne: true})
}

func (n *Net) norm(name string, x *Value, k kernel.RMSNorm) *Value {
	var y *Value
	n.In(name, func() {
		size := x.Width() / k.Heads
		w := n.add(n.Scope()+".weight", []int{size}, kernel.T(n.Float(), size))
		y = n.Apply(k, x, w)
	})
	return y
}

// Scale multiplies x by a number; 0 means 1.
func (n *Net) Scale(x *Value, by float64) *Value {
	if by == 0 || by == 1 {
		return x
	}
	return n.Apply(kernel.Scale{By: by}, x)
}

// Add returns the residual sum x + y.
func (n *Net) Add(x, y *Value) *Value { return n.Apply(kernel.Add{}, x, y) }

// ropeTable declares a table of rotary angles for positions [0,positions): [P,D], cosines then sines, times scale of
// the position. invFreq has D/2 elements; with several, their rows follow each other.
func (n *Net) ropeTable(name string, positions int, scale func(position int) float64, invFreq ...[]float64) *Value {
	n.declare(Weight{Into: []string{name}, storage: computed(func(dst kernel.Tensor) {
		for i, f := range invFreq {
			fillAngles(dst, i*positions, positions, f, scale)
		}
	})})
	return n.Frozen(name, kernel.T(n.Float(), len(invFreq)*positions, 2*len(invFreq[0])))
}

// Table declares a frozen integer table that fill computes while the weights load.
func (n *Net) Table(name string, fill func(dst []int32), shape ...int) *Value {
	n.declare(Weight{Into: []string{name}, storage: computed(func(dst kernel.Tensor) { fill(dst.I32()) })})
	return n.Frozen(name, kernel.T(kernel.I32, shape...))
}

// Constant declares a frozen tensor that no checkpoint has. fill computes its numbers, row-major, while the weights
// load.
func Constant(n *Net, name string, fill func(dst []float64), shape ...int) *Value {
	return n.Shared(nil, name, func() *Value {
		n.declare(Weight{Into: []string{name}, storage: computed(func(dst kernel.Tensor) {
			if dst.DType == kernel.F64 {
				fill(dst.F64())
				return
			}
			numbers := make([]float64, dst.Elems())
			fill(numbers)
			for i, x := range numbers {
				dst.F32()[i] = float32(x)
			}
		})})
		return n.Frozen(name, kernel.T(n.Float(), shape...))
	})
}

// fillAngles fills rows of a table, beginning at row, with the angles of positions 0, 1 and so on.
func fillAngles(table kernel.Tensor, row, positions int, invFreq []float64, scale func(position int) float64) {
	at := row * 2 * len(invFreq)
	if table.DType == kernel.F64 {
		fillRoPE(table.F64()[at:], positions, invFreq, scale, func(pos int, f float64) float64 {
			return float64(pos) * f
		})
		return
	}
	// transformers multiplies position and frequency in float32.
	fillRoPE(table.F32()[at:], positions, invFreq, scale, func(pos int, f float64) float64 {
		return float64(float32(pos) * float32(f))
	})
}

func fillRoPE[F kernel.Float](table []F, positions int, invFreq []float64, scale func(position int) float64,
	angle func(pos int, f float64) float64) {
	half := len(invFreq)
	for pos := range positions {
		row, by := table[pos*2*half:], scale(pos)
		for i, f := range invFreq {
			sin, cos := math.Sincos(angle(pos, f))
			row[i], row[half+i] = F(cos*by), F(sin*by)
		}
	}
}

// Attention describes causal self-attention over a batch's sequences.
type Attention struct {
	Heads, KVHeads, HeadDim int
	QKVBias, OBias          bool
	Window                  int     // number of keys that a token attends to, its own included; 0 = all earlier ones
	Scale                   float64 // factor of the scores; 0 = 1/sqrt(HeadDim)
	Cap                     float64 // soft cap of the scores, see kernel.Attention; 0 = none
	// RoPE is a table of angles [P,R]; nil = no rotation. R below HeadDim rotates the first R columns of every head.
	RoPE        *Value
	QueryRoPE   *Value // table for queries; nil = RoPE. A fused projection uses one table for both.
	Interleaved bool   // rotate neighbouring columns instead of halves
	Fused       bool   // one qkv_proj instead of q_proj, k_proj and v_proj
	Out         string // name of the output projection; "" = o_proj
	Gated       bool   // q_proj has a gate beside each head's query; its sigmoid multiplies the head's result
	Gate        string // name of a projection whose sigmoids multiply what the heads give; "" = there is none
	// QKNorm norms queries, then keys, [M,heads*HeadDim] under the names q_norm and k_norm; nil = no norm.
	QKNorm func(name string, x *Value, heads int) *Value
	// LateQKNorm makes QKNorm norm rotated queries and keys.
	LateQKNorm bool
	Sinks      bool // each head has an attention sink
	// ValuesAreKeys makes the output of k_proj, before norm and rotation, the values; there is no v_proj. ValueNorm
	// norms them; nil = no norm.
	ValuesAreKeys bool
	ValueNorm     func(x *Value, heads int) *Value
	// Keep receives the keys and values; a later layer passes it as Of to use them in place of its own.
	Keep, Of *KeysValues
}

// SelfAttention computes o_proj(attention(rope(norm(q_proj x)), rope(norm(k_proj x)), v_proj x)): [M,C] -> [M,C].
func (n *Net) SelfAttention(name string, x *Value, in Batch, a Attention) *Value {
	var y *Value
	n.In(name, func() {
		width, q, out := x.Width(), a.Heads*a.HeadDim, cmp.Or(a.Out, "o_proj")
		if a.Fused {
			y = n.Linear(out, q, width, a.OBias).Apply(n.fusedAttention(x, in, a))
			return
		}
		query, gated := n.queries(x, a)
		var key, value *Value
		if a.Of != nil {
			key, value = a.Of.key, a.Of.value
		} else {
			key, value = n.keysAndValues(x, a)
		}
		norm := func() {
			query = a.QKNorm("q_norm", query, a.Heads)
			if a.Of == nil {
				key = a.QKNorm("k_norm", key, a.KVHeads)
			}
		}
		if a.QKNorm != nil && !a.LateQKNorm {
			norm()
		}
		if a.RoPE != nil {
			query = n.Apply(kernel.RoPE{Heads: a.Heads, HeadDim: a.HeadDim, Interleaved: a.Interleaved}, query,
				cmp.Or(a.QueryRoPE, a.RoPE), in.Positions)
		}
		if a.RoPE != nil && a.Of == nil {
			key = n.Apply(kernel.RoPE{Heads: a.KVHeads, HeadDim: a.HeadDim, Interleaved: a.Interleaved}, key,
				a.RoPE, in.Positions)
		}
		if a.QKNorm != nil && a.LateQKNorm {
			norm()
		}
		if in.Cache != nil && a.Of == nil && n.Ranks() == 1 {
			key = n.cached("key", key, in)
			value = n.cached("value", value, in)
		}
		if a.Keep != nil {
			a.Keep.key, a.Keep.value = key, value
		}
		// the gate comes before o_proj with ranks too: slices of the base model hold its values in their order
		y = n.Linear(out, q, width, a.OBias).Apply(gated(attend(n, in, a, query, key, value)))
	})
	return y
}

// attend returns the results of all heads, [M,H*D], of queries over keys and values that are rotated and in the cache,
// if there is one.
func attend(n *Net, in Batch, a Attention, query, key, value *Value) *Value {
	if n.Ranks() > 1 {
		return n.sharedAttention(in, a, query, key, value)
	}
	values := append([]*Value{query, key, value}, in.bounds(true)...)
	if a.Sinks {
		return n.Apply(kernel.AttentionSinks{Attention: a.over(n, in)}, append(values, n.sinks(a))...)
	}
	return n.Apply(a.over(n, in), values...)
}

// queries returns the queries of all heads, and a function that applies the gate, if there is one, to the heads'
// results [M,H*D].
func (n *Net) queries(x *Value, a Attention) (query *Value, gated func(heads *Value) *Value) {
	q := a.Heads * a.HeadDim
	if !a.Gated {
		return n.Linear("q_proj", x.Width(), q, a.QKVBias).Apply(x), func(heads *Value) *Value {
			if a.Gate == "" {
				return heads
			}
			gate := n.Linear(a.Gate, x.Width(), q, false).Apply(x)
			beside := kernel.HeadColumnsGrad{Heads: a.Heads, Of: 2 * a.HeadDim, From: a.HeadDim, Width: a.HeadDim}
			return n.Apply(kernel.HeadGate{Heads: a.Heads}, heads, n.Apply(beside, gate))
		}
	}
	both := n.Linear("q_proj", x.Width(), 2*q, a.QKVBias).Apply(x)
	query = n.Apply(kernel.HeadColumns{Heads: a.Heads, Of: 2 * a.HeadDim, Width: a.HeadDim}, both)
	return query, func(heads *Value) *Value { return n.Apply(kernel.HeadGate{Heads: a.Heads}, heads, both) }
}

// sinks declares the attention sinks of a layer's heads.
func (n *Net) sinks(a Attention) *Value {
	return n.add(n.Scope()+".sinks", []int{a.Heads}, kernel.T(n.Float(), a.Heads))
}

func (a Attention) kernel() kernel.Attention {
	scale := a.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(a.HeadDim))
	}
	return kernel.Attention{Heads: a.Heads, KVHeads: a.KVHeads, Scale: scale, Window: a.Window, Cap: a.Cap}
}

// over returns the attention kernel for a batch.
func (a Attention) over(n *Net, in Batch) kernel.Attention {
	k := a.kernel()
	k.Prefixes, k.Spans = in.Prefix != nil, in.Spans != nil
	if k.Prefixes && k.Window >= in.MaxLen { // no sequence reaches it, and GPUs have no kernel for both
		k.Window = 0
	}
	if k.Prefixes && n.PrefixesGPU == nil {
		n.PrefixesGPU = k.CheckPrefixesGPU(a.HeadDim)
	}
	if in.Cache != nil {
		k.Longest = in.MaxLen
	}
	return k
}

// bounds returns the inputs of attention that say where sequences lie: the boundaries of queries, those of keys where
// they are inputs of their own, and the prefixes or spans if there are any.
func (in Batch) bounds(keys bool) []*Value {
	all := []*Value{in.CuQ}
	if keys {
		all = append(all, in.CuK)
	}
	if in.Prefix != nil {
		all = append(all, in.Prefix)
	}
	if in.Spans != nil {
		all = append(all, in.Spans)
	}
	return all
}

// ErrPrefix is the error of layers over sequences that continue others, where a layer cannot do that.
var ErrPrefix = errors.New("sequences cannot share a prefix")

// refusePrefix fails a network in which sequences continue others, with the reason why a layer cannot do that.
func (in Batch) refusePrefix(n *Net, why string) {
	if in.Prefix != nil {
		n.Fail(fmt.Errorf("%w: %s", ErrPrefix, why))
	}
}

// CacheGroup is the state group of cached keys and values, after Cache.Owner.
const CacheGroup = "kv cache"

func (n *Net) cached(what string, rows *Value, in Batch) *Value {
	cache := in.Cache.state(n, what+"_cache", kernel.T(n.Float(), in.Cache.Rows, rows.Width()))
	return n.Apply(kernel.KVAppend{}, cache, rows, in.Cache.At)
}

// gates maps model.Config.HiddenAct to the kernel of a gated MLP.
var gates = map[string]kernel.Kernel{"silu": kernel.SwiGLU{}, "gelu_pytorch_tanh": kernel.GeGLU{},
	"gelu": kernel.GeGLU{Erf: true}}

// gateKernel returns the kernel for an activation of model.Config.HiddenAct.
func (n *Net) gateKernel(activation string) kernel.Kernel {
	k, ok := gates[activation]
	if !ok {
		n.Fail(fmt.Errorf("hidden_act: no kernel has an MLP's gate with %q", activation))
		k = kernel.SwiGLU{}
	}
	return k
}

// activate computes an MLP's hidden layer from a gate and what it gates, or from the one part of an MLP without a gate,
// which has no activation but relu2. activation is a value of model.Config.HiddenAct.
func activate(n *Net, activation string, parts ...*Value) *Value {
	if len(parts) == 2 {
		return n.Apply(n.gateKernel(activation), parts...)
	}
	if activation != "relu2" {
		n.Fail(fmt.Errorf("hidden_act: no kernel has an MLP without a gate with %q", activation))
	}
	return n.Apply(kernel.ReLU2{}, parts...)
}

// GatedMLP computes down_proj(activation(gate_proj x) * up_proj x), [M,C] -> [M,C]. activation is a value of
// model.Config.HiddenAct.
func (n *Net) GatedMLP(name string, x *Value, inner int, bias bool, activation string) *Value {
	return MLP{"gate_proj", "up_proj", "down_proj"}.Apply(n, name, x, inner, bias, activation)
}

// MLP holds the names of an MLP's linear layers. Without a Gate it is down(activation(up x)).
type MLP struct{ Gate, Up, Down string }

// Apply does what Net.GatedMLP does, with these names.
func (m MLP) Apply(n *Net, name string, x *Value, inner int, bias bool, activation string) *Value {
	var y *Value
	n.In(name, func() {
		width := x.Width()
		var parts []*Value
		for _, layer := range []string{m.Gate, m.Up} {
			if layer != "" {
				parts = append(parts, n.Linear(layer, width, inner, bias).Apply(x))
			}
		}
		y = n.Linear(m.Down, inner, width, bias).Apply(activate(n, activation, parts...))
	})
	return y
}

// Head returns the vocabulary head's weight [V,C] by its name in the checkpoint: its own, or the embedding's if they
// are tied.
func (n *Net) Head(name string, vocab, width int) *Value {
	return adaptedHead(n, name, n.add(name, []int{vocab, width}, matrix(n, vocab, width, name)))
}

// adaptedHead returns the weight of a head as the network that is being built has it.
func adaptedHead(n *Net, name string, w *Value) *Value {
	if n.WrapHead == nil || n.view != viewOwn {
		return w
	}
	return n.WrapHead(n, strings.TrimSuffix(name, ".weight"), w)
}

// HeadFrom returns the weight [V,C] of a head that the checkpoint lacks, because it is tied to the embeddings: it is
// loaded from them.
func HeadFrom(n *Net, name, embeddings string, vocab, width int) *Value {
	w := addFrom(n, name, embeddings, []int{vocab, width}, matrix(n, vocab, width, embeddings))
	return adaptedHead(n, name, w)
}

// Layer returns the scope of the i-th layer.
func Layer(i int) string { return fmt.Sprintf("layers.%d", i) }
