package train

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// biasedModel writes a small Llama whose linear layers have biases. It has no tokenizer.
func biasedModel(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for to, from := range map[string]string{"config.json": "llama_biases.config.json",
		weights.SingleFile: "llama_biases.safetensors"} {
		raw := golden.ReadFile(t, golden.Path(t, "families/"+from))
		if err := os.WriteFile(filepath.Join(dir, to), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestKeysEqualPEFT compares the loss and all gradients of adapters with trained biases, with biases of B, and with
// LoRA on embeddings and on a head, tied or not.
func TestKeysEqualPEFT(t *testing.T) {
	for _, name := range []string{"bias_all", "bias_lora_only", "lora_bias", "embeddings_and_head", "tied_head"} {
		dir, model := golden.Path(t, "peft_keys/"+name), biasedModel(t)
		if name == "tied_head" {
			model = golden.StoriesDir(t)
		}
		b, err := session.OpenBase(context.Background(), model, session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() }) //nolint:errcheck // read only
		equalsPEFT(t, b, name, dir, golden.Open(t, filepath.Join(dir, "batch.safetensors")))
	}
	stories := stories(t)
	for _, name := range []string{"lora_embedding", "lora_bias"} {
		equalsPEFT(t, stories, "stories "+name, golden.Outside(t, savedGoldens+name),
			golden.Open(t, golden.Path(t, "dora/batch.safetensors")))
	}
}

// keysCase is a run that trains more than the weights of linear layers.
type keysCase struct {
	name  string
	model func(t testing.TB) string
	edit  func(l *adapter.LoRA)
	// merged says that the adapter can be merged.
	merged bool
}

var keysCases = []keysCase{
	{"biases", biasedModel, func(l *adapter.LoRA) { l.Bias = "all" }, true},
	{"biases of adapted layers", biasedModel, func(l *adapter.LoRA) { l.Bias = "lora_only" }, true},
	{"biases of B", biasedModel, func(l *adapter.LoRA) { l.LoRABias = true }, true},
	{"biases of B without others", golden.StoriesDir, func(l *adapter.LoRA) { l.LoRABias = true }, false},
	{"embeddings and head", biasedModel, func(l *adapter.LoRA) {
		l.TargetModules = adapter.Targets{"embed_tokens", "lm_head", "q_proj"}
	}, true},
	{"embeddings, tied", golden.StoriesDir, func(l *adapter.LoRA) {
		l.TargetModules = adapter.Targets{"embed_tokens", "v_proj"}
	}, true},
	{"head, tied", golden.StoriesDir, func(l *adapter.LoRA) { l.TargetModules = adapter.Targets{"lm_head"} }, true},
}

// spec returns the run of a case, on rows of ids.
func (c keysCase) spec(t testing.TB, steps int) Spec {
	s := testSpec(t, steps)
	s.BaseModel, s.Adapter, s.Quantization = c.model(t), "lora", nil
	for name, first := range map[string]int{"train.jsonl": 0, "val.jsonl": 100} {
		var rows strings.Builder
		for i := range 9 {
			var ids []string
			for j := range 5 + i%4 {
				ids = append(ids, fmt.Sprint((first+i*i+7*j)%60+3))
			}
			list := strings.Join(ids, ", ")
			rows.WriteString(`{"input_ids": [` + list + `], "labels": [` + list + "]}\n")
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(rows.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		if first == 0 {
			s.Dataset.Path = path
		} else {
			s.Dataset.ValPath = path
		}
	}
	s.Dataset.ValSplit, s.Dataset.Format, s.Dataset.Fields = 0, "", nil
	s.Training.EvalSteps, s.Training.SaveSteps = steps, 2
	c.edit(&s.LoRA)
	return s
}

// TestKeysRun trains adapters with biases and with LoRA on embeddings and head: the run holds the planned memory, an
// interrupted run ends with the same bytes, and evaluation with the folder and the merged model stand for the model
// that was trained.
func TestKeysRun(t *testing.T) {
	for _, c := range keysCases {
		t.Run(c.name, func(t *testing.T) {
			ctx, s := context.Background(), c.spec(t, 4)
			planned, err := PlanRun(ctx, s, oneWorker)
			if err != nil {
				t.Fatal(err)
			}
			result := mustStart(t, s, oneWorker)
			if result.HeldBytes != planned.TotalBytes {
				t.Errorf("the run held %d bytes, the plan has %d", result.HeldBytes, planned.TotalBytes)
			}
			parts := s
			parts.OutputDir = filepath.Join(t.TempDir(), "parts")
			stop := stopping(3)
			mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
			parts.Training.Resume = "auto"
			mustStart(t, parts, oneWorker)
			for _, name := range []string{adapter.WeightsFile, adapter.ConfigFile} {
				if !bytes.Equal(golden.ReadFile(t, s.OutputDir, name), golden.ReadFile(t, parts.OutputDir, name)) {
					t.Errorf("%s of the resumed run is another", name)
				}
			}
			beside, err := infer.Evaluate(ctx, s.Evaluation(s.OutputDir), session.Env{})
			if err != nil {
				t.Fatal(err)
			}
			golden.Near(t, "loss of an evaluation", beside.Loss, *result.EvalLoss, 1e-6**result.EvalLoss)
			out := filepath.Join(t.TempDir(), "merged")
			o := export.MergeOptions{Model: s.BaseModel, Adapters: export.One(s.OutputDir), Out: out, DType: "fp32"}
			_, err = export.Merge(ctx, o, session.Env{})
			if !c.merged {
				if err == nil || !strings.Contains(err.Error(), "the adapter has lora_bias, and "+
					"model.layers.0.self_attn.q_proj has no bias of its own") {
					t.Errorf("merged: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			merged := s
			merged.BaseModel, merged.LoRA = out, adapter.LoRA{Shared: adapter.Default().Shared}
			report, err := infer.Evaluate(ctx, merged.Evaluation(""), session.Env{})
			if err != nil {
				t.Fatal(err)
			}
			if d := math.Abs(report.Loss - beside.Loss); !(d <= 2e-6*beside.Loss) {
				t.Errorf("loss of the merged model %.9f, with the adapter beside it %.9f", report.Loss, beside.Loss)
			}
		})
	}
}

// TestKeysLoadInPEFT checks that these adapters load in PEFT and transformers, key by key, and give the loss that the
// run's last evaluation had.
func TestKeysLoadInPEFT(t *testing.T) {
	python := pythonWithPEFT(t)
	var specs []Spec
	for _, c := range keysCases {
		s := c.spec(t, 4)
		mustStart(t, s, oneWorker)
		specs = append(specs, s)
	}
	checkLossesInPEFT(t, python, specs)
}

// TestKeysOverNF4 trains biases and updates of embeddings and head over a base model in 4 bits, by two workers as by
// one.
func TestKeysOverNF4(t *testing.T) {
	for _, i := range []int{0, 4, 5} {
		s := keysCases[i].spec(t, 3)
		four := quant.Default()
		s.Adapter, s.Quantization = "qlora", &four
		first := mustStart(t, s, oneWorker)
		again := s
		again.OutputDir = filepath.Join(t.TempDir(), "again")
		two := oneWorker
		two.Workers = 2
		if second := mustStart(t, again, two); !slices.Equal(first.Losses, second.Losses) {
			t.Errorf("%s: losses %v, of two workers %v", keysCases[i].name, first.Losses, second.Losses)
		}
	}
}

// equalsPEFT compares the loss and all gradients of an adapter of PEFT's with its reference.
func equalsPEFT(t *testing.T, b *session.Base, name, dir string, batch golden.Tensors) {
	t.Helper()
	ids, labels, dims := batch.Ints("input_ids"), batch.Ints("labels"), batch.Shape("input_ids")
	z := session.Shape{Tokens: len(ids), Sequences: dims[0], MaxLen: dims[1]}
	for _, c := range []struct {
		float               kernel.DType
		loss, tensor, norms float64
	}{{kernel.F32, 1e-5, 2e-3, 2e-3}, {kernel.F64, 1e-9, 1e-6, 1e-9}} {
		t.Run(fmt.Sprint(name, " ", c.float), func(t *testing.T) {
			cfg := peftConfigOf(t, dir)
			ts := newTestStep(t, b, network(t, b, c.float, nil, &cfg), z, Default(), 2, dir)
			checkPEFTGradients(t, ts, dir, ids, labels, dims[1], peftTolerance{c.loss, c.tensor, c.norms})
		})
	}
}

// TestKeysPlanForGPUs: these adapters, and rows of tokens, are planned for a GPU in every precision.
func TestKeysPlanForGPUs(t *testing.T) {
	chip, err := graph.FindChip("h100")
	if err != nil {
		t.Fatal(err)
	}
	rows := func(l *adapter.LoRA) { l.TrainableTokenIndices = []string{"7", "lm_head:7"} }
	for _, c := range append(slices.Clone(keysCases), keysCase{"rows, tied", golden.StoriesDir, rows, true},
		keysCase{"rows, untied", untiedStories, rows, true}) {
		for _, precision := range []string{"bf16", "fp16", "tf32", "fp32"} {
			s := c.spec(t, 4)
			s.Device, s.Training.Precision = "cuda", precision
			if _, err := PlanFor(context.Background(), s, Env{}, chip); err != nil {
				t.Errorf("%s in %s: %v", c.name, precision, err)
			}
		}
	}
}
