package train

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/replay"
)

// sharing is a run of which so many ranks share each row, in groups of them side by side.
func sharing(t testing.TB, s Spec, size, groups int) Spec {
	t.Helper()
	s = over(t, s, groups)
	s.Training.ContextParallelSize, s.Devices = size, fmt.Sprint(size*groups)
	return s
}

// roundings is how far a run whose rows are shared is from one on one rank: its losses, the norms of the first step's
// gradients, and the adapter's B, which begins at zero.
func roundings(t testing.TB, what, want, got string, a, b Result) (loss, norm, moved float64) {
	t.Helper()
	if a.Steps != b.Steps || a.Tokens != b.Tokens || len(a.Losses) != len(b.Losses) {
		t.Fatalf("%s: %+v, want %+v", what, b, a)
	}
	for i := range a.Losses {
		loss = max(loss, math.Abs(a.Losses[i]-b.Losses[i])/math.Abs(a.Losses[i]))
	}
	x, y := firstNorms(t, want), firstNorms(t, got)
	for name, n := range x {
		norm = max(norm, math.Abs(n-y[name])/n)
	}
	one, many := golden.Open(t, filepath.Join(want, adapter.WeightsFile)),
		golden.Open(t, filepath.Join(got, adapter.WeightsFile))
	var apart, all float64
	for _, name := range one.Names() {
		if !strings.Contains(name, "lora_B") {
			continue
		}
		p, q := one.Floats(name), many.Floats(name)
		for i := range p {
			apart, all = apart+(p[i]-q[i])*(p[i]-q[i]), all+p[i]*p[i]
		}
	}
	return loss, norm, math.Sqrt(apart / all)
}

// firstNorms are the norms of the tensors' gradients in the first step.
func firstNorms(t testing.TB, dir string) map[string]float64 {
	t.Helper()
	var line struct {
		Norms map[string]float64 `json:"tensors"`
	}
	first, _, _ := strings.Cut(string(golden.ReadFile(t, dir, GradNormsFile)), "\n")
	if err := json.Unmarshal([]byte(first), &line); err != nil || len(line.Norms) == 0 {
		t.Fatalf("%.200s: %v", first, err)
	}
	maps.DeleteFunc(line.Norms, func(_ string, n float64) bool { return n == 0 }) // of A, while B is zero
	return line.Norms
}

// TestContextIsOneRank: ranks that share each row's tokens train and evaluate as one rank with all of them. What is
// worked out token by token, and attention, has the same bits; the sums over tokens, of which each rank has a part, are
// rounded otherwise. Groups of ranks side by side are accumulation, byte for byte.
func TestContextIsOneRank(t *testing.T) {
	for name, c := range map[string]struct {
		sizes []int
		edit  func(s *Spec)
	}{
		"lora": {[]int{2, 8}, func(s *Spec) { // 8 heads over 4 key heads
			s.Adapter, s.Quantization, s.Training.GradientCheckpointing = "lora", nil, "full"
		}},
		"packed": {[]int{2, 4}, func(s *Spec) {
			s.Dataset.Packing, s.LoRA.Dropout, s.Training.GradientCheckpointing = true, 0.1, "selective"
		}},
		"evaluated": {[]int{2, 4}, func(s *Spec) {
			s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.EvalOnStart,
				s.Training.BaseSharding = 0.3, 2, true, "always"
			s.Training.SamplePrompts, s.Training.SampleMaxTokens = []string{"Once upon a time"}, 8
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := testSpec(t, 3)
			one.Training.GradientAccumulationSteps, one.Training.BatchSize, one.Training.GradNormSteps = 2, 2, 1
			one.Dataset.Path = fewRows(t, one.Dataset.Path, 7) // the last window of an epoch has one micro-batch
			c.edit(&one)
			alone := one
			alone.Training.BaseSharding = "auto"
			want := mustStart(t, alone, oneWorker)
			for _, size := range c.sizes {
				what := fmt.Sprintf("%d ranks share", size)
				s := sharing(t, one, size, 1)
				got := mustStart(t, s, oneWorker)
				loss, norm, moved := roundings(t, what, one.OutputDir, s.OutputDir, want, got)
				t.Logf("%s: losses differ by %.2g, the first gradients by %.2g, the adapters by %.2g",
					what, loss, norm, moved)
				if got.Losses[0] != want.Losses[0] && math.Abs(got.Losses[0]/want.Losses[0]-1) > 2e-7 || loss > 1e-6 ||
					norm > 1e-6 || moved > 1e-4 {
					t.Errorf("%s: losses %v, want %v", what, got.Losses, want.Losses)
				}
				if want.EvalBefore != nil && *got.EvalBefore != *want.EvalBefore {
					t.Errorf("%s: the evaluation before training is %v, want %v", what,
						*got.EvalBefore, *want.EvalBefore)
				}
				plan, err := PlanRun(context.Background(), s, oneWorker)
				if err != nil || plan.TotalBytes != got.HeldBytes || plan.Context == nil ||
					plan.Context.Devices != size || plan.Context.ReceivedBytes == 0 {
					t.Errorf("%s, and hold %d bytes each; the plan says %d, %+v: %v", what, got.HeldBytes,
						plan.TotalBytes, plan.Context, err)
				}
				if size > 2 {
					continue
				}
				groups := sharing(t, one, size, 2)
				both := mustStart(t, groups, oneWorker)
				sameRun(t, what+", in two groups", s.OutputDir, groups.OutputDir)
				if got.EvalLoss != nil && *got.EvalLoss != *both.EvalLoss {
					t.Errorf("%s, in two groups: evaluation %v, want %v", what, *both.EvalLoss, *got.EvalLoss)
				}
			}
		})
	}
}

// TestContextOfFamilies: the same of every family: windows, soft caps, norms of queries and keys, fused projections,
// rotary tables of long sequences, layers without positions, mixtures of experts. What cannot be shared is refused by
// name.
func TestContextOfFamilies(t *testing.T) {
	t.Parallel()
	refused := func(name string) string {
		if strings.HasSuffix(name, "_balanced") || name == "mixtral_fused" {
			return "the balance of experts (router_aux_loss_coef) is of all tokens of a batch"
		}
		if strings.HasPrefix(name, "qwen3_5") || strings.HasPrefix(name, "qwen3_next") {
			return "linear attention goes over a sequence token by token, which ranks do not share: set " +
				"training.context_parallel_size to 1"
		}
		if strings.HasPrefix(name, "lfm2") {
			return "a short convolution reads the tokens before, which ranks do not share: " +
				"set training.context_parallel_size to 1"
		}
		if strings.HasPrefix(name, "granitemoehybrid") || strings.HasPrefix(name, "nemotron_h") ||
			slices.Contains([]string{"bamba", "falcon_h1"}, name) {
			return "a state-space layer goes over a sequence token by token, which ranks do not share: set " +
				"training.context_parallel_size to 1"
		}
		return ""
	}
	sliced := map[string]bool{} // families of which a model was cut into slices
	for _, m := range golden.FamilyModels(t) {
		t.Run(m.Name, func(t *testing.T) {
			one := familySpec(t, m)
			one.Training.MaxSteps, one.Training.GradNormSteps, one.Dataset.Packing = 2, 1, true
			if len(one.LoRA.TargetParameters) == 0 {
				one.LoRA.Dropout = 0.2
			}
			ranks := 2
			switch m.Name {
			case "ernie4_5_moe", "glm4_moe", "lfm2", "lfm2_moe", "minimax_m2": // of three heads
				ranks = 3
			}
			s := sharing(t, one, ranks, 1)
			if why := refused(m.Name); why != "" {
				if _, err := Start(context.Background(), s, oneWorker); err == nil ||
					!strings.Contains(err.Error(), why) {
					t.Errorf("%v, want %s", err, why)
				}
				return
			}
			want, got := mustStart(t, one, oneWorker), mustStart(t, s, oneWorker)
			loss, norm, moved := roundings(t, m.Name, one.OutputDir, s.OutputDir, want, got)
			t.Logf("losses differ by %.2g, the first gradients by %.2g, the adapters by %.2g", loss, norm, moved)
			if loss > 1e-6 || norm > 1e-6 || moved > 1e-4 {
				t.Errorf("losses %v, want %v", got.Losses, want.Losses)
			}
			var config struct {
				Family string `json:"model_type"`
			}
			golden.JSON(t, filepath.Join(one.BaseModel, "config.json"), &config)
			if sliced[config.Family] {
				return
			}
			sliced[config.Family] = true
			inSlices := sharing(t, one, ranks, 1) // what samples, whose tokens are not shared, has the same slices
			inSlices.Training.BaseSharding, inSlices.Training.SamplePrompts,
				inSlices.Training.SampleMaxTokens = "always", []string{"a b"}, 2
			mustStart(t, inSlices, oneWorker)
			sameRun(t, m.Name+" in slices", s.OutputDir, inSlices.OutputDir)
		})
	}
}

// TestContextRefuses: what does not go together is named, with what would.
func TestContextRefuses(t *testing.T) {
	for want, edit := range map[string]func(s *Spec){
		"training.context_parallel_size: 2 devices share each row, and this run has 1 device: give it a multiple " +
			"of 2 by devices, or set the key to 1": func(s *Spec) {
			s.Training.ContextParallelSize = 2
		},
		"training.context_parallel_size: 2 devices share each row, and this run has 3 devices": func(s *Spec) {
			s.Training.ContextParallelSize, s.Devices = 2, "3"
		},
		"training.context_parallel_size: 3: 8 heads are no whole number for each of 3 ranks; this model takes 1, " +
			"2, 4, 8": func(s *Spec) {
			s.Training.ContextParallelSize, s.Devices = 3, "3"
		},
		"training.global_batch_size: 6 rows are not whole batches of 2 on each of 2 groups of 2 devices: choose a " +
			"multiple of 4": func(s *Spec) {
			s.Training.ContextParallelSize, s.Devices, s.Training.GlobalBatchSize = 2, "4", 6
		},
	} {
		s := testSpec(t, 1)
		edit(&s)
		_, err := Start(context.Background(), s, oneWorker)
		_, perr := PlanRun(context.Background(), s, oneWorker)
		for _, err := range []error{err, perr} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}

// TestResumeOnOtherContext: a run resumes with its rows shared among more ranks or fewer, and says so; a replay of it
// takes as many.
func TestResumeOnOtherContext(t *testing.T) {
	t.Parallel()
	one := testSpec(t, 4)
	one.Training.GradientAccumulationSteps, one.Training.BatchSize, one.Training.GradNormSteps = 2, 2, 1
	want := mustStart(t, one, oneWorker)
	s := sharing(t, one, 2, 1)
	env, stop := oneWorker, stopping(2)
	env.Observers, env.Interrupted = []Observer{stop}, stop.stop
	part := mustStart(t, s, env)
	if !part.Stopped {
		t.Fatal("it was not stopped")
	}
	dir := s.OutputDir
	same := s
	for _, size := range []int{4, 1} { // more, and none
		more := sharing(t, one, size, 1)
		if err := os.CopyFS(more.OutputDir, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		more.Training.Resume = "auto"
		var log []string
		env := oneWorker
		env.Log = func(text string) { log = append(log, text) }
		got := mustStart(t, more, env)
		loss, _, moved := roundings(t, "resumed", one.OutputDir, more.OutputDir, want, got)
		if loss > 1e-6 || moved > 1e-4 {
			t.Errorf("resumed with %d: losses differ by %.2g, adapters by %.2g", size, loss, moved)
		}
		if text := fmt.Sprintf("resumed after step %d: training.context_parallel_size changes from 2 to %d", part.Steps,
			size); !slices.Contains(log, text) {
			t.Errorf("%.3000q does not say %s", log, text)
		}
		m, err := replay.ReadManifest(more.OutputDir)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := Verify(context.Background(), more, oneWorker, m, 4); err != nil || !v.Equal ||
			v.Steps != part.Steps {
			t.Errorf("%+v: %v", v, err)
		}
	}
	same.Training.Resume = "auto"
	mustStart(t, same, oneWorker)
	whole := sharing(t, one, 2, 1)
	mustStart(t, whole, oneWorker)
	sameRun(t, "resumed with as many", whole.OutputDir, dir)
}

// TestContextIsSuggested: where a row does not fit on devices that have whole rows each, and does on as many that share
// it, and what such a plan holds.
func TestContextIsSuggested(t *testing.T) {
	s := testSpec(t, 1)
	s.Training.BatchSize, s.Training.GradientCheckpointing, s.Dataset.MaxLength, s.Dataset.Packing, s.Devices = 1,
		"full", 512, true, "4"
	plan := func(size int) (PlanReport, error) {
		s.Training.ContextParallelSize = size
		return PlanRun(context.Background(), s, oneWorker)
	}
	activations := func(r PlanReport) int64 {
		for _, c := range r.Categories {
			if c.Name == "activations" {
				return c.Bytes
			}
		}
		return 0
	}
	one, err := plan(1)
	if err != nil {
		t.Fatal(err)
	}
	two, err := plan(2)
	if err != nil || activations(two) > activations(one)*6/10 {
		t.Errorf("2 devices that share a row hold %d bytes of activations each, one %d: %v", activations(two),
			activations(one), err)
	}
	if text := two.String(); !strings.Contains(text,
		"context_parallel_size: each of 2 devices has 256 tokens of a micro-batch, and 4 heads of attention over "+
			"all of them") {
		t.Error(text)
	}
	s.VRAM = fmt.Sprint((one.TotalBytes + two.TotalBytes) / 2)
	if _, err := plan(1); err == nil || !strings.Contains(err.Error(),
		"; training.context_parallel_size: 2 would fit, in as little as ") {
		t.Error(err)
	}
	if r, err := plan(2); err != nil || r.TotalBytes != two.TotalBytes {
		t.Errorf("%+v: %v", r, err)
	}
}

// TestSharedRowsEndTogether: where a rank fails while others wait for its heads, all end with its error.
func TestSharedRowsEndTogether(t *testing.T) {
	s := testSpec(t, 6)
	s.Devices, s.Training.ContextParallelSize = "4", 2
	env := oneWorker
	env.Observers = []Observer{failing{at: 2}}
	if r, err := Start(context.Background(), s, env); err == nil ||
		err.Error() != "no space for the plot" || r.Steps != 2 {
		t.Errorf("after step %d: %v", r.Steps, err)
	}
}
