package train

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/replay"
)

// tokenisedRows is a file of so many rows of 4 to 32 tokens.
func tokenisedRows(t testing.TB, n, vocab int) string {
	t.Helper()
	var file bytes.Buffer
	for i := range n {
		ids := make([]int, 4+(7*i)%29)
		for j := range ids {
			ids[j] = (5*i + 3*j + i*j) % vocab
		}
		if err := json.NewEncoder(&file).Encode(map[string][]int{"input_ids": ids, "labels": ids}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEvidenceLeavesPaddingOut: the replay of a run has other token budgets where its memory leaves room for others,
// and so other padding; it sees the same rows.
func TestEvidenceLeavesPaddingOut(t *testing.T) {
	m := golden.FamilyModel{Folder: "phi", Name: "phi3_odd"}
	s := testSpec(t, 6)
	s.BaseModel, s.Adapter, s.Quantization = m.Dir(t), "lora", nil
	s.LoRA.R, s.LoRA.TargetModules, s.Dataset.Fields = 64, adapter.Targets{adapter.AllLinear}, nil
	s.Dataset.Path, s.Dataset.Format, s.Dataset.MaxLength = tokenisedRows(t, 40, 64), "tokenized", 32
	s.Training.GradientCheckpointing, s.Devices = "offload", "3"
	mustStart(t, s, oneWorker)
	was, err := replay.ReadManifest(s.OutputDir)
	if err != nil {
		t.Fatal(err)
	}
	v, err := Verify(t.Context(), s, oneWorker, was, 6)
	if err != nil || !v.Equal || v.Batches != nil {
		t.Errorf("on several devices: %+v, %v", v, err)
	}

	s = unevenSpec(t, 3, "cpu")
	mustStart(t, s, Env{})
	if was, err = replay.ReadManifest(s.OutputDir); err != nil {
		t.Fatal(err)
	}
	s.Dataset.PadTo = dataset.PadMaxLength
	if v, err = Verify(t.Context(), s, Env{}, was, 1); err != nil || v.Batches != nil {
		t.Errorf("with more padding: %+v, %v", v, err)
	}
}

// TestEvidenceOfOlderPrograms: manifests with hashes of whole micro-batches are still compared, but of several ranks,
// each of which may have had other padding.
func TestEvidenceOfOlderPrograms(t *testing.T) {
	s := testSpec(t, 2)
	s.Dataset.PadTo = dataset.PadMaxLength
	mustStart(t, s, Env{})
	was, err := replay.ReadManifest(s.OutputDir)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		padded string
		plans  []replay.PartPlan
		equal  bool
	}{
		// as such a program had it,.
		"the same":      {"db4ea17baf44e61348dacfc657bbe366bc7dd8b0947e4b8c099aa4f5592f4e99", was.Plans, true},
		"other rows":    {"0", was.Plans, false},
		"several ranks": {"0", []replay.PartPlan{{FirstStep: 1, Ranks: 2}}, true},
	} {
		m := was
		m.Evidence, m.Plans = []replay.Evidence{{Step: 2, Losses: was.Losses, Padded: c.padded}}, c.plans
		if v, err := Verify(t.Context(), s, Env{}, m, 2); err != nil || (v.Batches == nil) != c.equal {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}
