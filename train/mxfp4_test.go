package train

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

var mxfp4Model = golden.FamilyModel{Folder: "mxfp4", Name: "gpt_oss_mxfp4"}

// TestMXFP4PlansWithoutWeights: from config.json alone a run is planned with the bytes that it holds with the weights,
// 17 of them for 32 weights of experts; adapter: lora keeps experts in the same way.
func TestMXFP4PlansWithoutWeights(t *testing.T) {
	for _, method := range []string{"qlora", "lora"} {
		s := familySpec(t, mxfp4Model)
		if s.Adapter = method; method == "lora" {
			s.Quantization = nil
		}
		s.Training.MaxSteps = 2
		held := mustStart(t, s, Env{}).HeldBytes
		if err := os.Remove(filepath.Join(s.BaseModel, weights.SingleFile)); err != nil {
			t.Fatal(err)
		}
		s.OutputDir = filepath.Join(t.TempDir(), "plan")
		plan, err := PlanRun(context.Background(), s, Env{Env: session.Env{WithoutWeights: true}})
		if err != nil {
			t.Fatal(err)
		}
		if plan.TotalBytes != held {
			t.Errorf("%s: %d bytes are planned from config.json alone, %d are held with the weights", method,
				plan.TotalBytes, held)
		}
	}
}

// TestMXFP4Dequantised: a run that keeps weights dequantised holds the experts as numbers, and trains the same adapter;
// without being asked no run does.
func TestMXFP4Dequantised(t *testing.T) {
	s := familySpec(t, mxfp4Model)
	s.Training.MaxSteps = 3
	kept := mustStart(t, s, Env{})
	for _, method := range []string{"qlora", "lora"} {
		q := s
		q.OutputDir, q.Training.DequantisedWeights = filepath.Join(t.TempDir(), "run"), "always"
		if q.Adapter = method; method == "lora" {
			q.Quantization = nil
		}
		got := mustStart(t, q, Env{})
		const numbers = 2 * 4 * (32*128 + 64*32) // layers, experts, their matrices
		if more := got.HeldBytes - kept.HeldBytes; more < numbers*(32*4-17)/32 {
			t.Errorf("%s: %d bytes more are held, fewer than %d experts' weights in float32 take",
				method, more, numbers)
		}
		if method == "qlora" {
			for i, loss := range got.Losses {
				golden.Near(t, "loss of a step", loss, kept.Losses[i], 1e-6)
			}
		}
	}
}

// TestMXFP4Releases plans the released folders on cards, from config.json alone.
func TestMXFP4Releases(t *testing.T) {
	var releases []struct {
		Name   string          `json:"name"`
		Config json.RawMessage `json:"config"`
	}
	golden.JSON(t, filepath.Join(golden.Root(t), "model", "testdata", "experts_releases.json"), &releases)
	seen := 0
	for _, r := range releases {
		experts, ok := map[string]int64{"openai/gpt-oss-20b": 24 * 32, "openai/gpt-oss-120b": 36 * 128}[r.Name]
		if !ok || !strings.Contains(string(r.Config), "mxfp4") {
			continue
		}
		seen++
		b := openBare(t, r.Config)
		var stored int64
		for _, name := range b.Weights.Names() {
			if x, _ := b.Weights.Tensor(name); x.DType == weights.U8 {
				stored += int64(x.Len())
			}
		}
		if want := experts * 2880 * (5760 + 2880) * 17 / 32; stored != want {
			t.Errorf("%s: %d bytes of experts, want %d", r.Name, stored, want)
		}
	}
	if seen != 2 {
		t.Errorf("%d releases in MXFP4", seen)
	}
}

// TestMXFP4Blocks: sizes that have no whole blocks are refused by their keys.
func TestMXFP4Blocks(t *testing.T) {
	config := string(golden.ReadFile(t, golden.Path(t, "mxfp4/gpt_oss_mxfp4.config.json")))
	for key, old := range map[string]string{"hidden_size": "32", "intermediate_size": "64"} {
		pair := `"` + key + `": `
		_, err := families.ParseConfig([]byte(strings.Replace(config, pair+old, pair+"48", 1)))
		if want := key + " = 48: experts in MXFP4 need a multiple of 32"; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func openBare(t *testing.T, config []byte) *session.Base {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := session.OpenBase(context.Background(), dir, session.Env{WithoutWeights: true})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestMXFP4NaN: a scale that is not a number is found while the weights are loaded.
func TestMXFP4NaN(t *testing.T) {
	s := familySpec(t, mxfp4Model)
	path := filepath.Join(s.BaseModel, weights.SingleFile)
	const name = "model.layers.1.mlp.experts.gate_up_proj"
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := f.Tensor(name + "_scales")
	file := golden.ReadFile(t, path)
	at := strings.Index(string(file), string(x.Data))
	file[at+9] = 255
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	want := "load " + name + ": the scale of block 9 is NaN (255); a frozen weight must be finite"
	if _, err := Start(context.Background(), s, Env{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
