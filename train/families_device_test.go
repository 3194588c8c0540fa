//go:build gpu

package train

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/step"
)

// rowGradients are the gradients of each row of a small model's curve, with add added to every id, one after the other;
// a step that scales its loss does so by scale.
func rowGradients(t *testing.T, on graph.Machine, m golden.FamilyModel, scheme *quant.Config, add []int32,
	scale float64) (all []float64) {
	t.Helper()
	b, err := session.OpenBase(context.Background(), m.Dir(t), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // the numbers were read
	lora, rows, c := peftConfigOf(t, m.Adapter(t)), m.Runs(t).Curve, Default()
	lora.Dropout, c.LossScale = 0, scale
	T := len(rows.Rows[0])
	ts := newTestStepOn(t, on, b, network(t, b, kernel.F32, scheme, &lora),
		session.Shape{Tokens: T, Sequences: 1, MaxLen: T}, c, m.Adapter(t))
	defer ts.memory.Close() //nolint:errcheck // the numbers were read
	for i := range rows.Rows {
		ids, labels := rows.Rows[i], rows.Labels[i]
		if add != nil {
			ids, labels = shifted(ids, labels, add[i], int32(b.Config.VocabSize))
		}
		ts.set(t, "loss scale", 1/float64(ts.fill(t, ids, labels, T)))
		ts.send(t)
		for _, s := range []string{step.SegmentBegin, step.SegmentMicro} {
			if err := ts.run.Run(s); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range ts.Trained.Params {
			name := "gradient of " + p.Name
			if err := ts.memory.Get(name); err != nil {
				t.Fatal(err)
			}
			x, err := ts.memory.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range numbers(x) {
				all = append(all, v/scale)
			}
		}
	}
	return all
}

// draws are what rowGradients adds to ids for each of the numbers, on which PEFT's own error is known; none: nothing,
// once.
func draws(rows int, numbers []int32) (adds [][]int32) {
	if numbers == nil {
		return [][]int32{nil}
	}
	for _, n := range numbers {
		adds = append(adds, slices.Repeat([]int32{n}, rows))
	}
	return adds
}

// drawnGradients are rowGradients of each of the draws, one behind the other.
func drawnGradients(t *testing.T, on graph.Machine, m golden.FamilyModel, scheme *quant.Config, draws [][]int32,
	scale float64) (all []float64) {
	t.Helper()
	for _, add := range draws {
		all = append(all, rowGradients(t, on, m, scheme, add, scale)...)
	}
	return all
}

// TestGPUFamilyGradients holds bf16's error to 1.5 times PEFT's own for every family, those of fp16 and TF32 to a
// quarter of that and fp32 to the CPU's; over NF4 weights too. These three are held on rows of which they can tell a
// mixture's experts apart: a token that goes to another expert changes a gradient as much in fp16 as in bf16, only less
// often.
func TestGPUFamilyGradients(t *testing.T) {
	gputest.Need(t)
	nf4 := quant.Default()
	for _, m := range golden.FamilyModels(t) {
		for name, scheme := range map[string]*quant.Config{"floats": nil, "nf4": &nf4} {
			clear := m.Runs(t).Clear.Floats.Add
			if scheme != nil {
				clear = m.Runs(t).Clear.NF4.Add
			}
			ofPEFT := draws(len(m.Runs(t).Curve.Rows), m.Runs(t).BF16.Add)
			wantOfPEFT := drawnGradients(t, graph.NewCPU(2), m, scheme, ofPEFT, 1)
			wantClear := rowGradients(t, graph.NewCPU(2), m, scheme, clear, 1)
			for _, p := range gpuPrecisions {
				add, want := [][]int32{clear}, wantClear
				if p == kernel.PrecisionBF16 {
					add, want = ofPEFT, wantOfPEFT
				}
				on, err := graph.NewGPU(0, 0, p)
				if err != nil {
					t.Fatal(err)
				}
				scale := 1.0
				if p.Scaled() {
					scale = Default().LossScale
				}
				got := drawnGradients(t, on, m, scheme, add, scale)
				// as a run does.
				for p.Scaled() && slices.ContainsFunc(got, func(v float64) bool {
					return math.IsNaN(v) ||
						math.IsInf(v, 0)
				}) && scale > 1 {
					scale /= 2
					got = drawnGradients(t, on, m, scheme, add, scale)
				}
				var e errorNorm
				e.add(got, want)
				on.Close() //nolint:errcheck // the numbers were read
				limit := worse * m.Runs(t).BF16.Gradient
				if scheme != nil {
					limit = max(limit, worse*m.Runs(t).BF16.GradientNF4)
				}
				switch p {
				case kernel.PrecisionFP16, kernel.PrecisionTF32:
					limit /= 4
				case kernel.PrecisionFP32:
					limit = 1e-4
				}
				t.Logf("%s, %s, %v: gradients off by %.3g, limit %.3g; loss scale %g", m.Name, name, p,
					e.relative(), limit, scale)
				if part := len(got) / len(add); len(add) > 1 {
					for i := range add {
						var of errorNorm
						of.add(got[i*part:][:part], want[i*part:][:part])
						t.Logf("ids plus %d: gradients off by %.3g", add[i][0], of.relative())
					}
				}
				if !(e.relative() <= limit) {
					t.Errorf("%s, %s, %v: gradients off by %.3g, limit %.3g; loss scale %g", m.Name, name, p,
						e.relative(), limit, scale)
				}
			}
		}
	}
}

// TestGPUFamiliesTrain: a QLoRA run of all linear layers on the GPU follows the CPU's, and is the same a second time.
func TestGPUFamiliesTrain(t *testing.T) {
	gputest.Need(t)
	for _, m := range golden.FamilyModels(t) {
		trainsAsOnCPU(t, m.Name, func() Spec { return familySpec(t, m) })
	}
}

// TestGPUExpertsAsLayers does the same for gpt_oss in the layout of Unsloth's folders, in 4 bits and not.
func TestGPUExpertsAsLayers(t *testing.T) {
	gputest.Need(t)
	tested := 0
	for _, m := range golden.FamilyModels(t) {
		if m.Folder != "experts" || !strings.HasPrefix(m.Name, "gpt_oss") {
			continue
		}
		tested++
		dir := asLayers(t, m)
		for _, kind := range []string{"lora", "qlora"} {
			trainsAsOnCPU(t, m.Name+", "+kind, func() Spec {
				s := familySpec(t, m)
				s.BaseModel, s.Adapter = dir, kind
				if kind == "lora" {
					s.Quantization = nil
				}
				return s
			})
		}
	}
	if tested == 0 {
		t.Error("no model was trained")
	}
}

// trainsAsOnCPU demands that a run's losses on a GPU are within 5 % of the CPU's in the mean, and its adapter the same
// twice.
func trainsAsOnCPU(t *testing.T, name string, spec func() Spec) {
	t.Helper()
	want := mustStart(t, spec(), Env{})
	var first []byte
	for range 2 {
		s := spec()
		s.Device = "cuda"
		got := mustStart(t, s, Env{})
		var mean float64
		for i, l := range want.Losses {
			mean += math.Abs(got.Losses[i]-l) / l / float64(len(want.Losses))
		}
		t.Logf("%s: losses differ by %.3g in the mean", name, mean)
		if !(mean < 0.05) {
			t.Errorf("%s: losses %v, on the CPU %v", name, got.Losses, want.Losses)
		}
		saved := golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)
		if first != nil && !slices.Equal(first, saved) {
			t.Errorf("%s: a second run trains another adapter", name)
		}
		first = saved
	}
}
