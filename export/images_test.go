package export

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/vision"
)

// imageModels are small models of images and text, and where their language models' layers are.
func imageModels(t *testing.T) map[string]string {
	const layers = "model.language_model.layers."
	return map[string]string{golden.Idefics3(t): "model.text_model.layers.", golden.Qwen3VL(t): layers,
		golden.Gemma3Images(t): layers, golden.Mistral3Images(t): layers}
}

// imageAdapter writes an adapter of the first layer's down projection of a model, as a run saves it.
func imageAdapter(t *testing.T, layers string) string {
	return adapterOf(t, map[string][2]int{layers + "0.mlp.down_proj": {32, 24}}, func(_ bool, i int) float32 {
		return float32(i%5-2) / 4
	})
}

// TestMergeKeepsImages: a merged model has the files that describe images as its base has them, and an image tower and
// a projector of the same bytes.
func TestMergeKeepsImages(t *testing.T) {
	for model, layers := range imageModels(t) {
		older := filepath.Join(model, olderTemplateFile)
		if err := os.WriteFile(older, []byte(`{"chat_template":"{{ messages }}"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "merged")
		if _, err := Merge(context.Background(), MergeOptions{Model: model, Adapters: One(imageAdapter(t, layers)),
			Out: out, Check: []string{}}, session.Env{}); err != nil {
			t.Fatal(err)
		}
		for _, name := range imageFiles {
			want, err := os.ReadFile(filepath.Join(model, name))
			if err != nil {
				continue
			}
			if got, _ := os.ReadFile(filepath.Join(out, name)); !bytes.Equal(got, want) {
				t.Errorf("%s: %s has %d bytes, the base's %d", layers, name, len(got), len(want))
			}
		}
		if _, err := vision.ReadProcessor(os.DirFS(out)); err != nil {
			t.Error(err)
		}
		base, merged := read(t, model), read(t, out)
		for _, name := range base.Names() {
			want, _ := base.Tensor(name)
			got, ok := merged.Tensor(name)
			if same := ok && bytes.Equal(got.Data, want.Data); same == strings.Contains(name, "0.mlp.down_proj") {
				t.Errorf("tensor %s is in the merged model: %t, as in the base: %t", name, ok, same)
			}
		}
	}
}

// TestOthersLoadImages: transformers and PEFT load merged models and adapters by the class of images and text,
// and give the logits of the adapter beside its base about a picture.
func TestOthersLoadImages(t *testing.T) {
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import torch, torchvision, transformers, peft").Run() != nil {
		t.Skipf("%s has no torch, torchvision, transformers and PEFT; TRAINER_PYTHON names one that has", python)
	}
	var jobs []map[string]string
	for model, layers := range imageModels(t) {
		from := imageAdapter(t, layers)
		out := filepath.Join(t.TempDir(), "merged")
		if _, err := Merge(context.Background(), MergeOptions{Model: model, Adapters: One(from), Out: out,
			Check: []string{}}, session.Env{}); err != nil {
			t.Fatal(err)
		}
		own := filepath.Join(t.TempDir(), "adapter")
		if _, err := Export(context.Background(), Options{Format: "peft", Model: model, Adapter: from, Out: own,
			DType: "f32"}, session.Env{}); err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{out, own} {
			jobs = append(jobs, map[string]string{"what": "images", "base": model, "adapter": from, "out": to,
				"picture": golden.Path(t, "images/rgb.png")})
		}
	}
	list, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "jobs.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, filepath.Join(golden.Root(t), "scripts", "loadcheck.py"), file)
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "OMP_NUM_THREADS=1")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errOut.String())
	}
	var results []struct{ Difference, Largest float64 }
	if err := json.Unmarshal(out[bytes.LastIndexByte(bytes.TrimSpace(out), '\n')+1:], &results); err != nil ||
		len(results) != len(jobs) {
		t.Fatalf("%v: %s", err, out)
	}
	for i, r := range results {
		t.Logf("%s: logits differ by %.3g of %.3g", jobs[i]["out"], r.Difference, r.Largest)
		if !(r.Difference <= 2e-5*max(1, r.Largest)) || r.Largest == 0 {
			t.Error("other logits than PEFT's")
		}
	}
}

// TestAdapterNamesNoTower: an exported adapter names the layers of the language model by their paths where the image
// tower has layers of the same names, which PEFT would adapt as well.
func TestAdapterNamesNoTower(t *testing.T) {
	model := golden.Idefics3(t)
	from := adapterOf(t, map[string][2]int{"model.text_model.layers.1.self_attn.q_proj": {24, 24},
		"model.text_model.layers.0.self_attn.q_proj": {24, 24}}, func(bool, int) float32 { return 1 })
	out := filepath.Join(t.TempDir(), "adapter")
	config := golden.ReadFile(t, from, adapter.ConfigFile)
	config = bytes.ReplaceAll(config, []byte("model.text_model.layers.0.self_attn.q_proj"), []byte("q_proj"))
	if err := os.WriteFile(filepath.Join(from, adapter.ConfigFile), config, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Export(context.Background(), Options{Format: "peft", Model: model, Adapter: from, Out: out},
		session.Env{}); err != nil {
		t.Fatal(err)
	}
	var c struct {
		Targets []string `json:"target_modules"`
	}
	golden.JSON(t, filepath.Join(out, adapter.ConfigFile), &c)
	if strings.Join(c.Targets, " ") != "model.text_model.layers.0.self_attn.q_proj "+
		"model.text_model.layers.1.self_attn.q_proj" {
		t.Errorf("target_modules are %q", c.Targets)
	}
}
