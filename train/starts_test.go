package train

import (
	"bytes"
	"context"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/gradcheck"
)

// startSpec is a run whose adapter starts as a part of the base model.
func startSpec(t *testing.T, steps int, start string, quantised bool) Spec {
	s := testSpec(t, steps)
	s.LoRA.InitLoRAWeights = start
	if !quantised {
		s.Adapter, s.Quantization = "lora", nil
	}
	return s
}

// TestStartedRunResumes: a run that starts as a part of the base model resumes to the same bytes, whose base weights
// are made anew from the checkpoint.
func TestStartedRunResumes(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(s *Spec){
		"pissa": func(s *Spec) { s.LoRA.InitLoRAWeights = "pissa" },
		"pissa, as it is": func(s *Spec) {
			s.LoRA.InitLoRAWeights, s.Adapter,
				s.Quantization = "pissa", "lora", nil
		},
		"pissa_niter, rsLoRA": func(s *Spec) { s.LoRA.InitLoRAWeights, s.LoRA.UseRSLoRA = "pissa_niter_2", true },
		"gaussian":            func(s *Spec) { s.LoRA.InitLoRAWeights = "gaussian" },
		"eva": func(s *Spec) {
			s.LoRA.InitLoRAWeights, s.LoRA.R, s.LoRA.TargetModules = "eva", 2, adapter.Targets{"q_proj", "v_proj"}
		},
		"loftq":              func(s *Spec) { s.LoRA.InitLoRAWeights = "loftq" },
		"loftq_iter, rsLoRA": func(s *Spec) { s.LoRA.InitLoRAWeights, s.LoRA.UseRSLoRA = "loftq_iter_3", true },
		"olora, patterns": func(s *Spec) {
			s.LoRA.InitLoRAWeights, s.LoRA.RankPattern, s.LoRA.AlphaPattern = "olora", map[string]int{"q_proj": 3},
				map[string]float64{"v_proj": 5}
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := testSpec(t, 8)
			edit(&whole)
			r := mustStart(t, whole, Env{})
			if r.LastLoss > 0.95*r.FirstLoss {
				t.Errorf("the loss went from %v to %v", r.FirstLoss, r.LastLoss)
			}
			parts := whole
			parts.OutputDir = filepath.Join(t.TempDir(), "run")
			stop := stopping(3)
			mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
			parts.Training.Resume = "auto"
			again := mustStart(t, parts, Env{})
			for i, loss := range r.Losses {
				if again.Losses[i] != loss {
					t.Errorf("loss %d is %v, resumed %v", i+1, loss, again.Losses[i])
				}
			}
			if !bytes.Equal(golden.ReadFile(t, whole.OutputDir, adapter.WeightsFile),
				golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)) {
				t.Error("the resumed run trains another adapter")
			}
			parts.LoRA.InitLoRAWeights = "pissa_niter_7"
			if name == "gaussian" || name == "loftq" || name == "eva" { // their adapters have no second half
				parts.LoRA.InitLoRAWeights = ""
			}
			parts.Training.MaxSteps = 9
			if _, err := Start(context.Background(), parts, Env{}); err == nil ||
				!strings.Contains(err.Error(), "lora.init_lora_weights was ") {
				t.Errorf("resumed with another start: %v", err)
			}
		})
	}
}

// TestStartedRunBeginsAtTheBase: before the first step the model computes what the base model does, and what is saved
// after the last does the same to the base model as the checkpoint has it, beside it and merged.
func TestStartedRunBeginsAtTheBase(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, start := range []string{"", "gaussian", "pissa", "pissa_niter_4", "olora"} {
		s := startSpec(t, 4, start, false)
		s.Dataset.ValSplit, s.Training.EvalOnStart = 0.05, true
		r := mustStart(t, s, Env{})
		base, err := infer.Evaluate(ctx, s.Evaluation(""), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		beside, err := infer.Evaluate(ctx, s.Evaluation(s.OutputDir), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if d := math.Abs(*r.EvalBefore-base.Loss) / base.Loss; !(d <= 1e-6) {
			t.Errorf("%q begins with the loss %v, the base model has %v", start, *r.EvalBefore, base.Loss)
		}
		if d := math.Abs(*r.EvalLoss-beside.Loss) / beside.Loss; !(d <= 2e-6) ||
			math.Abs(base.Loss-beside.Loss) < 0.01 {
			t.Errorf("%q ends with the loss %v, the saved adapter has %v, the base model %v", start, *r.EvalLoss,
				beside.Loss, base.Loss)
		}
		saved, err := adapter.Open(s.OutputDir)
		if err != nil {
			t.Fatal(err)
		}
		lora := start == "" || start == "gaussian"
		if want := map[bool]int{true: s.LoRA.R, false: 2 * s.LoRA.R}[lora]; saved.Config.R != want ||
			!reflect.DeepEqual(saved.Config.Own, adapter.LoRASettings{}) {
			t.Errorf("%q is saved with rank %d and start %q, want rank %d", start, saved.Config.R,
				saved.Config.Own, want)
		}
		if err := saved.Close(); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "merged")
		if _, err := export.Merge(ctx, export.MergeOptions{Model: s.BaseModel, Adapters: export.One(s.OutputDir),
			Out: out}, session.Env{}); err != nil {
			t.Fatal(err)
		}
		s.BaseModel = out
		merged, err := infer.Evaluate(ctx, s.Evaluation(""), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if d := math.Abs(merged.Loss-beside.Loss) / beside.Loss; !(d <= 1e-6) {
			t.Errorf("%q: the merged model has the loss %v, the adapter beside it %v", start, merged.Loss, beside.Loss)
		}
	}
}

// TestStartedRunOverNF4: what is trained over the rest of the base model in NF4 is evaluated over the same.
func TestStartedRunOverNF4(t *testing.T) {
	t.Parallel()
	for _, start := range []string{"pissa", "loftq_iter_2"} {
		startedOverNF4(t, startSpec(t, 4, start, true))
	}
}

func startedOverNF4(t *testing.T, s Spec) {
	t.Helper()
	s.Dataset.ValSplit = 0.05
	r := mustStart(t, s, Env{})
	e, err := infer.Evaluate(context.Background(), s.Evaluation(s.OutputDir), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if d := math.Abs(*r.EvalLoss-e.Loss) / e.Loss; !(d <= 1e-6) {
		t.Errorf("the run ends with the loss %v, its adapter has %v", *r.EvalLoss, e.Loss)
	}
	s.LoRA.InitLoRAWeights = "" // over the base model in NF4
	if e, err = infer.Evaluate(context.Background(), s.Evaluation(s.OutputDir), session.Env{}); err != nil {
		t.Fatal(err)
	}
	if d := math.Abs(*r.EvalLoss-e.Loss) / e.Loss; d < 1e-5 || d > 0.1 {
		t.Errorf("over another base the loss is %v, as a part of this one %v", e.Loss, *r.EvalLoss)
	}
}

// TestGradCheckOfStarts: the gradients of a run whose base model lost its start, quantised or not.
func TestGradCheckOfStarts(t *testing.T) {
	for _, quantised := range []bool{false, true} {
		r, err := GradCheck(t.Context(), startSpec(t, 1, "pissa", quantised), Env{},
			gradcheck.Options{Tokens: 48, Layers: 2})
		if err != nil || !r.OK || r.Failed > 0 {
			t.Errorf("quantised %v: %+v, %v", quantised, r, err)
		}
	}
}

// TestStartsThatDoNotFit are refused, those of the configuration before anything is read.
func TestStartsThatDoNotFit(t *testing.T) {
	start := func(name string, edit ...func(s *Spec)) func(s *Spec) {
		return func(s *Spec) {
			s.LoRA.InitLoRAWeights = name
			for _, e := range edit {
				e(s)
			}
		}
	}
	for want, edit := range map[string]func(s *Spec){
		`lora.init_lora_weights: "pisa" is not one of eva, gaussian, loftq, loftq_iter_N, olora, pissa, pissa_niter_N, ` +
			`where N is a number up to 999`: start("pisa"),
		`lora.init_lora_weights: "pissa_niter_N" is not one of`:       start("pissa_niter_N"),
		`lora.init_lora_weights: "pissa_niter_1000" is not one of`:    start("pissa_niter_1000"),
		"lora.init_lora_weights: loftq_iter_0 takes no step; write 1": start("loftq_iter_0"),
		"lora.init_lora_weights: pissa does not go with lora.init_from": start("pissa",
			func(s *Spec) { s.LoRA.InitFrom = "x" }),
		"lora.init_lora_weights: loftq does not go with lora.init_from": start("loftq",
			func(s *Spec) { s.LoRA.InitFrom = "x" }),
		"lora.init_lora_weights: pissa goes up to rank 2048, not 2049": start("pissa",
			func(s *Spec) { s.LoRA.R = 2049 }),
		"lora.init_lora_weights: pissa of rank 40 does not fit model.layers.0.self_attn.k_proj, which has 64 " +
			"inputs and 32 " +
			"outputs: lower lora.r": start("pissa", func(s *Spec) { s.LoRA.R = 40 }),
		"lora.init_lora_weights: eva of rank 65 does not fit model.layers.0.self_attn.q_proj, which has 64 inputs: " +
			"lower lora.r": start("eva", func(s *Spec) { s.LoRA.R = 65 }),
		"lora.init_lora_weights: eva does not go with lora.init_from": start("eva",
			func(s *Spec) { s.LoRA.InitFrom = "x" }),
		"lora.init_lora_weights: eva reads the first batches before training does": start("eva",
			func(s *Spec) { s.Dataset.Streaming = true }),
		"lora.init_lora_weights: loftq starts from the rounding of quantised base weights, and that of " +
			"model.layers.0.mlp.down_proj has none; write adapter: qlora": start("loftq",
			func(s *Spec) { s.Adapter, s.Quantization = "lora", nil }),
	} {
		s := testSpec(t, 2)
		edit(&s)
		var err error
		if problems := s.LoRA.Validate(); problems != nil {
			err = problems[0]
		} else {
			_, err = Start(context.Background(), s, Env{})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
