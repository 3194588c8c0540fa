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
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// tokensCase is a run that adds tokens to its model's tokenizer.
type tokensCase struct {
	name   string
	untied bool
	edit   func(s *Spec)
}

var tokensCases = []tokensCase{
	{"untied, modules to save", true, func(s *Spec) {
		s.Adapter, s.Quantization = "lora", nil
		s.LoRA.ModulesToSave = []string{"embed_tokens", "lm_head"}
	}},
	{"tied as one over NF4, from the text", false, func(s *Spec) {
		s.LoRA.ModulesToSave, s.LoRA.EnsureWeightTying = []string{"embed_tokens"}, true
		s.Tokenizer.InitFrom = "text"
	}},
	{"tied over NF4, rows alone", false, func(s *Spec) {
		s.LoRA.TrainableTokenIndices = []string{"512", "513", "514", "2"}
	}},
	{"untied, rows alone", true, func(s *Spec) {
		s.Adapter, s.Quantization = "lora", nil
		s.LoRA.TrainableTokenIndices = []string{"514", "513", "512", "lm_head:512", "lm_head:513", "lm_head:514"}
	}},
	{"tied, both apart", false, func(s *Spec) {
		s.Adapter, s.Quantization = "lora", nil
		s.LoRA.ModulesToSave = []string{"embed_tokens", "lm_head"}
	}},
}

// tokensSpec is a run on rows that have three added tokens.
func tokensSpec(t testing.TB, steps int) Spec {
	t.Helper()
	s := testSpec(t, steps)
	var rows strings.Builder
	for i := range 20 {
		fmt.Fprintf(&rows, `{"question": "How many is %d?", "answer": "<think>It is %d.</think> %d<|done|>"}`, i, i, i)
		rows.WriteByte('\n')
	}
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(rows.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	s.Dataset.Path = path
	s.Tokenizer.AddTokens = []string{"<think>", "</think>"}
	s.Tokenizer.AddSpecialTokens = map[string]string{"eos_token": "<|done|>"}
	s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.SaveSteps = 0.2, steps, 2
	return s
}

// spec returns the run of a case.
func (c tokensCase) spec(t testing.TB, steps int) Spec {
	s := tokensSpec(t, steps)
	if c.untied {
		s.BaseModel = untiedStories(t)
	}
	c.edit(&s)
	return s
}

// TestAddedTokensRun trains the rows of added tokens: the run holds the planned memory, an interrupted run ends with
// the same bytes, the folder has the tokenizer, and evaluation with the adapter, the merged model and the GGUF file
// have the tokens and stand for the model that was trained.
func TestAddedTokensRun(t *testing.T) {
	for _, c := range tokensCases {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			s := c.spec(t, 4)
			planned, err := PlanRun(ctx, s, oneWorker)
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
			checkResumed(t, s)

			// An evaluation without the section takes the tokens from the folder.
			other := s
			other.Tokenizer.AddTokens, other.Tokenizer.AddSpecialTokens = nil, nil
			beside, err := infer.Evaluate(ctx, other.Evaluation(s.OutputDir), session.Env{})
			if err != nil {
				t.Fatal(err)
			}
			golden.Near(t, "loss of an evaluation", beside.Loss, *result.EvalLoss, 1e-6**result.EvalLoss)
			checkTokensMerged(t, other, s.OutputDir, beside.Loss)
		})
	}
}

// checkResumed compares an adapter with that of a run that is interrupted after three steps and resumed.
func checkResumed(t *testing.T, s Spec) {
	t.Helper()
	parts := s
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(3)
	mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	mustStart(t, parts, oneWorker)
	for _, name := range []string{adapter.WeightsFile, adapter.ConfigFile, "tokenizer.json"} {
		if !bytes.Equal(golden.ReadFile(t, s.OutputDir, name), golden.ReadFile(t, parts.OutputDir, name)) {
			t.Errorf("%s of the resumed run is another", name)
		}
	}
}

// checkTokensMerged merges an adapter with added tokens, and compares the loss, the tokenizer and the GGUF file.
func checkTokensMerged(t *testing.T, s Spec, dir string, loss float64) {
	t.Helper()
	ctx, out := context.Background(), filepath.Join(t.TempDir(), "merged")
	o := export.MergeOptions{Model: s.BaseModel, Adapters: export.One(dir), Out: out, Trained: s.Quantization}
	if _, err := export.Merge(ctx, o, session.Env{}); err != nil {
		t.Fatal(err)
	}
	merged := s
	merged.BaseModel, merged.Adapter, merged.Quantization = out, "lora", nil
	merged.LoRA.ModulesToSave, merged.LoRA.EnsureWeightTying, merged.LoRA.TrainableTokenIndices = nil, false, nil
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
	eos, _ := b.Tokenizer.EOS()
	if id, _ := b.Tokenizer.ID("</think>"); id != 513 || eos != 514 || b.Config.VocabSize != 515 ||
		!slices.Contains(b.Config.EOS, 514) {
		t.Errorf("the merged model has %d tokens, </think> is %d, eos %d %v", b.Config.VocabSize, id, eos, b.Config.EOS)
	}
	g := export.Options{Model: s.BaseModel, Adapter: dir, Format: "gguf", Trained: s.Quantization, DType: "f32",
		Out: filepath.Join(t.TempDir(), "gguf")}
	if _, err := export.Export(ctx, g, session.Env{}); err != nil {
		t.Fatal(err)
	}
	sameInGGUF(t, g.Out, b, map[string]string{"token_embd.weight": "model.embed_tokens.weight"})
}

// TestAddedRowsBegin: a row of an added token begins as the mean of the old rows, or of those of its text's tokens, in
// embeddings and head, and the model's other numbers stay.
func TestAddedRowsBegin(t *testing.T) {
	for _, from := range []string{"mean", "text"} {
		for _, untied := range []bool{false, true} {
			s := tokensSpec(t, 1)
			if untied {
				s.BaseModel = untiedStories(t)
			}
			s.Tokenizer.InitFrom = from
			before, err := session.OpenBase(context.Background(), s.BaseModel, session.Env{})
			if err != nil {
				t.Fatal(err)
			}
			after, err := session.OpenBase(context.Background(), s.BaseModel, session.Env{})
			if err != nil {
				t.Fatal(err)
			}
			if err := after.AddTokens(s.Tokenizer); err != nil {
				t.Fatal(err)
			}
			names := []string{"model.embed_tokens.weight"}
			if untied {
				names = append(names, adapter.HeadWeight)
			}
			for _, name := range names {
				checkRows(t, name, before, after, from == "text")
			}
			if err := before.Close(); err != nil {
				t.Fatal(err)
			}
			if err := after.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// checkRows compares the rows of three added tokens with means of the old rows.
func checkRows(t *testing.T, name string, before, after *session.Base, text bool) {
	t.Helper()
	old, _ := before.Weights.Tensor(name)
	grown, _ := after.Weights.Tensor(name)
	rows, cols := old.Shape[0], old.Shape[1]
	was, is := make([]float32, old.Len()), make([]float32, grown.Len())
	for _, c := range []struct {
		x   weights.Tensor
		dst []float32
	}{{old, was}, {grown, is}} {
		if err := weights.Float32s(c.x, c.dst); err != nil {
			t.Fatal(err)
		}
	}
	if len(is) != len(was)+3*cols || !slices.Equal(is[:len(was)], was) {
		t.Fatalf("%s: %v became %v", name, old.Shape, grown.Shape)
	}
	for i, token := range []string{"<think>", "</think>", "<|done|>"} {
		ids := before.Tokenizer.IDs(token, false)
		if !text {
			ids = nil
			for id := range rows {
				ids = append(ids, int32(id))
			}
		}
		for c := range cols {
			sum := 0.0
			for _, id := range ids {
				sum += float64(was[int(id)*cols+c])
			}
			if got, want := is[(rows+i)*cols+c], float32(sum/float64(len(ids))); got != want {
				t.Fatalf("%s: row of %s, column %d: %v, the mean is %v", name, token, c, got, want)
			}
		}
	}
}

// TestAddedTokensRefused: tokens whose rows no folder would have, and rows that can't be trained, are refused before a
// step.
func TestAddedTokensRefused(t *testing.T) {
	for _, c := range []struct {
		want string
		edit func(s *Spec)
	}{
		{"tokenizer: the rows of the 3 added tokens in model.embed_tokens.weight are not trained, and the output " +
			"folder would lack them: name lm_head and embed_tokens in lora.modules_to_save, and set " +
			"lora.ensure_weight_tying: true so that head and embeddings stay tied; or train these rows alone by " +
			"lora.trainable_token_indices: [512, 513, 514]", func(*Spec) {}},
		{`or train these rows alone by lora.trainable_token_indices: [512, "lm_head:512", 513, "lm_head:513", 514, ` +
			`"lm_head:514"]`, func(s *Spec) {
			s.BaseModel, s.LoRA.TrainableTokenIndices = untiedStories(t), []string{"512", "513", "514"}
		}},
		{"tokenizer: the rows of the 3 added tokens in model.embed_tokens.weight are not trained",
			func(s *Spec) { s.LoRA.TrainableTokenIndices = []string{"512", "513"} }},
		{"lora.trainable_token_indices: 515 is no token of the model, whose vocabulary has the numbers 0 to 514",
			func(s *Spec) { s.LoRA.TrainableTokenIndices = []string{"512", "515"} }},
		{"lora.trainable_token_indices: it names rows of embeddings that the model ties to its head, and " +
			"lora.modules_to_save [lm_head] trains one of the two in whole: leave one of the keys out", func(s *Spec) {
			s.LoRA.TrainableTokenIndices, s.LoRA.ModulesToSave = []string{"7"}, []string{"lm_head"}
		}},
		{"lora.trainable_token_indices: lm_head names the tokens [8] and embed_tokens [7], and the model ties the " +
			"two, whose rows are one: name the same tokens, or those of embed_tokens alone",
			func(s *Spec) { s.LoRA.TrainableTokenIndices = []string{"7", "lm_head:8"} }},
		{"tokenizer: the rows of the 3 added tokens in lm_head.weight are not trained",
			func(s *Spec) { s.LoRA.ModulesToSave = []string{"embed_tokens"} }},
		{`tokenizer.add_tokens: "<s>" is in the vocabulary of the base model already, as token 1`,
			func(s *Spec) { s.Tokenizer.AddTokens = []string{"<s>"} }},
		{"name lm_head and embed_tokens in full.train, or leave full.train out", func(s *Spec) {
			s.Adapter, s.Quantization, s.Full.Train = "full", nil, []string{"layers.1"}
		}},
	} {
		s := tokensSpec(t, 2)
		c.edit(&s)
		if _, err := Start(context.Background(), s, Env{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
}

// TestAddedTokensFull: a run of all weights writes a model with the added tokens.
func TestAddedTokensFull(t *testing.T) {
	s := tokensSpec(t, 3)
	s.Adapter, s.Quantization = "full", nil
	result := mustStart(t, s, oneWorker)
	o := s
	o.BaseModel, o.Adapter, o.Tokenizer.AddTokens, o.Tokenizer.AddSpecialTokens = s.OutputDir, "lora", nil, nil
	report, err := infer.Evaluate(context.Background(), o.Evaluation(""), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	golden.Near(t, "loss of an evaluation", report.Loss, *result.EvalLoss, 1e-6**result.EvalLoss)
}
