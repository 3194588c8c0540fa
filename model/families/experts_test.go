package families_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
)

// expertFamilies are those whose reference models lie in testdata/dialect_experts, testdata/experts, testdata/latent,
// testdata/linear_experts, testdata/parameter_experts, testdata/scored_experts, testdata/shared_experts and
// testdata/ungated_experts, and nowhere else.
var expertFamilies = map[string]bool{"afmoe": true, "deepseek_v2": true, "deepseek_v3": true, "ernie4_5_moe": true,
	"glm4_moe": true, "glm4_moe_lite": true, "gpt_oss": true,
	"lfm2_moe": true, "minimax_m2": true, "mixtral": true, "qwen2_moe": true, "qwen3_5_moe": true,
	"nemotron_h":       true,
	"qwen3_5_moe_text": true, "qwen3_moe": true, "qwen3_next": true}

// expertFolder is the folder of a reference model.
func expertFolder(name string) string {
	model, _, _ := strings.Cut(name, ".")
	switch {
	case model == "ernie4_5_moe" || model == "lfm2_moe" || model == "minimax_m2":
		return "parameter_experts"
	case strings.HasPrefix(model, "deepseek") || model == "glm4_moe_lite":
		return "latent"
	case strings.HasPrefix(name, "granitemoehybrid"):
		return "state_space_experts"
	case strings.HasPrefix(name, "nemotron_h"):
		return "ungated_experts"
	case strings.HasPrefix(name, "glm4_moe"):
		return "scored_experts"
	case strings.HasPrefix(name, "qwen2_moe"):
		return "shared_experts"
	case model == "afmoe" || model == "qwen3_next":
		return "dialect_experts"
	case strings.HasPrefix(name, "qwen3_5_moe"):
		return "linear_experts"
	}
	return "experts"
}

func expertPath(t testing.TB, name string) string {
	return golden.Path(t, filepath.Join(expertFolder(name), name))
}

// expertModels are the reference models and their weights' files, in order.
func expertModels(t testing.TB) (names []string, file map[string]string) {
	for _, folder := range []string{"dialect_experts", "experts", "latent", "linear_experts", "parameter_experts",
		"scored_experts", "shared_experts", "state_space_experts", "ungated_experts"} {
		golden.JSON(t, golden.Path(t, filepath.Join(folder, "models.json")), &file)
	}
	for name := range file {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) < 7 {
		t.Fatalf("%d reference models", len(names))
	}
	return names, file
}

// TestExpertLogitsEqualTransformers: with and without norms of the chosen experts' weights, layers without experts, one
// expert a token, windows, biases, tied heads; packed rows give what each gives alone.
func TestExpertLogitsEqualTransformers(t *testing.T) {
	names, file := expertModels(t)
	seen := map[string][]float64{}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			ref := golden.Open(t, golden.Path(t, filepath.Join(expertFolder(name), "logits.safetensors")))
			ids := ref.Ints("ids")
			c := loadConfig(t, expertPath(t, name+".config.json"))
			for _, rows := range []int{1, 2} { // the second row makes the batch: its experts have other tokens
				w := build(t, c, rows, len(ids), nn.Options{}, nil, adapter.Config{})
				logits := w.Apply(kernel.MatMul{TransB: true}, w.hidden, w.head) // [M,C] [V,C]ᵀ -> [M,V]
				r := w.start(t, openWeights(t, expertPath(t, file[name]+".safetensors"), c), logits)
				for i := range rows * len(ids) {
					r.ints("ids")[i] = ids[(i*(1+i/len(ids)))%len(ids)]
				}
				r.run.Run("main")
				want := ref.Floats(name + ".logits")
				got := r.run.Tensor(logits).F32()[:len(want)]
				d, size := furthest(t, got, want)
				t.Logf("%d rows: logits within %.3g differ by at most %.3g", rows, size, d)
				if !(d <= 1e-4) || size < 1 {
					t.Errorf("%d rows: logits within %.3g differ by up to %.3g, tolerance 1e-4", rows, size, d)
				}
				for other, numbers := range seen { // a case that equals another tests nothing
					if len(numbers) != len(got) {
						continue // of a shorter row
					}
					if d, _ := furthest(t, got, numbers); other != name && d < 1e-2 {
						t.Errorf("the logits are those of %s", other)
					}
				}
				seen[name] = want
			}
		})
	}
}

// TestExpertGradientsEqualPEFT: adapters on attention, router and experts, all of them or some, and on parameters of
// experts, of all layers or some, with ranks of their own; the balance of the experts is in the loss where the
// configuration asks for it.
func TestExpertGradientsEqualPEFT(t *testing.T) {
	_, file := expertModels(t)
	for name, tensors := range map[string]int{"afmoe": 38, "deepseek_v2": 32, "deepseek_v3": 36,
		"ernie4_5_moe": 32, "glm4_moe": 52, "glm4_moe_lite": 36,
		"granitemoehybrid_experts": 28, "lfm2_moe": 22, "minimax_m2": 24, "nemotron_h": 24,
		"gpt_oss": 16, "gpt_oss_balanced": 24, "gpt_oss_full": 6,
		"mixtral_balanced": 68, "qwen2_moe": 96, "qwen2_moe_mixed": 84, "qwen3_5_moe": 42, "qwen3_5_moe_text": 42,
		"qwen3_moe": 80, "qwen3_moe_mixed": 18, "qwen3_next": 38} {
		t.Run(name, func(t *testing.T) {
			dir := expertPath(t, name+".lora")
			c := loadConfig(t, expertPath(t, name+".config.json"))
			w, r, grads, ref := runPEFT(t, dir, c, openWeights(t, expertPath(t, file[name]+".safetensors"), c))
			sameGradients(t, w, r, grads, ref, tensors)
		})
	}
}

// sameGradients compares the gradients of an adapter of so many tensors with PEFT's.
func sameGradients(t *testing.T, w *network, r *running, grads []*nn.Value, ref golden.Tensors, tensors int) {
	t.Helper()
	if got := len(ref.Names()) - 4; got != tensors || len(w.trained.List()) != tensors {
		t.Errorf("%d gradients, PEFT has %d, want %d", len(w.trained.List()), got, tensors)
	}
	for i, v := range w.trained.Params { // where the gradients are, the adapter's tensors are
		copy(r.tensor(v.Name).F32(), r.run.Tensor(grads[i]).F32())
	}
	got, err := w.trained.Snapshot(r.memory)
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for _, p := range got {
		d, size := furthest(t, p.Data, ref.Floats("base_model.model."+p.Name))
		worst = max(worst, d/max(size, 1e-12))
		if !(d <= 1e-4*size) {
			t.Errorf("gradient of %s is off by %.3g of %.3g", p.Name, d, size)
		}
	}
	t.Logf("gradients differ by at most %.3g of a tensor's largest", worst)
}

// TestExpertsPlan plans a training step of every reference model with every storage and kind of target, and asks for
// the checkpoint's tensors.
func TestExpertsPlan(t *testing.T) {
	plain, nested := quant.Default(), quant.Default()
	plain.DoubleQuant = false
	names, file := expertModels(t)
	for _, name := range names {
		c := loadConfig(t, expertPath(t, name+".config.json"))
		asParameters := c.ModelType == "gpt_oss" || c.StateSpace.Heads > 0 ||
			strings.HasPrefix(c.ModelType, "qwen3_5_moe")
		for what, scheme := range map[string]*quant.Config{"floats": nil, "nf4": &plain, "nested nf4": &nested} {
			for target, layers := range map[string]func() int{
				adapter.AllLinear: func() (n int) {
					if c.ModelType == "gpt_oss" { // its router and experts are no linear layers
						return 4 * c.NumLayers
					}
					for i := range c.NumLayers {
						if n += mixers(c, i) + mlp(c, i); c.ExpertLayer(i) {
							if n -= mlp(c, i); !asParameters {
								n += 3 * c.Experts
							}
							// the router, where transformers has it as a linear layer
							if !asParameters && c.ModelType != "qwen3_next" &&
								(!c.Routing.Scored || c.ModelType == "afmoe") {
								n++
							}
							n += shared(c)
						}
					}
					return n
				},
				"q_proj": func() (n int) {
					for i := range c.NumLayers {
						if mixers(c, i) == 4 || c.ModelType == "afmoe" {
							n++
						}
					}
					return n
				},
				`.*\.experts\.1\..*`: func() (n int) {
					for i := range c.NumLayers {
						if c.ExpertLayer(i) && !asParameters {
							n += 3
						}
					}
					return n
				},
			} {
				for _, float := range []kernel.DType{kernel.F32, kernel.F64} {
					if layers() == 0 {
						continue
					}
					lora := adapter.Default()
					lora.TargetModules, lora.Dropout = adapter.Targets{target}, 0.1
					method := adapter.Methods["lora"]
					w := build(t, c, 2, 8, nn.Options{Float: float, Scheme: scheme}, &method, lora)
					var want []weights.Spec
					for _, x := range w.Weights() {
						if x.Name != "" {
							want = append(want, weights.Spec{Name: x.Name, Shape: x.Shape})
						}
					}
					if err := weights.Check(openWeights(t, expertPath(t, file[name]+".safetensors"), c), want,
						families.Table[c.ModelType].Unused...); err != nil {
						t.Errorf("%s, %s: %v", name, what, err)
					}
					if err := w.trained.CheckTargets(lora, w.WeightNames()); err != nil {
						t.Errorf("%s, %s, %s: %v", name, what, target, err)
					}
					if n := layers(); len(w.trained.Layers) != n || len(w.trained.List()) != 2*n {
						t.Errorf("%s, %s, %s: %d adapted layers of %d tensors, want %d layers", name, what, target,
							len(w.trained.Layers), len(w.trained.List()), n)
					}
					loss := w.loss()
					p, err := w.Compile(2, append([]*nn.Value{loss}, w.Grad(loss, w.trained.Params...)...)...)
					if err != nil {
						t.Errorf("%s, %s, %s: %v", name, what, target, err)
						continue
					}
					if _, err := graph.Need(p); err != nil {
						t.Errorf("%s, %s, %s: %v", name, what, target, err)
					}
				}
			}
		}
	}
}

// shared is how many linear layers an expert that all tokens share has, with its gate.
func shared(c model.Config) int {
	switch {
	case c.SharedSize == 0:
		return 0
	case c.StateSpace.Heads > 0: // its gate and up projections are one, or it has no gate
		return 2
	case c.Routing.Scored: // no gate
		return 3
	}
	return 4
}

// mlp is how many linear layers a layer without experts has behind attention.
func mlp(c model.Config, layer int) int {
	switch {
	case !c.OneMixer:
		return 3
	case c.LayerTypes[layer] == model.MLPLayer:
		return 2
	}
	return 0
}

// mixers is how many linear layers a layer has in attention, or in what it has in place of attention.
func mixers(c model.Config, layer int) int {
	switch {
	case c.OneMixer && (c.LayerTypes[layer] == model.MLPLayer || c.LayerTypes[layer] == model.ExpertsLayer):
		return 0
	case c.LinearLayer(layer) && c.StateSpace.Heads > 0:
		return 2
	case c.LinearLayer(layer) && c.DeltaNet.Fused:
		return 3
	case c.LinearLayer(layer):
		return 5
	case c.ShortConv > 0 && c.LayerTypes[layer] == model.ConvLayer:
		return 2
	case c.Latent.QueryRank > 0 || c.ModelType == "afmoe": // with a gate
		return 5
	}
	return 4
}

// TestExpertsOfOneLayerAlike: what a stack of experts cannot hold is an error that names the experts.
func TestExpertsOfOneLayerAlike(t *testing.T) {
	c := loadConfig(t, expertPath(t, "mixtral.config.json"))
	lora := adapter.Default()
	lora.TargetModules, lora.RankPattern = adapter.Targets{adapter.AllLinear}, map[string]int{`experts\.2\.w3`: 5}
	trained := &adapter.Trained{}
	method := adapter.Methods["lora"]
	n := nn.New(nn.Options{Wrap: method.Wrapper(trained, lora), WrapExperts: method.ExpertWrapper(trained, lora)})
	i32 := func(k int) kernel.Type { return kernel.T(kernel.I32, k) }
	cu := n.Batch("cu", i32(2))
	f, err := families.For(c)
	if err != nil {
		t.Fatal(err)
	}
	f(n, c, nn.Batch{IDs: n.Batch("ids", i32(4)), Positions: n.Batch("positions", i32(4)), CuQ: cu, CuK: cu, MaxLen: 4})
	if err := n.Err(); err == nil || !strings.Contains(err.Error(), "experts.2.w3 rank 5") ||
		!strings.Contains(err.Error(), "lora.rank_pattern") {
		t.Errorf("got %v", err)
	}
}
