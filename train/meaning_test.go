package train

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/quant"
)

// otherwise are the keys of the configuration that meanings does not list, and why.
var otherwise = map[string]string{
	"base_model":                      "compared by the weights' fingerprint",
	"dataset.path":                    "compared by the rows' hash",
	"dataset.format":                  "compared by the rows' hash",
	"dataset.max_length":              "compared by the rows' hash",
	"dataset.val_split":               "compared by the rows' hash",
	"dataset.train_on_prompt":         "compared by the rows' hash",
	"dataset.fields":                  "compared by the rows' hash",
	"dataset.separator":               "compared by the rows' hash",
	"dataset.on_truncated":            "compared by the rows' hash",
	"dataset.chat_template":           "compared by the rows' hash",
	"dataset.as_chat":                 "compared by the rows' hash",
	"dataset.system":                  "compared by the rows' hash",
	"dataset.train_on":                "compared by the rows' hash",
	"dataset.roles_to_train":          "compared by the rows' hash",
	"dataset.train_reasoning":         "compared by the rows' hash",
	"dataset.train_tool_calls":        "compared by the rows' hash",
	"dataset.split_turns":             "compared by the rows' hash",
	"dataset.allow_special":           "compared by the rows' hash",
	"dataset.text_by":                 "compared by the rows' hash",
	"dataset.sources":                 "compared by the rows' hash",
	"dataset.streaming":               "compared by the loader's cursor",
	"dataset.shuffle":                 "compared by the loader's hash",
	"dataset.packing":                 "compared by the loader's hash",
	"dataset.pad_to":                  "compared by the loader's hash",
	"training.batch_size":             "compared by the loader's hash",
	"lora.r":                          "compared by the tensors' shapes",
	"lora.target_modules":             "compared by the tensors' names",
	"lora.target_parameters":          "compared by the tensors' names",
	"lora.rank_pattern":               "compared by the tensors' shapes",
	"lora.alpha":                      "compared by the layers' scales",
	"lora.use_rslora":                 "compared by the layers' scales",
	"lora.alpha_pattern":              "compared by the layers' scales",
	"training.max_steps":              "listed as steps",
	"training.epochs":                 "listed as steps",
	"training.loss_scale":             "a checkpoint has the loss scale of its step",
	"lora.init_from":                  "a checkpoint has the adapter of its step",
	"dataset.val_path":                "changes no step",
	"dataset.val_sources":             "changes no step",
	"dataset.cache_dir":               "changes no number",
	"training.gradient_checkpointing": "changes no number",
	"training.dequantised_weights":    "changes no number",
	"training.base_sharding":          "changes no number",
	"training.eval_steps":             "changes no step",
	"training.eval_on_start":          "changes no step",
	"training.sample_prompts":         "changes no step",
	"training.sample_max_tokens":      "changes no step",
	"training.eval_tasks":             "changes no step",
	"training.save_steps":             "changes no number",
	"training.saves_per_epoch":        "changes no number",
	"training.evals_per_epoch":        "changes no step",
	"training.save_total_limit":       "changes no number",
	"training.logging_steps":          "changes no number of a step",
	"training.grad_norm_steps":        "changes no number of a step",
	"training.allow_zero_gradients":   "changes no number",
	"training.on_oom":                 "changes no number",
	"training.strict":                 "changes no number",
	"training.device_timeout":         "changes no number",
	"training.ddp_timeout":            "changes no number",
	"training.report_to":              "changes no number",
	"tracking.experiment":             "changes no number",
	"tracking.run_name":               "changes no number",
	"tracking.tags":                   "changes no number",
	"tracking.mlflow_url":             "changes no number",
	"tracking.webhook_url":            "changes no number",
	"tracking.metrics_file":           "changes no number",
	"tracking.metrics_addr":           "changes no number",
	"training.resume":                 "changes no number",
	"expect.loss_decrease":            "changes no number",
	"expect.eval_loss_decrease":       "changes no number",
	"expect.eval_loss_max":            "changes no number",
	"expect.reference":                "changes no number",
	"expect.max_vram":                 "changes no number",
	"output_dir":                      "changes no number",
	"device":                          "where it runs",
	"devices":                         "where it runs; the micro-batches of a step over all of them are listed",
	"training.global_batch_size":      "listed as training.gradient_accumulation_steps",
	"vram":                            "where it runs",
}

// keysOf are the keys of a section and of those within.
func keysOf(prefix string, t reflect.Type) []string {
	var keys []string
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case name == "-" || name == "":
		case inner.Kind() == reflect.Struct:
			keys = append(keys, keysOf(prefix+name+".", inner)...)
		default:
			keys = append(keys, prefix+name)
		}
	}
	return keys
}

// TestEveryKeyHasAMeaning: what a resumed run does about a key is decided for all of them.
func TestEveryKeyHasAMeaning(t *testing.T) {
	listed := map[string]bool{}
	for _, m := range meanings {
		listed[m.key] = true
	}
	keys := keysOf("", reflect.TypeFor[Spec]())
	for _, k := range keys {
		if listed[k] == (otherwise[k] != "") {
			t.Errorf("%s: among the meanings %v, stated otherwise %q; want one of both", k, listed[k], otherwise[k])
		}
	}
	for k := range listed {
		if k != "steps" && !slices.Contains(keys, k) {
			t.Errorf("meanings: %s is no key of the configuration", k)
		}
	}
	for k := range otherwise {
		if !slices.Contains(keys, k) {
			t.Errorf("%s is no key of the configuration", k)
		}
	}
}

// TestResumeWithOtherValues: what makes another run of it is refused, what steers the steps to come is said, and of the
// rest nothing is said.
func TestResumeWithOtherValues(t *testing.T) {
	first := testSpec(t, 2)
	mustStart(t, first, Env{})
	name := filepath.Join(first.OutputDir, "checkpoint-2")
	for what, c := range map[string]struct {
		edit func(s *Spec)
		want string // of the error, or what is said
		said bool
	}{
		"adapter":      {edit: func(s *Spec) { s.Adapter, s.Quantization = "lora", nil }, want: "adapter was qlora, is lora"},
		"double_quant": {edit: func(s *Spec) { s.Quantization.DoubleQuant = false }, want: "quantization.double_quant was true, is false"},
		"seed":         {edit: func(s *Spec) { s.Seed = 7 }, want: "seed was 42, is 7"},
		"optimizer":    {edit: func(s *Spec) { s.Training.Optimizer = "lion" }, want: "training.optimizer was adamw, is lion"},
		"accumulation": {edit: func(s *Spec) { s.Training.GradientAccumulationSteps = 2 }, want: "training.gradient_accumulation_steps was 1, is 2"},
		"two": {edit: func(s *Spec) { s.Seed, s.Training.GradientAccumulationSteps = 7, 2 },
			want: "seed was 42, is 7; training.gradient_accumulation_steps was 1, is 2"},
		"learning_rate": {edit: func(s *Spec) { s.Training.LearningRate = 5e-4 }, said: true, want: "training.learning_rate was 0.001 up to step 2, is 0.0005 from here on"},
		"weight_decay":  {edit: func(s *Spec) { s.Training.WeightDecay = 0.5 }, said: true, want: "training.weight_decay was 0.01 up to step 2, is 0.5 from here on"},
		"dropout":       {edit: func(s *Spec) { s.LoRA.Dropout = 0.1 }, said: true, want: "lora.dropout was 0 up to step 2, is 0.1 from here on"},
		"on_nonfinite":  {edit: func(s *Spec) { s.Training.OnNonFinite = "skip" }, said: true, want: "training.on_nonfinite was stop up to step 2, is skip from here on"},
		"max_steps":     {edit: func(s *Spec) { s.Training.MaxSteps = 4 }, said: true, want: "steps was 2 up to step 2, is 4 from here on"},
		"no number": {said: true, edit: func(s *Spec) {
			s.Training.SaveSteps, s.Training.LoggingSteps, s.Training.SaveTotalLimit, s.VRAM = 1, 2, 5, "1GiB"
			s.Training.GradientCheckpointing, s.Training.DequantisedWeights, s.Expect.LossDecrease = "full", "always", 0
		}},
	} {
		t.Run(what, func(t *testing.T) {
			s, q := first, quant.Default()
			s.Training.MaxSteps, s.Quantization = 3, &q
			s.Training.Resume, s.OutputDir = name, filepath.Join(t.TempDir(), "run")
			if what == "max_steps" {
				s.Training.MaxSteps = 2
			}
			c.edit(&s)
			var said []string
			env := Env{}
			env.Log = func(line string) {
				if strings.Contains(line, " up to step ") && (what == "max_steps" || !strings.HasPrefix(line, "steps was 2 ")) {
					said = append(said, line)
				}
			}
			_, err := Start(context.Background(), s, env)
			if c.said {
				if err != nil || strings.Join(said, "\n") != c.want {
					t.Errorf("said %q, %v\nwant %q", said, err, c.want)
				}
				return
			}
			want := "resume from " + name + ": it is of another run: " + c.want + "; give the run its old configuration back, or choose another output_dir for a new one"
			if err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if exists(s.OutputDir, adapter.WeightsFile) || exists(s.OutputDir, MetricsFile) {
				t.Error("something was written")
			}
		})
	}
}
