package families_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
)

// TestFusedExpertGradientsEqualPEFT: adapters on the parameters that transformers 5 has experts in, over a checkpoint
// that has them as layers: of both beside attention, and of some with ranks and scales of their own.
func TestFusedExpertGradientsEqualPEFT(t *testing.T) {
	var file map[string]string
	golden.JSON(t, golden.Path(t, "fused_experts/models.json"), &file)
	for name, tensors := range map[string]int{"mixtral_fused": 24, "mixtral_fused_some": 6, "qwen3_moe_fused": 24} {
		t.Run(name, func(t *testing.T) {
			c := loadConfig(t, golden.Path(t, "fused_experts/"+name+".config.json"))
			w, r, grads, ref := runPEFT(t, golden.Path(t, "fused_experts/"+name+".lora"), c,
				openWeights(t, golden.Path(t, "fused_experts/"+file[name]+".safetensors"), c))
			sameGradients(t, w, r, grads, ref, tensors)
		})
	}
}

// TestCorrectionsBesideFusedExperts: what lies beside experts in one tensor has the network's names too.
func TestCorrectionsBesideFusedExperts(t *testing.T) {
	for name, want := range map[string]struct{ block, own string }{
		"ernie4_5_moe": {"mlp", "mlp.gate.moe_statics.e_score_correction_bias"},
		"lfm2_moe":     {"feed_forward", "feed_forward.expert_bias"},
		"minimax_m2":   {"mlp", "mlp.e_score_correction_bias"},
	} {
		c := loadConfig(t, expertPath(t, name+".config.json"))
		read := openWeights(t, expertPath(t, name+".safetensors"), c)
		var fused []weights.Spec
		for _, own := range read.Names() {
			x, _ := read.Tensor(own)
			switch {
			case strings.Contains(own, ".experts.") || strings.HasSuffix(own, "gate.weight"):
			case strings.HasSuffix(own, "correction_bias") || strings.HasSuffix(own, "expert_bias"):
			default:
				fused = append(fused, weights.Spec{Name: own, Shape: x.Shape})
			}
		}
		for i := range c.NumLayers {
			if !c.ExpertLayer(i) {
				continue
			}
			at := fmt.Sprintf("model.layers.%d.", i)
			correction := []int{c.Experts}
			if c.Routing.CorrectionRow {
				correction = []int{1, c.Experts}
			}
			fused = append(fused, weights.Spec{Name: at + want.own, Shape: correction},
				weights.Spec{Name: at + want.block + ".gate.weight", Shape: []int{c.Experts, c.HiddenSize}},
				weights.Spec{Name: at + want.block + ".experts.gate_up_proj",
					Shape: []int{c.Experts, 2 * c.ExpertSize, c.HiddenSize}},
				weights.Spec{Name: at + want.block + ".experts.down_proj",
					Shape: []int{c.Experts, c.HiddenSize, c.ExpertSize}})
		}
		set := weights.Declare(fused, weights.BF16)
		if err := families.Rename(c, set); err != nil {
			t.Fatal(err)
		}
		if got := set.Names(); !slices.Equal(got, read.Names()) {
			t.Errorf("%s: tensors\n%v, want\n%v", name, got, read.Names())
		}
	}
}

// TestGraniteByItsNamesInTransformers5: a folder whose experts and routers have the names of transformers 5's modules
// is read as a release is.
func TestGraniteByItsNamesInTransformers5(t *testing.T) {
	const name = "granitemoehybrid_experts"
	c := loadConfig(t, expertPath(t, name+".config.json"))
	data := readFile(t, expertPath(t, name+".safetensors"))
	raw, err := weights.OpenFS(fstest.MapFS{weights.SingleFile: {Data: data}}, ".")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close() //nolint:errcheck // it was read
	var specs []weights.Spec
	for _, own := range raw.Names() {
		x, _ := raw.Tensor(own)
		for from, to := range map[string]string{".block_sparse_moe.input_linear.weight": ".experts.gate_up_proj",
			".block_sparse_moe.output_linear.weight": ".experts.down_proj",
			".block_sparse_moe.router.layer.weight":  ".router.weight"} {
			if layer, ok := strings.CutSuffix(own, from); ok {
				own = layer + ".block_sparse_moe" + to
			}
		}
		specs = append(specs, weights.Spec{Name: own, Shape: x.Shape})
	}
	set := weights.Declare(specs, weights.BF16)
	if err := families.Rename(c, set); err != nil {
		t.Fatal(err)
	}
	want := openWeights(t, expertPath(t, name+".safetensors"), c).Names()
	if got := set.Names(); !slices.Equal(got, want) {
		t.Errorf("tensors\n%v, want\n%v", got, want)
	}
}

// TestFusedExpertsPlan plans a training step of every model whose experts the checkpoint has as layers, with
// target_parameters over every storage: the router is no linear layer then, and shared experts and dense layers stay
// some.
func TestFusedExpertsPlan(t *testing.T) {
	schemes := map[string]*quant.Config{"floats": nil}
	for _, name := range []string{"nf4", "fp4", "int8"} {
		c := quant.Default()
		c.Type, c.Bits, c.DoubleQuant = name, quant.Schemes[name].Bits(), false
		schemes[name] = &c
	}
	names, _ := expertModels(t)
	for _, name := range names {
		c := loadConfig(t, expertPath(t, name+".config.json"))
		if c.ModelType == "gpt_oss" {
			continue
		}
		for what, scheme := range schemes {
			query, out, block := "q_proj", "o_proj", "mlp"
			if c.Latent.QueryRank > 0 {
				query = "q_b_proj"
			}
			if c.ShortConv > 0 {
				out, block = "out_proj", "feed_forward"
			}
			if c.StateSpace.Heads > 0 {
				block = "block_sparse_moe"
			}
			first, parts := "gate_up_proj", 2
			if c.OneMixer {
				block, first, parts = "mixer", "up_proj", 1
			}
			for _, targets := range []adapter.Targets{{adapter.AllLinear}, {query, out}, nil} {
				for _, parameters := range [][]string{{"experts." + first, "experts.down_proj"},
					{block + ".experts." + first}, {"experts.down_proj"}} {
					layers, tensors, stacks := 0, 0, 0
					for i := range c.NumLayers {
						attention, named := mixers(c, i), 2
						switch {
						case c.LinearLayer(i) || attention == 0:
							named = 0
						case attention == 2: // out_proj
							named = 1
						}
						switch {
						case targets == nil:
						case targets[0] != adapter.AllLinear:
							layers += named
						case !c.ExpertLayer(i):
							layers += attention + mlp(c, i)
						default:
							if layers += attention + shared(c); c.ModelType == "afmoe" { // its router is a linear layer
								layers++
							}
						}
						if c.ExpertLayer(i) {
							tensors += 2 * len(parameters)
							if stacks += 2 * len(parameters); parameters[0] != "experts.down_proj" {
								stacks += parts - 1 // B of gate and of up
							}
						}
					}
					lora := adapter.Default()
					lora.TargetModules, lora.TargetParameters = targets, parameters
					method := adapter.Methods["lora"]
					w := build(t, c, 2, 8, nn.Options{Float: kernel.F32, Scheme: scheme}, &method, lora)
					if err := w.trained.CheckTargets(lora, w.WeightNames()); err != nil {
						t.Errorf("%s, %s, %v: %v", name, what, targets, err)
					}
					got := w.trained
					if len(got.Layers) != layers || len(got.List()) != 2*layers+tensors ||
						len(got.Params) != 2*layers+stacks {
						t.Errorf("%s, %s, %v and %v: %d layers, %d tensors in %d, want %d, %d, %d", name, what,
							targets, parameters,
							len(got.Layers), len(got.List()), len(got.Params), layers, 2*layers+tensors,
							2*layers+stacks)
					}
					loss := w.loss()
					p, err := w.Compile(2, append([]*nn.Value{loss}, w.Grad(loss, got.Params...)...)...)
					if err == nil {
						_, err = graph.Need(p)
					}
					if err != nil {
						t.Errorf("%s, %s, %v: %v", name, what, targets, err)
					}
				}
			}
		}
	}
}
