package train

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestLongRowsOnFourCards: rows of 65,536 tokens of Llama 3.1 8B do not fit on a card of 24 GB without offloading, and
// do on four that share them, as far as a plan from its configuration alone can tell.
func TestLongRowsOnFourCards(t *testing.T) {
	t.Parallel()
	var releases []struct {
		Name   string
		Config json.RawMessage
	}
	golden.JSON(t, filepath.Join(golden.Root(t), "scripts", "plantable", "releases.json"), &releases)
	s := testSpec(t, 1)
	s.BaseModel = withoutWeights(t)
	for _, r := range releases {
		if r.Name == "meta-llama/Llama-3.1-8B" {
			if err := os.WriteFile(filepath.Join(s.BaseModel, "config.json"), r.Config, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Device, s.LoRA.R, s.Training.BatchSize, s.Dataset.Packing, s.Dataset.MaxLength = "cuda", 16, 1, true, 1<<16
	plan := func(devices string, size int) PlanReport {
		in := s
		in.Devices, in.Training.ContextParallelSize = devices, size
		r, err := PlanFor(context.Background(), in, Env{}, chipOf(t, "4090"))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	one, four := plan("1", 1), plan("4", 4)
	tooLarge := func(r PlanReport) bool { // with whole layers recomputed
		return strings.Contains(r.String(), "does not fit: gradient_checkpointing full: ")
	}
	if !tooLarge(one) || tooLarge(four) || four.Context == nil ||
		four.Context.Tokens != 1<<14 || four.Context.Heads != 8 {
		t.Errorf("one card: %v\nfour: %v", one, four)
	}
	// 4 exchanges a layer and 2 more where it is recomputed, of (2 x 32 + 2 x 8) heads of 128 numbers for each token
	// and pass
	if c := four.Context; c.Exchanges < 4*32 || c.Exchanges > 6*32 || c.ReceivedBytes < 15<<30 ||
		c.ReceivedBytes > 23<<30 {
		t.Errorf("%+v", c)
	}
}
