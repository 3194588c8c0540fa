package train

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// savedCase is a run that trains whole modules beside its adapter.
type savedCase struct {
	name    string
	untied  bool // the base model has a head of its own
	four    bool // the base model is stored as NF4
	modules []string
	ties    bool
	start   string
	// files are the whole tensors of the adapter's folder; parted says that the merged model's head is apart from its
	// embeddings.
	files  []string
	parted bool
}

const (
	savedEmbeddings = "base_model.model.model.embed_tokens.weight"
	savedHead       = "base_model.model.lm_head.weight"
)

var savedCases = []savedCase{
	{name: "tied, embeddings alone", modules: []string{"embed_tokens"}, files: []string{savedEmbeddings}, parted: true},
	{name: "tied, head alone over NF4", four: true, modules: []string{"lm_head"}, files: []string{savedHead},
		parted: true},
	{name: "tied, both apart over NF4", four: true, modules: []string{"embed_tokens", "lm_head"},
		files: []string{savedHead, savedEmbeddings}, parted: true},
	{name: "tied, both as one", modules: []string{"embed_tokens"}, ties: true,
		files: []string{savedHead, savedEmbeddings}},
	{name: "tied, both as one over NF4", four: true, modules: []string{"lm_head", "model.norm"}, ties: true,
		files: []string{savedHead, savedEmbeddings, "base_model.model.model.norm.weight"}},
	{name: "untied, PiSSA", untied: true, modules: []string{"embed_tokens", "lm_head"}, start: "pissa",
		files: []string{savedHead, savedEmbeddings}, parted: true},
	{name: "untied, a norm and a layer", untied: true, modules: []string{"model.norm", "layers.1.mlp.up_proj"},
		files:  []string{"base_model.model.model.layers.1.mlp.up_proj.weight", "base_model.model.model.norm.weight"},
		parted: true},
}

// spec returns the run of a case, with rows to evaluate.
func (c savedCase) spec(t testing.TB, steps int) Spec {
	s := testSpec(t, steps)
	if c.untied {
		s.BaseModel = untiedStories(t)
	}
	if !c.four {
		s.Adapter, s.Quantization = "lora", nil
	}
	s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.SaveSteps = 0.05, steps, 2
	s.LoRA.ModulesToSave, s.LoRA.EnsureWeightTying, s.LoRA.InitLoRAWeights = c.modules, c.ties, c.start
	return s
}

// TestSavedModulesRun trains whole modules beside an adapter: the run holds the planned memory, an interrupted run ends
// with the same bytes, the folder has PEFT's tensors, and evaluation with the adapter, the merged model and the GGUF
// file stand for the model that was trained.
func TestSavedModulesRun(t *testing.T) {
	t.Parallel()
	for _, c := range savedCases {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			s := c.spec(t, 4)
			planned, err := PlanRun(ctx, s, Env{})
			if err != nil {
				t.Fatal(err)
			}
			result := mustStart(t, s, oneWorker)
			if result.HeldBytes != planned.TotalBytes {
				t.Errorf("the run held %d bytes, the plan has %d", result.HeldBytes, planned.TotalBytes)
			}
			if !(result.Losses[3] < result.Losses[0]) {
				t.Errorf("losses %v", result.Losses)
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
			c.checkFolder(t, s.OutputDir)

			beside, err := infer.Evaluate(ctx, s.Evaluation(s.OutputDir), session.Env{})
			if err != nil {
				t.Fatal(err)
			}
			golden.Near(t, "loss of an evaluation", beside.Loss, *result.EvalLoss, 1e-6**result.EvalLoss)
			c.checkExports(t, s, beside.Loss)
		})
	}
}

// checkFolder compares the whole tensors of an adapter's folder with those that PEFT writes.
func (c savedCase) checkFolder(t *testing.T, dir string) {
	t.Helper()
	f, err := weights.Open(filepath.Join(dir, adapter.WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // read only
	var whole []string
	for _, name := range f.Names() {
		if !strings.Contains(name, ".lora_") {
			whole = append(whole, name)
		}
	}
	if !slices.Equal(whole, slices.Sorted(slices.Values(c.files))) {
		t.Errorf("whole tensors %v, want %v", whole, c.files)
	}
	cfg := peftConfigOf(t, dir)
	if !slices.Equal(cfg.Saved().Names, c.modules) || cfg.Saved().Tied != c.ties {
		t.Errorf("the folder has modules_to_save %v, ensure_weight_tying %v", cfg.Saved().Names,
			cfg.Saved().Tied)
	}
}

// checkExports merges the adapter, and writes it as PEFT's and as GGUF.
func (c savedCase) checkExports(t *testing.T, s Spec, loss float64) {
	t.Helper()
	ctx, out := context.Background(), filepath.Join(t.TempDir(), "merged")
	o := export.MergeOptions{Model: s.BaseModel, Adapters: export.One(s.OutputDir), Out: out, Trained: s.Quantization}
	if _, err := export.Merge(ctx, o, session.Env{}); err != nil {
		t.Fatal(err)
	}
	merged := s
	merged.BaseModel, merged.Adapter, merged.Quantization = out, "lora", nil
	report, err := infer.Evaluate(ctx, merged.Evaluation(""), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if d := math.Abs(report.Loss - loss); !(d <= 2e-6*loss) {
		t.Errorf("loss of the merged model %.9f, with the adapter beside it %.9f", report.Loss, loss)
	}
	b, err := session.OpenBase(ctx, out, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // read only
	if b.Config.TieEmbeddings == c.parted {
		t.Errorf("the merged model has tie_word_embeddings %v", b.Config.TieEmbeddings)
	}
	for _, format := range []string{"gguf", "peft", "gguf-lora", "vllm"} {
		o := export.Options{Model: s.BaseModel, Adapter: s.OutputDir, Format: format, Trained: s.Quantization,
			DType: "f32", Out: filepath.Join(t.TempDir(), format)}
		_, err := export.Export(ctx, o, session.Env{})
		switch {
		case format == "gguf-lora" || format == "vllm":
			want := fmt.Sprintf("the adapter saves the modules %v in whole", c.modules)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", format, err)
			}
			continue
		case err != nil:
			t.Fatalf("%s: %v", format, err)
		}
		if format == "peft" {
			c.checkFolder(t, o.Out)
			continue
		}
		same := map[string]string{"token_embd.weight": "model.embed_tokens.weight",
			"output_norm.weight": "model.norm.weight"}
		if c.parted {
			same["output.weight"] = adapter.HeadWeight
		}
		sameInGGUF(t, o.Out, b, same)
	}
}

// TestSavedModulesRefused: what can't be trained in whole is said before a step.
func TestSavedModulesRefused(t *testing.T) {
	for _, c := range []struct {
		want string
		edit func(s *Spec)
	}{
		{`lora.modules_to_save: "embed" is no module of the model, which has embed_tokens, `,
			func(s *Spec) { s.LoRA.ModulesToSave = []string{"embed"} }},
		{"model.layers.1.mlp.up_proj.weight cannot be trained, because it is stored quantised",
			func(s *Spec) { s.LoRA.ModulesToSave = []string{"layers.1.mlp.up_proj"} }},
		{"lora.modules_to_save: [j] names model.layers.0.self_attn.q_proj, which lora.target_modules adapt",
			func(s *Spec) {
				s.Adapter, s.Quantization = "lora", nil
				s.LoRA.ModulesToSave = []string{"j"}
			}},
		{"the run trains the vocabulary head, or the embeddings that are tied to it, and the objective computes with",
			func(s *Spec) {
				*s = dpoSpec(t, 2)
				s.LoRA.ModulesToSave = []string{"lm_head"}
			}},
		{"the reference is the base model with the adapter switched off, and lora.modules_to_save [model.norm] trains",
			func(s *Spec) {
				*s = dpoSpec(t, 2)
				s.Training.Precompute, s.LoRA.ModulesToSave = "no", []string{"model.norm"}
			}},
	} {
		s := testSpec(t, 2)
		c.edit(&s)
		if _, err := Start(context.Background(), s, Env{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
}

// TestSavedModulesAlone: an adapter with whole modules can't stand beside others over one base model, nor be combined.
func TestSavedModulesAlone(t *testing.T) {
	ctx, s := context.Background(), savedCases[3].spec(t, 2)
	mustStart(t, s, Env{})
	base := session.Options{Model: s.BaseModel, Device: "cpu"}
	o := infer.EngineOptions{Slots: 1, MaxLen: 64, Adapters: []infer.NamedAdapter{{Name: "a", Dir: s.OutputDir}}}
	if _, err := infer.NewEngine(ctx, base, o, session.Env{}); err == nil ||
		!strings.Contains(err.Error(), "adapter 1 of 1 saves the modules [embed_tokens] in whole") {
		t.Errorf("beside others: %v", err)
	}
	o.Only = true
	e, err := infer.NewEngine(ctx, base, o, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	e.Close() //nolint:errcheck // nothing was computed
	two := []export.WeightedAdapter{{Dir: s.OutputDir, Weight: 1}, {Dir: s.OutputDir, Weight: 1}}
	_, err = export.Merge(ctx, export.MergeOptions{Model: s.BaseModel, Adapters: two,
		Out: filepath.Join(t.TempDir(), "m")}, session.Env{})
	if err == nil || !strings.Contains(err.Error(), "saves the modules [embed_tokens] in whole, which have no sum") {
		t.Errorf("combined: %v", err)
	}
}
