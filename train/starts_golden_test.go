package train

import (
	"context"
	"math"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/step"
)

// startedStep plans a step whose adapter starts as the network says, and gives it memory, base weights and the start.
func startedStep(t *testing.T, b *session.Base, nw session.Network, s session.Shape, c Config) *testStep {
	t.Helper()
	on := graph.NewCPU(2)
	planned, err := step.Plan(nw, s, c.Step(crossEntropy), step.Summing{}, on)
	if err != nil {
		t.Fatal(err)
	}
	m, err := session.Hold(on, func(m graph.Store) error { return b.Load(context.Background(), planned.Net, m, 2) },
		&planned.Program)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := planned.StartScaling(m, c.LossScale); err != nil {
		t.Fatal(err)
	}
	params := planned.Trained.List()
	if err := nw.Start.Fill(planned.Net, b.Reader(), planned.Trained, params); err != nil {
		t.Fatal(err)
	}
	if err := planned.Trained.Restore(m, params); err != nil {
		t.Fatal(err)
	}
	return &testStep{Step: planned, memory: m, run: m.Runs[0]}
}

// compareStart compares the first A and B of layers and the base weight that remains of the first layer with PEFT's.
func compareStart(t *testing.T, ts *testStep, cfg adapter.Config, path string, layers []string) {
	t.Helper()
	start, own := golden.Open(t, path), named(ts.snapshot(t))
	for _, l := range layers {
		a, b := l+".lora_A.weight", l+".lora_B.weight"
		if d := distance(productOf(own[a], own[b], cfg.R),
			productOf(start.Floats(a), start.Floats(b), cfg.R)); !(d <= 1e-5) {
			t.Errorf("B A of %s is off by %.3g", l, d)
		}
	}
	w, err := ts.memory.Tensor(layers[0] + ".weight")
	if err != nil {
		t.Fatal(err)
	}
	if d := distance(numbers(w), start.Floats("base_after."+layers[0])); !(d <= 1e-5) {
		t.Errorf("the base weight of %s is off by %.3g", layers[0], d)
	}
}

// productOf is B A of a layer, as numbers by name.
func productOf(a, b []float64, rank int) []float64 {
	in, out := len(a)/rank, len(b)/rank
	y := make([]float64, out*in)
	for o := range out {
		for r := range rank {
			for i := range in {
				y[o*in+i] += b[o*rank+r] * a[r*in+i]
			}
		}
	}
	return y
}

func named(params []adapter.Param) map[string][]float64 {
	by := map[string][]float64{}
	for _, p := range params {
		for _, x := range p.Data {
			by[p.Name] = append(by[p.Name], float64(x))
		}
	}
	return by
}

// TestStartsEqualPEFT: adapters that start as a part of the base weight have PEFT's product, leave PEFT's base weight,
// train along PEFT's curve, and are saved as what PEFT converts them to. Singular vectors have free signs, so products
// are compared.
func TestStartsEqualPEFT(t *testing.T) {
	t.Parallel()
	b := stories(t)
	batches := golden.Open(t, golden.Path(t, "train/batches.safetensors"))
	ids, labels := batches.Ints("input_ids"), batches.Ints("labels")
	const T, rows, steps, seed = 128, 4, 20, 42
	layers := []string{"model.layers.2.self_attn.q_proj", "model.layers.4.mlp.down_proj"}
	for _, v := range []struct {
		name, start, scheme string
	}{{"pissa", "pissa", ""}, {"pissa_niter_4", "pissa_niter_4", ""}, {"olora", "olora", ""},
		{"pissa_nf4", "pissa", "qlora_nf4"}} {
		t.Run(v.name, func(t *testing.T) {
			cfg := peftConfigOf(t, golden.Path(t, "train/init"))
			cfg.Own = adapter.LoRASettings{InitLoRAWeights: v.start}
			c := Default()
			c.LearningRate, c.LRScheduler, c.WarmupSteps, c.MaxSteps = 2e-3, "linear", 2, steps
			var want curve
			golden.JSON(t, golden.Path(t, "train/"+v.name+"/curve.json"), &want)
			nw := network(t, b, kernel.F32, schemeOf(v.scheme), &cfg)
			nw.Start = adapter.NewStart(nw.Method, cfg, seed)
			ts := startedStep(t, b, nw, session.Shape{Tokens: rows * T, Sequences: rows, MaxLen: T}, c)
			if v.scheme == "" { // over NF4 the start is the same
				compareStart(t, ts, cfg, golden.Path(t, "train/"+v.name+"/start.safetensors"), layers)
			}
			for at := range steps {
				trained := 0
				for r := range rows {
					for _, l := range labels[(at*rows+r)*T:][1:T] {
						if l >= 0 {
							trained++
						}
					}
				}
				ts.set(t, "loss scale", 1/float64(trained))
				for _, u := range ts.Rates {
					h := adamNumbers(c, want.LR[at]*u.Factor, at+1)
					ts.set(t, u.Numbers, h[:]...)
				}
				ts.run.Run(step.SegmentBegin)
				ts.fill(t, ids[at*rows*T:(at+1)*rows*T], labels[at*rows*T:(at+1)*rows*T], T)
				ts.run.Run(step.SegmentMicro)
				ts.run.Run(step.SegmentNorm)
				ts.run.Run(step.SegmentUpdate)
				loss, norm := ts.read(t, ts.Loss)[0], ts.read(t, ts.Norm)[0]
				if d := math.Abs(loss-want.Loss[at]) / want.Loss[at]; !(d <= 1e-4) {
					t.Errorf("step %d: loss %.9g, PEFT %.9g, relative %.3g", at, loss, want.Loss[at], d)
				}
				if d := math.Abs(norm-want.GradNorm[at]) / want.GradNorm[at]; !(d <= 1e-3) {
					t.Errorf("step %d: gradient norm %.9g, PEFT %.9g, relative %.3g", at, norm, want.GradNorm[at], d)
				}
			}
			_, saved, err := nw.Start.Saved(cfg, ts.Trained, ts.snapshot(t))
			if err != nil {
				t.Fatal(err)
			}
			final, folded := golden.Open(t, golden.Path(t, "train/"+v.name+"/final/adapter_model.safetensors")),
				named(saved)
			for _, l := range layers {
				a, bb := l+".lora_A.weight", l+".lora_B.weight"
				theirs := productOf(final.Floats(adapter.PEFTName(a)), final.Floats(adapter.PEFTName(bb)), 2*cfg.R)
				if d := distance(productOf(folded[a], folded[bb], 2*cfg.R), theirs); !(d <= 1e-3) {
					t.Errorf("the saved update of %s is off by %.3g", l, d)
				}
			}
		})
	}
}
