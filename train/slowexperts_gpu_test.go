package train

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
)

// TestStrictNamesSlowExperts: a mixture whose experts are no multiple of 8 wide, and a rank that is none, on a device
// whose fast kernels want them. No device is needed.
func TestStrictNamesSlowExperts(t *testing.T) {
	for _, c := range []struct {
		chip, width string
		rank        int
		want        string
	}{
		{"h100", "104", 16, ""},
		{"h100", "100", 16, "experts' GEMMs of 100 columns and depth 128 run on mma.sync"},
		{"h100", "104", 12, "experts' GEMMs take no update of rank 12 along"},
		{"a100", "100", 12, ""},
	} {
		dir := t.TempDir()
		config := string(golden.ReadFile(t, golden.Path(t, "experts/qwen3_moe.config.json")))
		config = strings.NewReplacer(`"moe_intermediate_size": 12`, `"moe_intermediate_size": `+c.width,
			`"hidden_size": 32`, `"hidden_size": 128`,
			`"head_dim": 16`, `"head_dim": 64`, `"max_position_embeddings": 64`,
			`"max_position_embeddings": 1024`).Replace(config)
		if !strings.Contains(config, `"moe_intermediate_size": `+c.width) ||
			!strings.Contains(config, `"hidden_size": 128`) || !strings.Contains(config, `"head_dim": 64`) {
			t.Fatal(config)
		}
		for name, data := range map[string][]byte{"config.json": []byte(config),
			"tokenizer.json": golden.ReadFile(t, golden.Path(t, "experts/tokenizer.json"))} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := testSpec(t, 2)
		s.BaseModel, s.Adapter, s.Quantization, s.Device = dir, "lora", nil, "cuda"
		s.Dataset.Path, s.Dataset.Format, s.Dataset.Fields = tokenisedRows(t, 40, 64), "tokenized", nil
		s.Dataset.MaxLength, s.Dataset.PadTo, s.Training.BatchSize, s.LoRA.R = 512, dataset.PadMaxLength, 8, c.rank
		r, err := PlanFor(t.Context(), s, Env{}, chipOf(t, c.chip))
		if err != nil {
			t.Fatal(err)
		}
		if (c.want == "") != (len(r.Slow) == 0) || !strings.Contains(r.String(), c.want) {
			t.Errorf("%s, experts of %s, rank %d: %v", c.chip, c.width, c.rank, r.Slow)
		}
		s.Training.Strict = true
		if _, err := PlanFor(t.Context(), s, Env{}, chipOf(t, c.chip)); errors.Is(err, ErrSlowPath) != (c.want != "") {
			t.Errorf("%s, experts of %s, rank %d, strict: %v", c.chip, c.width, c.rank, err)
		}
	}
}
