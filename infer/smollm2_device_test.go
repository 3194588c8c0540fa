//go:build gpu

package infer

import (
	"context"
	"math"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
)

// TestGPUSmolLM2Evaluates compares the mean loss over 20 chat rows in bf16 with transformers in float32.
func TestGPUSmolLM2Evaluates(t *testing.T) {
	gputest.Need(t)
	dir := golden.SmolLM2(t)
	want := smolLM2Evaluation(t)
	on := gputest.Open(t)
	b, err := session.OpenBase(context.Background(), dir, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // read only
	M := 0
	for _, r := range want.Rows {
		M += len(r.IDs)
	}
	step, err := PlanEval(network(t, b, kernel.F32), session.Shape{Tokens: M, Sequences: len(want.Rows), MaxLen: M},
		objective.Of(objective.Default, objective.Config{}), on)
	if err != nil {
		t.Fatal(err)
	}
	m, err := session.Hold(on, func(m graph.Store) error {
		return b.Load(context.Background(), step.Net, m, on.Workers())
	}, &step.Program)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // the numbers were read
	v, err := step.Bind(m, m.Runs[0])
	if err != nil {
		t.Fatal(err)
	}
	// All rows in one packed batch: that they do not see each other is part of what is compared.
	batch, at := dataset.Batch{IDs: make([]int32, M), Positions: make([]int32, M), Labels: make([]int32, M),
		CuSeqlens: make([]int32, len(want.Rows)+1)}, 0
	for i, r := range want.Rows {
		for k, id := range r.IDs {
			batch.IDs[at+k], batch.Positions[at+k], batch.Labels[at+k] = id, int32(k), dataset.Ignore
			if k >= r.Prompt {
				batch.Labels[at+k] = id
			}
		}
		at += len(r.IDs)
		batch.CuSeqlens[i+1] = int32(at)
	}
	v.batch.Fill(batch, session.Part{})
	v.data.Scale(1)
	trained := v.data.Fill(batch, session.Part{})
	each, err := v.losses()
	if err != nil {
		t.Fatal(err)
	}
	whole := total(each)
	x, err := v.run.Read(step.out.Each)
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for i, r := range want.Rows {
		var sum float64
		for _, v := range numbers(x)[batch.CuSeqlens[i]:batch.CuSeqlens[i+1]] {
			sum += v
		}
		d := math.Abs(sum-r.NLL) / float64(r.Trained)
		worst = math.Max(worst, d)
		if !(d < 0.02) {
			t.Errorf("row %d: mean loss %.5f, transformers %.5f", i, sum/float64(r.Trained), r.NLL/float64(r.Trained))
		}
	}
	mean := whole / float64(trained)
	t.Logf("mean loss of %d rows %.6f, transformers in float32 %.6f: off by %.4g; worst row %.4g", len(want.Rows), mean,
		want.Mean, math.Abs(mean-want.Mean), worst)
	if !(math.Abs(mean-want.Mean) < 0.003) {
		t.Errorf("mean loss %.6f, transformers in float32 %.6f", mean, want.Mean)
	}
}
