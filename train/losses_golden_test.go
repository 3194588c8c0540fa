package train

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// lossCase is the loss and the gradient norm that a reference implementation has in float64.
type lossCase struct {
	Loss float64 `json:"loss_f64"`
	Norm float64 `json:"grad_norm_f64"`
}

// TestLossesEqualTRL compares objectives with TRL's losses, and focal loss and z-loss with their formulas: loss,
// gradient norm and the gradients of layer 0.
func TestLossesEqualTRL(t *testing.T) {
	b := stories(t)
	var cases map[string]lossCase
	golden.JSON(t, golden.Path(t, "losses/cases.json"), &cases)
	batch := golden.Open(t, golden.Path(t, "losses/batch.safetensors"))
	ids, labels, dims := batch.Ints("input_ids"), batch.Ints("labels"), batch.Shape("input_ids")
	for _, v := range []struct {
		name, objective string
		sections        objective.Config
		weights         string // the batch's weights, of tokens or of rows; "" = all are one
		noise           bool   // the embeddings get the reference's noise (NEFTune)
		byWeights       bool   // the reference divides by the sum of the weights, not by the number of tokens
		items           int    // the reference divides by this number (num_items_in_batch); 0 = by the trained tokens
	}{
		{name: "nll", objective: "cross_entropy"},
		{name: "nll", objective: "cross_entropy", items: 150},
		{name: "dft", objective: "dft"},
		{name: "focal", objective: "focal"},
		{name: "label_smoothing", objective: "smoothed_cross_entropy",
			sections: objective.Config{SmoothedCrossEntropy: &objective.SmoothedConfig{LabelSmoothing: 0.1}}},
		{name: "z_loss", objective: "smoothed_cross_entropy",
			sections: objective.Config{SmoothedCrossEntropy: &objective.SmoothedConfig{ZLoss: 1e-4}}},
		{name: "neftune", objective: "cross_entropy", noise: true},
		{name: "weighted_tokens_by_count", objective: "cross_entropy", weights: "token_weights"},
		{name: "weighted_rows_by_count", objective: "cross_entropy", weights: "row_weights"},
		{name: "weighted_tokens", objective: "cross_entropy", weights: "token_weights", byWeights: true},
		{name: "weighted_rows", objective: "cross_entropy", weights: "row_weights", byWeights: true},
	} {
		for _, p := range []struct {
			float        kernel.DType
			loss, tensor float64
		}{{kernel.F32, 1e-5, 2e-3}, {kernel.F64, 1e-9, 1e-6}} {
			t.Run(fmt.Sprint(v.name, " ", p.float, " ", v.items), func(t *testing.T) {
				dir := golden.Path(t, "losses/adapter")
				cfg, c, on := peftConfigOf(t, dir), Default(), graph.NewCPU(2)
				o := objective.Of(v.objective, v.sections)
				if v.weights != "" {
					o = objective.Weighted(o)
				}
				nw := network(t, b, p.float, nil, &cfg)
				if v.noise {
					build := nw.Build
					nw.Build = func(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
						noise := n.Batch("noise", kernel.T(n.Float(), len(ids), c.HiddenSize))
						n.Noise = func(x *nn.Value) *nn.Value { return n.Apply(kernel.Add{}, x, noise) }
						return build(n, c, in)
					}
				}
				planned, err := step.Plan(nw,
					session.Shape{Tokens: len(ids), Sequences: dims[0], MaxLen: dims[1]},
					c.Step(o), step.Summing{}, on)
				if err != nil {
					t.Fatal(err)
				}
				ts := bound(t, on, b, planned, c, dir)
				trained := ts.fill(t, ids, labels, dims[1])
				if v.noise {
					ts.set(t, "noise", batch.Floats("neftune.noise")...)
				}
				divisor := float64(trained)
				if v.weights != "" {
					weights := nextWeights(batch.Floats(v.weights), labels, dims[1])
					ts.set(t, "weights", weights...)
					if v.byWeights {
						divisor = 0
						for _, w := range weights {
							divisor += w
						}
					}
				}
				if v.items > 0 {
					ts.ofItems(t, v.items, lossCase{0.6991149870904126, 0.33574135878493055}, p.loss)
					return
				}
				ts.set(t, "loss scale", 1/divisor)
				ts.run.Run(step.SegmentBegin)
				ts.run.Run(step.SegmentMicro)
				ts.equals(t, "losses", v.name, cases[v.name], p.loss, p.tensor)
			})
		}
	}
}

// nextWeights returns for each place the weight of the token behind it in its row of T, given a weight for each token
// or for each row; 0 where that token is not trained.
func nextWeights(given []float64, labels []int32, T int) []float64 {
	next := make([]float64, len(labels))
	for t := range labels {
		if t%T == T-1 || labels[t+1] < 0 {
			continue
		}
		if next[t] = given[t/T*len(given)/(len(labels)/T)]; len(given) == len(labels) {
			next[t] = given[t+1]
		}
	}
	return next
}

// ofItems compares loss and gradient norm of a step that divides by a given number with a reference.
func (ts *testStep) ofItems(t *testing.T, items int, want lossCase, tolerance float64) {
	t.Helper()
	ts.set(t, "loss scale", 1/float64(items))
	if err := ts.run.Run(step.SegmentBegin, step.SegmentMicro, step.SegmentNorm); err != nil {
		t.Fatal(err)
	}
	golden.Near(t, "loss", ts.read(t, ts.Loss)[0], want.Loss, tolerance)
	golden.Near(t, "gradient norm", ts.read(t, ts.Norm)[0], want.Norm, max(tolerance, 1e-6))
}

// equals compares loss, gradient norm and the gradients of layer 0 with a reference.
func (ts *testStep) equals(t *testing.T, folder, name string, want lossCase, loss, tensor float64) {
	t.Helper()
	if want.Norm == 0 {
		t.Fatalf("no reference numbers for %s", name)
	}
	golden.Near(t, "loss", ts.read(t, ts.Loss)[0], want.Loss, loss*max(1, math.Abs(want.Loss)))
	ref := golden.Open(t, golden.Path(t, folder+"/grads.safetensors"))
	sum, compared := 0., 0
	for _, p := range ts.Trained.Params {
		x, err := ts.memory.Tensor("gradient of " + p.Name)
		if err != nil {
			t.Fatal(err)
		}
		got := numbers(x)
		for _, g := range got {
			sum += g * g
		}
		of := name + ".base_model.model." + p.Name
		if !slices.Contains(ref.Names(), of) {
			continue
		}
		compared++
		if d := distance(got, ref.Floats(of)); !(d <= tensor) {
			t.Errorf("gradient of %s is off by %.3g, tolerance %.3g", p.Name, d, tensor)
		}
	}
	if compared != 4 {
		t.Errorf("%d gradients compared, want 4", compared)
	}
	golden.Near(t, "gradient norm", math.Sqrt(sum), want.Norm, tensor*want.Norm)
}
