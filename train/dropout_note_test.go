package train

import (
	"context"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestDropoutOfTheBaseIsSaid: Seed-OSS names dropouts of its own, which are not applied: the plan says so.
func TestDropoutOfTheBaseIsSaid(t *testing.T) {
	const want = "the base model's config.json has attention_dropout 0.1 and residual_dropout 0.1: the base " +
		"model's own dropout is not applied here; lora.dropout is the adapter's"
	for folder, says := range map[string]bool{"seed_oss": true, "olmo3": false} {
		s := familySpec(t, golden.FamilyModel{Folder: "more_families", Name: folder})
		s.Training.MaxSteps = 1
		plan, err := PlanRun(context.Background(), s, Env{})
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(plan.Notes, want) != says {
			t.Errorf("%s: notes %q", folder, plan.Notes)
		}
	}
}
