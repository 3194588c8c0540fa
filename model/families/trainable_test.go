package families_test

import (
	"math"
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

// TestTrainedWeight: a weight of a norm or a linear layer that is declared trained has the gradient that central
// differences give, beside an adapter; every other weight stays frozen.
func TestTrainedWeight(t *testing.T) {
	const rows, ts = 2, 6
	byName := map[string]referenceModel{}
	for _, m := range models(t) {
		byName[m.name] = m
		if !m.config(t).TieEmbeddings {
			byName["untied"] = m
		}
	}
	for _, of := range []struct{ model, name string }{
		{"llama", "model.norm.weight"}, {"llama", "model.layers.1.post_attention_layernorm.weight"},
		{"llama", "model.layers.0.input_layernorm.weight"},
		{"gemma3", "model.layers.0.self_attn.q_norm.weight"},
		{"gemma3", "model.layers.1.post_feedforward_layernorm.weight"},
		{"phi3", "model.layers.1.post_attention_layernorm.weight"},
		{"llama", "model.layers.1.self_attn.q_proj.weight"}, {"llama", "model.layers.0.mlp.down_proj.weight"},
		{"qwen3", "model.layers.0.self_attn.q_norm.weight"}, {"qwen3", "model.layers.1.self_attn.k_norm.weight"},
		{"olmo2", "model.layers.0.self_attn.k_norm.weight"},
		{"llama", "model.embed_tokens.weight"}, {"gemma3", "model.embed_tokens.weight"},
		{"qwen2", "model.layers.0.self_attn.v_proj.bias"}, {"untied", "lm_head.weight"},
		{"untied", "model.embed_tokens.weight"},
	} {
		name, c := of.name, byName[of.model].config(t)
		trained := &adapter.Trained{}
		w := build(t, c, rows, ts, nn.Options{
			Float: kernel.F64, Trainable: func(n string) bool { return n == name }, Train: trained.Train,
			Wrap: adapter.Methods["lora"].Wrapper(trained, adapter.Default()),
		}, nil, adapter.Config{})
		loss := w.loss()
		grads := w.Grad(loss, trained.Params...)
		r := w.start(t, byName[of.model].open(t), append([]*nn.Value{loss}, grads...)...)
		for i := range rows * ts {
			r.ints("ids")[i], r.ints("labels")[i] = int32(7*i%c.VocabSize), int32((5*i+1)%c.VocabSize)
		}
		r.tensor("scale").F64()[0] = 1.0 / (rows * ts)
		r.run.Run("main")
		at, own := -1, 0
		for i, p := range trained.Params {
			switch {
			case p.Name == name:
				at = i
				own++
			case !strings.Contains(p.Name, ".lora_"):
				own++
			}
			if p.Kind() != graph.State || trained.Rates[i] != 1 {
				t.Errorf("%s is a %v with the rate %v", p.Name, p.Kind(), trained.Rates[i])
			}
		}
		if at < 0 || own != 1 || len(trained.Rates) != len(trained.Params) {
			t.Fatalf("%s: %d weights of the base are trained, want it alone", name, own)
		}
		got := append([]float64{}, r.run.Tensor(grads[at]).F64()...)
		weight := r.tensor(name).F64()
		const h = 1e-5
		size := 0.0
		step := max(1, len(weight)/64) // of a matrix, some elements in every part
		for i := 0; i < len(weight); i += step {
			was, side := weight[i], [2]float64{}
			for k, sign := range []float64{1, -1} {
				weight[i] = was + sign*h
				r.run.Run("main")
				side[k] = r.run.Tensor(loss).F64()[0]
			}
			weight[i] = was
			want := (side[0] - side[1]) / (2 * h)
			size = max(size, math.Abs(want))
			if d := math.Abs(got[i] - want); !(d <= 1e-8) {
				t.Errorf("gradient of %s[%d] is %v, central differences give %v", name, i, got[i], want)
			}
		}
		if size < 1e-3 {
			t.Errorf("%s: gradients within %v compare nothing", name, size)
		}
	}
	w := build(t, byName["llama"].config(t), rows, ts, nn.Options{Float: kernel.F64}, nil, adapter.Config{})
	for _, x := range w.Weights() {
		if x.Name == "" {
			continue // computed
		}
		// declared as anything else, it is refused
		if w.Frozen(x.Name, kernel.T(kernel.F64, x.Shape...)); w.Err() != nil {
			t.Fatalf("%s is trained by default: %v", x.Name, w.Err())
		}
	}
}

// TestEveryBaseWeightTrains plans the gradient of every weight of every family without experts, whose weights are
// refused. Gemma 4's scalars of layers are no parameters in transformers either. Linear attention, state
// spaces and short convolutions are refused.
func TestEveryBaseWeightTrains(t *testing.T) {
	for _, m := range models(t) {
		c, trained := m.config(t), &adapter.Trained{}
		if c.Experts > 0 {
			continue
		}
		w := build(t, c, 2, 8, nn.Options{Float: kernel.F32, Trainable: func(string) bool { return true },
			Train: trained.Train}, nil, adapter.Config{})
		loss := w.loss()
		grads := w.Grad(loss, trained.Params...)
		_, err := w.Compile(2, append([]*nn.Value{loss}, grads...)...)
		if c.HiddenAct == model.XIELU {
			if err == nil || !strings.Contains(err.Error(), "xielu passes no gradient to its input 1") {
				t.Errorf("%s: %v", m.name, err)
			}
			continue
		}
		if c.ShortConv > 0 || c.StateSpace.Heads > 0 || strings.HasPrefix(c.ModelType, "qwen3_5") {
			if err == nil || !strings.Contains(err.Error(), "_conv passes no gradient to its input 1") {
				t.Errorf("%s: %v", m.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		names := map[string]bool{}
		for _, p := range trained.Params {
			names[p.Name] = true
		}
		for _, name := range w.WeightNames() {
			if !names[name] && !strings.HasSuffix(name, ".layer_scalar") {
				t.Errorf("%s: %s has no gradient", m.name, name)
			}
		}
	}
}

// TestEveryMatrixTrainsInBF16 plans the gradient of every weight of every family for a GPU that stores matrices in bf16
// alone.
func TestEveryMatrixTrainsInBF16(t *testing.T) {
	chip, err := graph.FindChip("h100")
	if err != nil {
		t.Fatal(err)
	}
	on, err := graph.NewChip(chip, 1, kernel.PrecisionBF16)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range models(t) {
		c, trained := m.config(t), &adapter.Trained{NarrowMatrices: true}
		if c.HeadDim%8 > 0 || c.Experts > 0 || c.ShortConv > 0 || c.StateSpace != (model.StateSpace{}) ||
			c.HiddenAct == model.XIELU || strings.HasPrefix(c.ModelType, "qwen3_5") {
			continue
		}
		w := build(t, c, 2, 8, nn.Options{Float: kernel.F32, Trainable: func(string) bool { return true },
			Train: trained.Train}, nil, adapter.Config{})
		loss := w.loss()
		_, err := on.Compile(w.Builder, append([]*nn.Value{loss}, w.Grad(loss, trained.Params...)...)...)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// TestTrainedWeightIsRefused: a weight that no kernel has a gradient for, or that is not stored as numbers of its own,
// is an error before any memory is taken.
func TestTrainedWeightIsRefused(t *testing.T) {
	nf4 := quant.Default()
	byName := map[string]referenceModel{}
	for _, m := range models(t) {
		byName[m.name] = m
		if !m.config(t).TieEmbeddings {
			byName["untied"] = m
		}
	}
	_, file := expertModels(t)
	byName["mixtral"] = referenceModel{expertFolder("mixtral"), "mixtral", file["mixtral"]}
	for _, c := range []struct {
		name, weight string
		o            nn.Options
		want         string
	}{
		{"llama", "model.embed_tokens.weight", nn.Options{}, "crossentropy passes no gradient to its input 1"},
		{"untied", "lm_head.weight", nn.Options{}, "crossentropy passes no gradient to its input 1"},
		{"llama", "model.layers.0.self_attn.q_proj.weight", nn.Options{Scheme: &nf4},
			"model.layers.0.self_attn.q_proj.weight cannot be trained, because it is stored quantised: only a weight " +
				"of its own, kept as numbers, can"},
		{"llama", "model.layers.0.self_attn.q_proj.weight", nn.Options{Scheme: &nf4, Dequantised: true},
			"model.layers.0.self_attn.q_proj.weight cannot be trained, because it is stored quantised: only a weight " +
				"of its own, kept as numbers, can"},
		{"mixtral", "model.layers.0.block_sparse_moe.experts.0.w2.weight", nn.Options{},
			"model.layers.0.block_sparse_moe.experts.0.w2.weight cannot be trained, because it is stored in a stack " +
				"of experts: only a weight of its own, kept as numbers, can"},
	} {
		m, ok := byName[c.name]
		if !ok {
			t.Fatalf("there is no model %s", c.name)
		}
		if err := trainedAlone(t, m.config(t), c.weight, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %s: %v, want an error with %q", c.weight, c.name, err, c.want)
		}
	}
}

// trainedAlone declares one trained weight of a network and asks for its gradient.
func trainedAlone(t *testing.T, c model.Config, weight string, o nn.Options) error {
	const tokens = 4
	trained := &adapter.Trained{}
	o.Trainable, o.Train = func(n string) bool { return n == weight }, trained.Train
	n := nn.New(o)
	f, err := families.For(c)
	if err != nil {
		t.Fatal(err)
	}
	ints := func(name string, size int) *nn.Value { return n.Batch(name, kernel.T(kernel.I32, size)) }
	cu := ints("cu", 2)
	hidden := f(n, c, nn.Batch{IDs: ints("ids", tokens), Positions: ints("positions", tokens), CuQ: cu, CuK: cu,
		Real: ints("real", tokens), MaxLen: tokens})
	head := n.Head(c.HeadName(), c.VocabSize, c.HiddenSize)
	loss := n.Apply(kernel.LinearCrossEntropy{Chunk: 4, Grad: true, Cap: c.LogitCap}, hidden, head,
		ints("labels", tokens), n.Batch("scale", kernel.T(n.Float(), 1)))
	if n.Err() == nil {
		n.Grad(loss, trained.Params...)
	}
	return n.Err()
}
