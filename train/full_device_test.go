//go:build gpu

package train

import (
	"errors"
	"testing"

	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel"
)

// roundBF16 rounds float32 numbers to bf16.
func roundBF16(x kernel.Tensor) {
	if x.DType != kernel.F32 {
		return
	}
	for i, v := range x.F32() {
		x.F32()[i] = kernel.FromBF16(kernel.ToBF16(v))
	}
}

// weightsBehind makes steps of a run on the data set and returns the trained weights before and behind them. With
// rounded a CPU rounds the weights that a step reads, and the result of each call, to bf16; masters stay in float32.
func weightsBehind(t *testing.T, s Spec, steps int, rounded bool) (before, behind [][]float64) {
	t.Helper()
	o, err := Open(t.Context(), s, Env{})
	if err != nil {
		t.Fatal(err)
	}
	r := o.running
	weights := func() (all [][]float64) {
		params, err := r.step.Trained.Snapshot(r.memory)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range params {
			one := make([]float64, len(p.Data))
			for i, v := range p.Data {
				one[i] = float64(v)
			}
			all = append(all, one)
		}
		return all
	}
	if before = weights(); rounded {
		o.Pipeline().SeeCalls(roundBF16)
	}
	for range steps {
		w, err := o.Next()
		if err != nil {
			t.Fatal(err)
		}
		var masters [][]float32
		for _, p := range r.step.Trained.Params {
			x, err := r.memory.Tensor(p.Name)
			if err != nil {
				t.Fatal(err)
			}
			if rounded {
				masters = append(masters, append([]float32(nil), x.F32()...))
				roundBF16(x)
			}
		}
		if err := o.Pipeline().Gradients(w); err != nil {
			t.Fatal(err)
		}
		for i, p := range r.step.Trained.Params[:len(masters)] {
			x, _ := r.memory.Tensor(p.Name) // as above
			copy(x.F32(), masters[i])
		}
		err = o.Pipeline().Update()
		_, failed := o.Pipeline().Numbers()
		if err := errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
	}
	behind = weights()
	if err := errors.Join(o.Release(), o.Close()); err != nil {
		t.Fatal(err)
	}
	return before, behind
}

// TestGPUFullInBF16: six updates of all weights in bf16 are off from those in float32 by at most 1.5 times what the
// CPU's are off by that rounds all it computes to bf16.
func TestGPUFullInBF16(t *testing.T) {
	gputest.Need(t)
	const steps = 6
	for name, rate := range map[string]float64{"adamw": 1e-4, "sgd": 0.02} {
		t.Run(name, func(t *testing.T) {
			s := fullSpec(t, steps)
			s.Training.GradientAccumulationSteps, s.Dataset.ValSplit = 1, 0
			s.Training.Optimizer, s.Training.LearningRate = name, rate
			s.Device = "cpu"
			start, exact := weightsBehind(t, s, steps, false)
			_, plain := weightsBehind(t, s, steps, true)
			s.Device, s.Training.Precision = "cuda", "bf16"
			_, onGPU := weightsBehind(t, s, steps, false)
			off := func(got [][]float64) float64 {
				var all errorNorm
				for i := range got {
					for j := range got[i] {
						d, u := got[i][j]-exact[i][j], exact[i][j]-start[i][j]
						all.d, all.n = all.d+d*d, all.n+u*u
					}
				}
				return all.relative()
			}
			own, limit := off(onGPU), worse*off(plain)
			if t.Logf("the updates are off by %.3g, limit %.3g", own, limit); !(own <= limit) {
				t.Errorf("the updates are off by %.3g, limit %.3g", own, limit)
			}
		})
	}
}
