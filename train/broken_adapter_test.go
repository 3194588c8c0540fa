package train

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// poisoned is PEFT's trained adapter with one number that is none.
func poisoned(t *testing.T) (dir, tensor string) {
	t.Helper()
	from := golden.Path(t, "train/lora/final")
	f, err := weights.Open(filepath.Join(from, adapter.WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var tensors []weights.Tensor
	for i, name := range f.Names() {
		x, _ := f.Tensor(name)
		v := make([]float32, x.Len())
		if err := weights.Float32s(x, v); err != nil {
			t.Fatal(err)
		}
		if i == 9 {
			v[len(v)-1], tensor = float32(math.NaN()), name
		}
		y, err := weights.FromFloat32s(name, weights.F32, x.Shape, v)
		if err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, y)
	}
	raw, err := weights.Encode(tensors, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, data := range map[string][]byte{adapter.WeightsFile: raw,
		adapter.ConfigFile: golden.ReadFile(t, from, adapter.ConfigFile)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, tensor
}

// TestAdapterThatIsNotFinite: whatever reads it names the tensor, and nothing is written.
func TestAdapterThatIsNotFinite(t *testing.T) {
	ctx := context.Background()
	dir, tensor := poisoned(t)
	s := testSpec(t, 1)
	s.Adapter, s.Quantization, s.LoRA.InitFrom = "lora", nil, dir
	out := filepath.Join(t.TempDir(), "merged")
	for what, run := range map[string]func() error{
		"init_from": func() error { _, err := Start(ctx, s, Env{}); return err },
		"eval":      func() error { _, err := infer.Evaluate(ctx, s.Evaluation(dir), session.Env{}); return err },
		"merge": func() error {
			_, err := export.Merge(ctx, export.MergeOptions{Model: s.BaseModel, Adapters: export.One(dir),
				Out: out}, session.Env{})
			return err
		},
		"generate": func() error {
			g, err := infer.NewGenerator(ctx, session.Options{Model: s.BaseModel, Device: "cpu"}, dir, session.Env{})
			if err != nil {
				return err
			}
			defer g.Close()
			_, err = g.Generate(ctx, "Once", infer.GenerateOptions{MaxTokens: 2}, nil)
			return err
		},
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(),
			"the adapter is broken: tensor "+tensor+" is NaN at [") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, path := range []string{filepath.Join(s.OutputDir, adapter.WeightsFile),
		filepath.Join(out, weights.SingleFile)} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s was written", path)
		}
	}
}
