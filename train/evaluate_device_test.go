//go:build gpu

package train

import (
	"context"
	"math"
	"testing"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/session"
)

func TestGPUEvaluatesAsCPU(t *testing.T) {
	gputest.Need(t)
	for _, adapterDir := range []string{"", golden.Path(t, "train/lora/final")} {
		s := testSpec(t, 1)
		s.Adapter, s.Quantization, s.Device = "lora", nil, "cpu"
		want, err := infer.Evaluate(context.Background(), s.Evaluation(adapterDir), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		s.Device = "cuda"
		got, err := infer.Evaluate(context.Background(), s.Evaluation(adapterDir), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		d := math.Abs(got.Loss-want.Loss) / want.Loss
		t.Logf("loss %.6f, on the CPU %.6f, relative difference %.3g; %d tokens", got.Loss,
			want.Loss, d, got.TrainedTokens)
		if !(d <= 1e-2) || got.TrainedTokens != want.TrainedTokens || got.Rows != want.Rows {
			t.Errorf("loss %v of %d tokens, on the CPU %v of %d", got.Loss, got.TrainedTokens,
				want.Loss, want.TrainedTokens)
		}
	}
}
