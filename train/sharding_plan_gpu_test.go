package train

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// TestSeventyBillionsOnTwoCards: QLoRA of rank 16 on Llama 3.3 70B fits two cards of 24 GB in slices, and one of them
// not, as far as a plan from its configuration alone can tell.
func TestSeventyBillionsOnTwoCards(t *testing.T) {
	t.Parallel()
	var releases []struct {
		Name   string
		Config json.RawMessage
	}
	golden.JSON(t, filepath.Join(golden.Root(t), "scripts", "plantable", "releases.json"), &releases)
	s := testSpec(t, 1)
	s.BaseModel = withoutWeights(t)
	for _, r := range releases {
		if r.Name == "meta-llama/Llama-3.3-70B-Instruct" {
			if err := os.WriteFile(filepath.Join(s.BaseModel, "config.json"), r.Config, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Device, s.LoRA.R, s.LoRA.TargetModules = "cuda", 16, []string{"q_proj", "v_proj"}
	s.Training.BatchSize = 1
	plan := func(devices string) (PlanReport, error) {
		in := s
		in.Devices = devices
		return PlanFor(context.Background(), in, Env{}, chipOf(t, "4090"))
	}
	if r, err := plan("1"); !errors.Is(err, session.ErrDoesNotFit) || strings.Contains(err.Error(), "base_sharding") {
		t.Errorf("one card: %v: %v", r, err)
	}
	r, err := plan("2")
	if err != nil || r.Sharding == nil || r.TotalBytes > r.Limit || r.Parameters < 70e9 {
		t.Fatalf("two cards: %v: %v", r, err)
	}
	if packed := r.Sharding.SliceBytes * 2; packed < 39e9 || packed > 40e9 || r.Sharding.ReceivedBytes < 35e9 {
		t.Errorf("%+v", r.Sharding)
	}
}
