//go:build gpu

package train

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel"
)

// TestGPUExpertCurves: 20 steps of QLoRA over router and experts follow PEFT's; in fp32 as the CPU does. With fewer
// bits a token may be given to another expert than in fp32, so the curve is held in the mean: to 0.02, in bf16 to 1.5
// times what PEFT's own bf16 is off by, both in the mean over all draws, of which single ones differ by a factor of
// four (docs/internals/decisions/0041-draws-of-errors.md).
func TestGPUExpertCurves(t *testing.T) {
	gputest.Need(t)
	for _, m := range expertModels {
		for p, limit := range map[kernel.Precision]float64{kernel.PrecisionFP32: 1e-4, kernel.PrecisionTF32: 0.02,
			kernel.PrecisionBF16: 0, kernel.PrecisionFP16: 0.02} {
			t.Run(m.Name+" "+p.String(), func(t *testing.T) {
				on, err := graph.NewGPU(0, 0, p)
				if err != nil {
					t.Fatal(err)
				}
				defer on.Close() //nolint:errcheck // the numbers were read
				want := m.Runs(t)
				draws := want.Draws[:1]
				if p == kernel.PrecisionBF16 {
					draws, limit = want.Draws, worse*want.BF16.Curve
				}
				var each []float64
				off := 0.0
				for _, d := range draws {
					mean := offCurve(t, on, m, d.Add, d.Loss)
					each, off = append(each, mean), off+mean/float64(len(draws))
				}
				t.Logf("losses differ from PEFT's by %.3g in the mean, limit %.3g; by draw %.3g", off, limit, each)
				if !(off <= limit) {
					t.Errorf("losses differ from PEFT's by %.3g in the mean, limit %.3g", off, limit)
				}
			})
		}
	}
}

// TestGPUExpertsRepeatAndResume: a run with experts learns, holds what its plan says, and gives the same bytes again
// and resumed.
func TestGPUExpertsRepeatAndResume(t *testing.T) {
	gputest.Need(t)
	for _, m := range expertModels {
		a := familySpec(t, m)
		a.Device = "cuda"
		plan, err := PlanRun(context.Background(), a, Env{})
		if err != nil {
			t.Fatal(err)
		}
		r := mustStart(t, a, Env{})
		if _, _, fall := LossFall(r.Losses); !(fall > 0.02) || r.HeldBytes != plan.TotalBytes {
			t.Errorf("%s: the loss falls by %.3f; %d bytes held, %d planned", m.Name, fall,
				r.HeldBytes, plan.TotalBytes)
		}
		first := golden.ReadFile(t, a.OutputDir, adapter.WeightsFile)
		again, parts := a, a
		again.OutputDir, parts.OutputDir = filepath.Join(t.TempDir(), "again"), filepath.Join(t.TempDir(), "parts")
		mustStart(t, again, Env{})
		stop := stopping(5)
		mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
		parts.Training.Resume = "auto"
		mustStart(t, parts, Env{})
		for _, dir := range []string{again.OutputDir, parts.OutputDir} {
			if !bytes.Equal(first, golden.ReadFile(t, dir, adapter.WeightsFile)) {
				t.Errorf("%s: %s has another adapter", m.Name, filepath.Base(dir))
			}
		}
	}
}
