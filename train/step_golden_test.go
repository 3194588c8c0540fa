package train

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/step"
)

func TestGradientsEqualPEFT(t *testing.T) {
	b := stories(t)
	batch := golden.Open(t, golden.Path(t, "lora_grad/batch.safetensors"))
	ids, labels, dims := batch.Ints("input_ids"), batch.Ints("labels"), batch.Shape("input_ids")
	for _, variant := range []string{"lora", "rslora", "lora_qv"} {
		for _, c := range []struct {
			float               kernel.DType
			loss, tensor, norms float64
		}{{kernel.F32, 5e-6, 1e-4, 1e-4}, {kernel.F64, 1e-10, 1e-6, 1e-9}} {
			t.Run(variant+" "+c.float.String(), func(t *testing.T) {
				dir := golden.Path(t, "lora_grad/"+variant)
				cfg := peftConfigOf(t, dir)
				ts := newTestStep(t, b, network(t, b, c.float, nil, &cfg),
					session.Shape{Tokens: len(ids), Sequences: dims[0], MaxLen: dims[1]}, Default(), 2, dir)
				trained := ts.fill(t, ids, labels, dims[1])
				ts.set(t, "loss scale", 1/float64(trained))
				ts.run.Run(step.SegmentBegin)
				ts.run.Run(step.SegmentMicro)

				var want struct {
					Loss  float64            `json:"loss_f64"`
					Norms map[string]float64 `json:"norm_f64"`
				}
				golden.JSON(t, filepath.Join(dir, "grads.json"), &want)
				golden.Near(t, "loss", ts.read(t, ts.Loss)[0], want.Loss, c.loss*want.Loss)
				file := filepath.Join(dir, "grads.safetensors")
				if variant == "rslora" { // here are two layers of five; the norms are of all
					whole := filepath.Join(os.Getenv(golden.Env), "goldens/lora_grad/rslora/grads.safetensors")
					if _, err := os.Stat(whole); err == nil {
						file = whole
					}
				}
				ref := golden.Open(t, file)
				if len(want.Norms) != len(ts.Trained.Params) {
					t.Errorf("%d gradients, want %d", len(ts.Trained.Params), len(want.Norms))
				}
				compared := 0
				for _, p := range ts.Trained.Params {
					x, err := ts.memory.Tensor("gradient of " + p.Name)
					if err != nil {
						t.Fatal(err)
					}
					name := "base_model.model." + p.Name
					got := numbers(x)
					if slices.Contains(ref.Names(), name) {
						compared++
						if d := distance(got, ref.Floats(name)); !(d <= c.tensor) {
							t.Errorf("gradient of %s is off by %.3g, tolerance %.3g", p.Name, d, c.tensor)
						}
					}
					var sum float64
					for _, g := range got {
						sum += g * g
					}
					golden.Near(t, "norm of "+name, math.Sqrt(sum), want.Norms[name], c.norms*want.Norms[name])
				}
				if compared != len(ref.Names()) {
					t.Errorf("%d gradients compared, want %d", compared, len(ref.Names()))
				}
			})
		}
	}
}

func peftConfigOf(t testing.TB, dir string) adapter.Config {
	t.Helper()
	s, err := adapter.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Config
}

type curve struct {
	Loss     []float64 `json:"loss"`
	GradNorm []float64 `json:"grad_norm"`
	LR       []float64 `json:"lr"`
	Trained  []int     `json:"trained_tokens"`
}

// TestCurvesEqualPEFT trains 20 steps as PEFT (and PEFT with bitsandbytes) did.
func TestCurvesEqualPEFT(t *testing.T) {
	t.Parallel()
	b := stories(t)
	batches := golden.Open(t, golden.Path(t, "train/batches.safetensors"))
	ids, labels := batches.Ints("input_ids"), batches.Ints("labels")
	const T, rows, steps = 128, 4, 20
	for _, v := range []struct {
		name  string
		float kernel.DType
		micro int // micro-batches in a step
		loss  float64
		norm  float64
	}{
		{"lora", kernel.F32, 1, 1e-4, 1e-3},
		{"lora_float64", kernel.F64, 1, 1e-9, 1e-9},
		{"lora_accumulate", kernel.F32, 4, 1e-4, 1e-3},
		{"rslora", kernel.F32, 1, 1e-4, 1e-3},
		{"loraplus", kernel.F32, 1, 1e-4, 1e-3},
		{"qlora_nf4", kernel.F32, 1, 1e-4, 1e-3},
		{"qlora_nf4_double", kernel.F32, 1, 1e-4, 1e-3},
	} {
		t.Run(v.name, func(t *testing.T) {
			cfg := peftConfigOf(t, golden.Path(t, "train/init"))
			own := adapter.LoRASettings{UseRSLoRA: v.name == "rslora"}
			if strings.HasPrefix(v.name, "loraplus") {
				own.LoRAPlusLRRatio = 16
			}
			cfg.Own = own
			c := Default()
			c.LearningRate, c.LRScheduler, c.WarmupSteps, c.MaxSteps = 2e-3, "linear", 2, steps
			var want curve
			golden.JSON(t, golden.Path(t, "train/"+v.name+"/curve.json"), &want)
			perMicro := rows / v.micro
			ts := newTestStep(t, b, network(t, b, v.float, schemeOf(v.name), &cfg),
				session.Shape{Tokens: perMicro * T, Sequences: perMicro, MaxLen: T}, c, 2, golden.Path(t, "train/init"))
			for at := range steps {
				trained := 0
				for r := range rows {
					row := labels[(at*rows+r)*T:]
					for _, l := range row[1:T] {
						if l >= 0 {
							trained++
						}
					}
				}
				if trained != want.Trained[at] {
					t.Fatalf("step %d trains %d tokens, want %d", at, trained, want.Trained[at])
				}
				lr := want.LR[at]
				ts.set(t, "loss scale", 1/float64(trained))
				for _, u := range ts.Rates {
					h := adamNumbers(c, lr*u.Factor, at+1)
					ts.set(t, u.Numbers, h[:]...)
				}
				ts.run.Run(step.SegmentBegin)
				for micro := range v.micro {
					from := (at*rows + micro*perMicro) * T
					ts.fill(t, ids[from:from+perMicro*T], labels[from:from+perMicro*T], T)
					ts.run.Run(step.SegmentMicro)
				}
				ts.run.Run(step.SegmentNorm)
				ts.run.Run(step.SegmentUpdate)
				loss, norm := ts.read(t, ts.Loss)[0], ts.read(t, ts.Norm)[0]
				if d := math.Abs(loss-want.Loss[at]) / want.Loss[at]; !(d <= v.loss) {
					t.Errorf("step %d: loss %.9g, PEFT %.9g, relative %.3g above %.3g", at, loss,
						want.Loss[at], d, v.loss)
				}
				if d := math.Abs(norm-want.GradNorm[at]) / want.GradNorm[at]; !(d <= v.norm) {
					t.Errorf("step %d: gradient norm %.9g, PEFT %.9g, relative %.3g above %.3g", at, norm,
						want.GradNorm[at], d, v.norm)
				}
			}
			final := golden.Path(t, "train/"+v.name+"/final")
			if _, err := os.Stat(final); err != nil {
				return // the float64 curve has no stored adapter
			}
			ref := golden.Open(t, filepath.Join(final, adapter.WeightsFile))
			const tolerance = 2e-4 - golden.FixedStep/2 // some of the references are rounded to multiples of FixedStep
			for _, p := range ts.snapshot(t) {
				for i, w := range ref.Floats("base_model.model." + p.Name) {
					if d := math.Abs(float64(p.Data[i]) - w); !(d <= tolerance) {
						t.Fatalf("final %s[%d] = %v, PEFT %v", p.Name, i, p.Data[i], w)
					}
				}
			}
		})
	}
}

func parseSteps(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err == nil && (n < 1 || n > 100) {
		err = fmt.Errorf("%d steps: the curves have 100", n)
	}
	return n, err
}
