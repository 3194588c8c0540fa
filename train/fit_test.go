package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// twoWorkers: scratch memory on a CPU grows with the threads.
var twoWorkers = Env{Env: session.Env{Workers: 2}}

func planIn(vram int64, s Spec) (PlanReport, error) {
	s.VRAM = fmt.Sprint(vram)
	return PlanRun(context.Background(), s, twoWorkers)
}

// leanest is the plan with the fewest bytes that the planner finds without touching the loss.
func leanest(t *testing.T, s Spec) PlanReport {
	t.Helper()
	s.Training.GradientCheckpointing = "full"
	r, err := PlanRun(context.Background(), s, twoWorkers)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPlanSaysWhatDidNotFit: the faster layouts are listed in their order, each larger than the limit.
func TestPlanSaysWhatDidNotFit(t *testing.T) {
	s := testSpec(t, 4)
	s.Device = "cpu"
	lean := leanest(t, s)
	r, err := planIn(lean.TotalBytes, s)
	if err != nil {
		t.Fatal(err)
	}
	if r.Checkpointing != "full" || r.TotalBytes != lean.TotalBytes || r.Limit != lean.TotalBytes || len(r.Tried) != 2 {
		t.Fatalf("chose %q holding %d of %d bytes after %v", r.Checkpointing, r.TotalBytes, r.Limit, r.Tried)
	}
	text := r.String()
	for i, layout := range []string{"gradient_checkpointing none", "gradient_checkpointing selective"} {
		if r.Tried[i].Way != layout || r.Tried[i].Bytes <= r.Limit {
			t.Errorf("rejected layout %d is %+v, want %s and more than %d bytes", i, r.Tried[i], layout, r.Limit)
		}
		if want := fmt.Sprintf("does not fit: %s: %s", layout,
			session.FormatBytes(r.Tried[i].Bytes)); !strings.Contains(text, want) {
			t.Errorf("the plan does not say %q:\n%s", want, text)
		}
	}
}

// wideVocabulary is the small model with so many words that the logits are most of a step's memory.
func wideVocabulary(t *testing.T) string {
	t.Helper()
	const words = 8192
	from, to := golden.StoriesDir(t), t.TempDir()
	set, err := weights.OpenDir(from)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close() //nolint:errcheck // read only
	var all []weights.Tensor
	for _, name := range set.Names() {
		x, _ := set.Tensor(name)
		if name == "model.embed_tokens.weight" {
			old := make([]float32, x.Shape[0]*x.Shape[1])
			if err := weights.Float32s(x, old); err != nil {
				t.Fatal(err)
			}
			v := make([]float32, words*x.Shape[1])
			for i := range v {
				v[i] = old[i%len(old)] * (1 - float32(i/len(old))/32)
			}
			if x, err = weights.FromFloat32s(name, weights.F32, []int{words, x.Shape[1]}, v); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, x)
	}
	if err := weights.Write(filepath.Join(to, weights.SingleFile), all, nil); err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(string(golden.ReadFile(t, from, "config.json")), `"vocab_size": 512`,
		fmt.Sprintf(`"vocab_size": %d`, words), 1)
	for name, data := range map[string][]byte{"config.json": []byte(config),
		"tokenizer.json": golden.ReadFile(t, from, "tokenizer.json")} {
		if err := os.WriteFile(filepath.Join(to, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// TestLossChunkIsTheLastResort: below the leanest layout the loss goes over fewer rows at a time, and learns the same.
func TestLossChunkIsTheLastResort(t *testing.T) {
	s := testSpec(t, 4)
	s.BaseModel, s.Device = wideVocabulary(t), "cpu"
	lean := leanest(t, s)
	r, err := planIn(lean.TotalBytes-1, s)
	if err != nil {
		t.Fatal(err)
	}
	if r.TotalBytes >= lean.TotalBytes || !strings.Contains(r.String(), "rows at a time") {
		t.Fatalf("a byte less than %d: %v", lean.TotalBytes, r)
	}
	whole := mustStart(t, s, twoWorkers)
	s.VRAM, s.OutputDir = fmt.Sprint(lean.TotalBytes-1), s.OutputDir+" in less"
	less := mustStart(t, s, twoWorkers)
	if less.HeldBytes != r.TotalBytes {
		t.Errorf("the run holds %d bytes, the plan says %d", less.HeldBytes, r.TotalBytes)
	}
	for i := range whole.Losses {
		golden.Near(t, "loss", less.Losses[i], whole.Losses[i], 1e-5)
	}
}

// TestRefusalNamesWhatFits: what the error advises is accepted.
func TestRefusalNamesWhatFits(t *testing.T) {
	t.Parallel()
	base := testSpec(t, 4)
	base.Device = "cpu"
	base.Training.BatchSize, base.Dataset.MaxLength, base.Dataset.ValSplit = 8, 256, 0.05
	lean := leanest(t, base)
	for _, c := range []struct {
		name, want string
		vram       int64
		change     func(*Spec)
	}{
		{"a fixed layout", `gradient_checkpointing: (auto) would fit`, lean.TotalBytes,
			func(s *Spec) { s.Training.GradientCheckpointing = "none" }},
		{"dequantised weights", `gradient_checkpointing: (auto) with training.dequantised_weights: auto would fit`,
			lean.TotalBytes, func(s *Spec) { s.Training.DequantisedWeights = "always" }},
		{"rows", `training.batch_size: (\d+) would fit, in .* \(with gradient_accumulation_steps: \d+`,
			lean.TotalBytes * 6 / 10, func(*Spec) {}},
		{"length", `dataset.max_length: (\d+) and training.batch_size: 1 would fit`,
			lean.TotalBytes / 8, func(*Spec) {}},
		{"nothing", `no batch is small enough: weights, adapter and optimizer alone take .*; use a model with fewer parameters$`, 500000, func(*Spec) {}},
	} {
		s := base
		c.change(&s)
		_, err := planIn(c.vram, s)
		m := regexp.MustCompile(c.want).FindStringSubmatch(fmt.Sprint(err))
		if !errors.Is(err, session.ErrDoesNotFit) || m == nil {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
			continue
		}
		if len(m) < 2 {
			continue
		}
		switch n, _ := strconv.Atoi(m[1]); {
		case m[1] == "auto":
			s.Training.GradientCheckpointing, s.Training.DequantisedWeights = "auto", "auto"
		case c.name == "rows":
			s.Training.BatchSize = n
		default:
			s.Training.BatchSize, s.Dataset.MaxLength = 1, n
		}
		if _, err := planIn(c.vram, s); err != nil {
			t.Errorf("%s: the advice %q: %v", c.name, m[0], err)
		}
	}
}

// TestRefusalNamesTheOptimizer: an adapter whose moments fit in 8 bits alone, with the batch as it is and row by row.
func TestRefusalNamesTheOptimizer(t *testing.T) {
	for _, c := range []struct {
		batch, rank, rows int
		want              string
	}{{2, 128, 2, ""}, {8, 64, 1, " and training.batch_size: 1"}} {
		s := testSpec(t, 4)
		s.Device, s.Dataset.MaxLength, s.LoRA.R, s.Training.Optimizer = "cpu", 256, c.rank, "adamw_8bit"
		s.Training.BatchSize, s.Training.GradientAccumulationSteps = c.rows, c.batch/c.rows
		lean := leanest(t, s)
		asked := s
		asked.Training.BatchSize, asked.Training.GradientAccumulationSteps,
			asked.Training.Optimizer = c.batch, 1, "adamw"
		_, err := planIn(lean.TotalBytes, asked)
		if !errors.Is(err, session.ErrDoesNotFit) || !strings.Contains(fmt.Sprint(err),
			"; training.optimizer: adamw_8bit"+c.want+" would fit, in as little as ") {
			t.Errorf("%+v in %d bytes: %v", c, lean.TotalBytes, err)
		}
		if _, err := planIn(lean.TotalBytes, s); err != nil {
			t.Errorf("%+v: the advice: %v", c, err)
		}
	}
}

// TestFewerLayersAreRecomputed: between two layouts only as many layers as must are recomputed. The adapter stays
// the same byte for byte.
func TestFewerLayersAreRecomputed(t *testing.T) { fewerLayersAreRecomputed(t, testSpec(t, 2)) }

func fewerLayersAreRecomputed(t *testing.T, s Spec) {
	t.Helper()
	s.LoRA.Dropout, s.Training.DequantisedWeights = 0.1, "never"
	s.Training.GradientCheckpointing = "none"
	whole := mustStart(t, s, twoWorkers)
	want := golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)
	lean := leanest(t, s)
	s.Training.GradientCheckpointing = "auto"
	partly, last := 0, int64(0)
	for i := range 8 {
		vram := lean.TotalBytes + (whole.HeldBytes-lean.TotalBytes)*int64(i)/8
		r, err := planIn(vram, s)
		if err != nil {
			t.Fatal(err)
		}
		if r.TotalBytes > vram || r.TotalBytes < last {
			t.Errorf("in %d bytes the plan holds %d, in less %d", vram, r.TotalBytes, last)
		}
		last = r.TotalBytes
		if !strings.Contains(r.String(), "for the others") {
			continue
		}
		partly++
		in := s
		in.VRAM, in.OutputDir = fmt.Sprint(vram), filepath.Join(t.TempDir(), "run")
		if run := mustStart(t, in, twoWorkers); run.HeldBytes != r.TotalBytes {
			t.Errorf("the run holds %d bytes, the plan says %d", run.HeldBytes, r.TotalBytes)
		}
		if !bytes.Equal(want, golden.ReadFile(t, in.OutputDir, adapter.WeightsFile)) {
			t.Errorf("in %d bytes it trains another adapter: %v", vram, r)
		}
	}
	if partly < 3 {
		t.Errorf("%d of 8 plans recompute a part of the layers", partly)
	}
}
