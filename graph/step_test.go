package graph_test

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/quant"
)

// step is a training step of a small model on a machine.
type step struct {
	plan   *graph.Plan
	store  graph.Store
	run    graph.Runner
	params []string
	from   int // the first of this rank's tokens
}

const stepTokens, stepRows = 128, 4 // M, sequences

var stepSegments = []string{"begin", "micro", "micro", "norm", "update"}

// layout is how a step keeps what its backward pass reads.
type layout struct {
	policy graph.Recompute
	layers int             // 0 = all
	rest   graph.Recompute // of the other layers
	reuse  int             // calls whose memory is kept apart
	ranks  int             // that have a slice of the frozen values each
	share  int             // that have a part of the tokens each; 0 = one has all
}

func newStep(t *testing.T, on graph.Machine, c model.Config, method string, lora adapter.Config, l layout) *step {
	t.Helper()
	s := planStep(t, on, kernel.F64, c, method, lora, l)
	var err error
	if s.store, err = on.NewStore(s.plan); err != nil {
		t.Fatal(err)
	}
	if s.run, err = on.Bind(s.plan, s.store); err != nil {
		t.Fatal(err)
	}
	return s
}

// planStep returns the step before it takes memory.
func planStep(t *testing.T, on graph.Machine, float kernel.DType, c model.Config, method string, lora adapter.Config,
	l layout) *step {
	t.Helper()
	return planStepOf(t, stepTokens, on, float, c, method, lora, l)
}

// planStepOf returns planStep for micro-batches of so many tokens.
func planStepOf(t *testing.T, tokens int, on graph.Machine, float kernel.DType, c model.Config, method string,
	lora adapter.Config, l layout) *step {
	t.Helper()
	trained := &adapter.Trained{}
	m, quantised, err := adapter.Lookup(method)
	if err != nil {
		t.Fatal(err)
	}
	o := nn.Options{Float: float, Wrap: m.Wrapper(trained, lora), WrapExperts: m.ExpertWrapper(trained, lora),
		WrapParameter: m.ParameterWrapper(trained, lora), WrapRouter: m.RouterWrapper(trained, lora),
		ExpertParameters: lora.FusedExperts(), Ranks: l.share}
	tokens /= max(l.share, 1)
	if quantised {
		q := quant.Default()
		o.Scheme = &q
	}
	if c.Quantization != nil && c.Quantization.Method == model.MXFP4 {
		o.Stored = func(name string) *quant.Config {
			if stored := quant.StoredMXFP4(); strings.Contains(name, ".experts.") {
				return &stored
			}
			return o.Scheme
		}
	}
	n := nn.New(o)
	i32 := func(e int) kernel.Type { return kernel.T(kernel.I32, e) }
	cu := n.Batch("cu_seqlens", i32(stepRows+1))
	in := nn.Batch{IDs: n.Batch("input_ids", i32(tokens)), Positions: n.Batch("positions", i32(tokens)), CuQ: cu,
		CuK: cu, Real: n.Batch("real", i32(tokens)), MaxLen: stepTokens / stepRows}
	labels, scale, hyper := n.Batch("labels", i32(tokens)), n.Batch("loss scale", kernel.T(n.Float(), 1)),
		n.Batch("optimizer", kernel.T(n.Float(), 4))
	family, err := families.For(c)
	if err != nil {
		t.Fatal(err)
	}
	n.Segment("micro")
	hidden := family(n, c, in)
	head := n.Head(c.HeadName(), c.VocabSize, c.HiddenSize)
	loss := n.Apply(kernel.LinearCrossEntropy{Chunk: 24, Grad: true, Cap: c.LogitCap}, hidden, head, labels, scale)
	if b := n.Balance(); b != nil {
		loss = b.Add(n, loss, labels, scale, nil)
	}
	if err := n.Err(); err != nil {
		t.Fatal(err)
	}
	s := &step{}
	for i, g := range n.Grad(loss, trained.Params...) {
		p := trained.Params[i]
		n.Apply(kernel.AddTo{}, n.State(adapter.GradGroup, "gradient of "+p.Name, p.Type), g)
		s.params = append(s.params, p.Name)
	}
	sum := n.State("", "loss", loss.Type)
	n.Apply(kernel.AddTo{}, sum, loss)
	n.Segment("norm")
	g := n.Span(adapter.GradGroup)
	norm := n.State("", "gradient norm", kernel.T(n.Float(), 2))
	n.Apply(kernel.GradNorm{MaxNorm: 1}, g, sum, norm)
	n.Segment("update")
	n.Apply(kernel.AdamW{Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .01}, n.Span(adapter.ParamGroup), g,
		n.State("adam m", "first moments", g.Type), n.State("adam v", "second moments", g.Type), norm, hyper)
	n.Segment("begin")
	n.Apply(kernel.Zero{}, g)
	n.Apply(kernel.Zero{}, sum)
	n.Recompute(l.policy, l.layers, l.rest)
	n.Overlap(l.reuse)
	n.Shard(l.ranks)
	if s.plan, err = on.Compile(n.Builder, sum, norm); err != nil {
		t.Fatal(err)
	}
	return s
}

// fill gives every input numbers that its name alone decides.
func (s *step) fill(t *testing.T, vocab int) {
	t.Helper()
	names := s.store.(interface{ Names() []string }).Names()
	if m, ok := s.store.(*graph.Memory); ok {
		names = append(slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "slice of ") }),
			m.Sliced()...)
	}
	for _, name := range names {
		x, err := s.store.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		h := fnv.New64a()
		h.Write([]byte(name)) //nolint:errcheck // a hash takes all
		r := rand.New(rand.NewPCG(h.Sum64(), 1))
		switch x.DType {
		case kernel.I32:
			v := x.I32()
			if name == "input_ids" || name == "labels" {
				for range s.from { // of the ranks before
					r.IntN(vocab)
				}
			}
			for i := range v {
				switch name {
				case "cu_seqlens":
					v[i] = int32(i * stepTokens / stepRows)
				case "real": // padding is where it may be
					v[i] = int32(min((s.from+i)%5, 1))
				case "positions":
					v[i] = int32((s.from + i) % (stepTokens / stepRows))
				default:
					v[i] = int32(r.IntN(vocab))
				}
			}
		case kernel.U8:
			for i := range x.Bytes() {
				if x.Bytes()[i] = byte(r.IntN(256)); strings.HasSuffix(name, ".scales") { // of MXFP4: 1/64 to 1/8
					x.Bytes()[i] = 121 + x.Bytes()[i]%4
				}
			}
		case kernel.F32: // scales of packed weights
			for i := range x.F32() {
				x.F32()[i] = .02 * (1 + r.Float32())
			}
		default:
			state := strings.HasPrefix(name, "gradient") || strings.HasSuffix(name, "moments") || name == "loss"
			for i := range x.F64() {
				switch {
				case state:
					x.F64()[i] = 0
				case name == "loss scale":
					x.F64()[i] = 1. / stepTokens
				case name == "optimizer":
					x.F64()[i] = []float64{1e-3, .1, .001, float64(math.Float32frombits(1))}[i]
				case strings.Contains(name, "norm"):
					x.F64()[i] = 1 + .1*r.NormFloat64()
				default:
					x.F64()[i] = .2 * r.NormFloat64()
				}
			}
		}
		if err := s.store.Put(name); err != nil {
			t.Fatal(err)
		}
	}
}

// once fills the inputs and runs the step.
func (s *step) once(t *testing.T, vocab int) {
	t.Helper()
	s.fill(t, vocab)
	if err := s.run.Run(stepSegments...); err != nil {
		t.Fatal(err)
	}
}

func (s *step) numbers(t *testing.T, name string) []float64 {
	t.Helper()
	x, err := s.store.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	return append([]float64(nil), x.F64()...)
}

// differs compares loss, gradient norm, every gradient and every updated parameter with another step's; "" if they are
// equal to 1e-9 of their norms.
func (s *step) differs(t *testing.T, from *step) string {
	t.Helper()
	names := []string{"loss", "gradient norm"}
	for _, p := range s.params {
		names = append(names, "gradient of "+p, p)
	}
	for _, x := range names {
		want, got := from.numbers(t, x), s.numbers(t, x)
		var d, n float64
		for i, w := range want {
			d, n = d+(got[i]-w)*(got[i]-w), n+w*w
		}
		if !(d <= 1e-18*n) || n == 0 {
			return fmt.Sprintf("%s differs by %.3g of its norm %.3g", x, math.Sqrt(d/n), math.Sqrt(n))
		}
	}
	return ""
}

// stepFamilies are those whose plans differ in kind: norms before, biases; norms of heads; norms behind and of all
// heads; layers without positions; scaled hidden states; four norms a layer with capped scores; fused projections.
var stepFamilies = []string{"llama", "qwen2", "qwen3", "olmo2", "smollm3", "granite", "gemma2", "gemma3_text", "phi3"}

// stepKeys are what config.json of a family says besides.
var stepKeys = map[string]string{
	"qwen3": `, "head_dim": 24`, "smollm3": `, "no_rope_layer_interval": 2`,
	"granite":     `, "embedding_multiplier": 3, "residual_multiplier": 0.5, "logits_scaling": 2, "attention_multiplier": 0.25`,
	"gemma2":      `, "head_dim": 24, "query_pre_attn_scalar": 20, "sliding_window": 5`,
	"gemma3_text": `, "head_dim": 16, "sliding_window": 5, "sliding_window_pattern": 2`,
	"phi3":        `, "partial_rotary_factor": 0.75`,
}

// stepCases are families, adapters and recompute policies.
func stepCases(t *testing.T, kinds []string, run func(name string, c model.Config, method string, lora adapter.Config,
	l layout)) {
	t.Helper()
	all := adapter.Targets{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj",
		"gate_up_proj"}
	for _, kind := range kinds {
		c, err := families.ParseConfig(fmt.Appendf(nil, `{"model_type": %q, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
			"num_key_value_heads": 2, "vocab_size": 160, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": false, "hidden_act": "silu"%s}`, kind, stepKeys[kind]))
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range []struct {
			method  string
			targets adapter.Targets
			dropout float64
		}{{"lora", all, 0}, {"qlora", all, 0}, {"qlora", adapter.Targets{"q_proj", "v_proj", "qkv_proj"}, 0},
			{"lora", adapter.Targets{"v_proj", "down_proj", "qkv_proj"}, 0}, {"lora", all, .2}} {
			// the others differ in nothing that these adapters reach
			if kind != "llama" && kind != "qwen2" && i != 0 && i != 2 {
				continue
			}
			for _, l := range []layout{{}, {reuse: 6}, {policy: graph.RecomputeCheap},
				{policy: graph.RecomputeCheap, layers: 1}, {policy: graph.RecomputeLayers},
				{policy: graph.RecomputeLayers, layers: 2, rest: graph.RecomputeCheap}, {policy: graph.KeepAttention},
				{policy: graph.RecomputeLayers, layers: 1, rest: graph.KeepAttention}, {policy: graph.Offload},
				{policy: graph.OffloadAttention},
				{policy: graph.OffloadAttention, layers: 2, rest: graph.RecomputeCheap}} {
				run(fmt.Sprintf("%s, %s of %v, dropout %v, %+v", kind, a.method, a.targets, a.dropout, l),
					c, a.method, adapter.Config{Shared: adapter.Shared{R: 8, Alpha: 16, Dropout: a.dropout, TargetModules: a.targets}}, l)
			}
		}
	}
}

// TestRecomputedStepEqualsKept: what is recomputed for the backward pass is what was, whichever layers are adapted.
func TestRecomputedStepEqualsKept(t *testing.T) {
	var kept *step
	stepCases(t, stepFamilies, func(name string, c model.Config, method string, lora adapter.Config, l layout) {
		s := newStep(t, graph.NewCPU(2), c, method, lora, l)
		s.once(t, c.VocabSize)
		if l == (layout{}) {
			kept = s
		} else if d := s.differs(t, kept); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	})
}
