package train

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/quant"
)

// withoutWeights is a copy of the small model's folder that holds no weights, its configuration changed.
func withoutWeights(t testing.TB, changed ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"config.json", "tokenizer.json"} {
		b := golden.ReadFile(t, golden.StoriesDir(t), name)
		if name == "config.json" {
			b = []byte(strings.NewReplacer(changed...).Replace(string(b)))
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestPlanWithoutWeights: a folder with config.json and a tokenizer plans as the whole model does; a run needs the
// weights.
func TestPlanWithoutWeights(t *testing.T) {
	s := testSpec(t, 10)
	s.VRAM = "1GiB"
	whole, err := PlanRun(context.Background(), s, Env{})
	if err != nil {
		t.Fatal(err)
	}
	s.BaseModel = withoutWeights(t)
	bare, err := PlanRun(context.Background(), s, Env{})
	if err != nil {
		t.Fatal(err)
	}
	if want := s.BaseModel + " holds no weights: their names and shapes follow from its config.json"; len(bare.Notes) != len(whole.Notes)+1 || bare.Notes[0] != want {
		t.Errorf("notes %q, want %q first", bare.Notes, want)
	}
	bare.Model, bare.Notes = whole.Model, whole.Notes
	if !reflect.DeepEqual(bare, whole) {
		t.Errorf("without weights\n got %v\nwant %v", bare, whole)
	}
	if _, err := Start(context.Background(), s, Env{}); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), "has neither model.safetensors nor model.safetensors.index.json") {
		t.Errorf("a run: %v", err)
	}
	// Weights that are there count, and those in another form are named.
	if err := os.WriteFile(filepath.Join(s.BaseModel, "pytorch_model.bin"), []byte("PK\x03\x04"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := PlanRun(context.Background(), s, Env{}); err == nil ||
		!strings.Contains(err.Error(), "pytorch_model.bin is ") {
		t.Errorf("a pickle: %v", err)
	}
}

// TestPlanOfQuantisedWithoutWeights: config.json alone says of a folder of bitsandbytes' which weights are quantised
// and how, so that it plans as the whole folder does.
func TestPlanOfQuantisedWithoutWeights(t *testing.T) {
	for name, c := range map[string]struct {
		set  string // under quantization
		says string
	}{
		"nf4":         {"nf4", "7 weights are quantised (4 bits, type nf4, double_quant false)"},
		"nf4_nested":  {"nf4 double", "7 weights are quantised (4 bits, type nf4, double_quant true)"},
		"nf4_dynamic": {"nf4 double", "2 weights are quantised (4 bits, type nf4, double_quant true)"},
		"fp4":         {"fp4", "7 weights are quantised (4 bits, type fp4, double_quant false)"},
		"int8":        {"int8", "7 weights are quantised (8 bits, type int8, double_quant false)"},
	} {
		s := testSpec(t, 10)
		kind, nested, _ := strings.Cut(c.set, " ")
		stored := quant.DefaultOf(kind)
		stored.DoubleQuant = nested != ""
		s.Adapter, s.Quantization, s.Dataset = "qlora", &stored, dataset.Default()
		s.Dataset.Path, s.Dataset.Format, s.Dataset.MaxLength = rowsOfIDs(t), "tokenized", 16
		s.BaseModel = golden.Path(t, "prequantised/"+name)
		whole, err := PlanRun(context.Background(), s, Env{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		bare := t.TempDir()
		if err := os.WriteFile(filepath.Join(bare, "config.json"),
			golden.ReadFile(t, s.BaseModel, "config.json"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.BaseModel = bare
		got, err := PlanRun(context.Background(), s, Env{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got.Categories, whole.Categories) || len(got.Notes) == 0 ||
			!strings.HasSuffix(got.Notes[0], c.says) {
			t.Errorf("%s: %v with notes %q, the whole folder %v", name, got.Categories, got.Notes, whole.Categories)
		}
	}
}

// rowsOfIDs is a file of one row.
func rowsOfIDs(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(`{"input_ids":[3,4,5,6],"labels":[-100,4,5,6]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
