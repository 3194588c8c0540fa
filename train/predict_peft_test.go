package train

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
)

// headNumbers loads an adapter with a head in PEFT over the base model in transformers, in float64, and prints for each
// list of token ids the scores of the text or of its tokens, or its vector.
const headNumbers = `
import json, sys, torch
from peft import PeftModel
from transformers import AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification
of = {"SEQ_CLS": AutoModelForSequenceClassification, "TOKEN_CLS": AutoModelForTokenClassification,
      "FEATURE_EXTRACTION": AutoModel}
rows = json.load(open(sys.argv[2]))
def numbers(model, job, ids):
    out = model(input_ids=torch.tensor([ids]))
    if job["labels"]:
        return out.logits[0].flatten().tolist()
    hidden = out.last_hidden_state[0]
    vector = hidden[-1] if job["last"] else hidden.mean(0)
    return (vector / vector.norm() if job["unit"] else vector).tolist()
all = []
for job in json.loads(sys.argv[3]):
    config = json.load(open(job["folder"] + "/adapter_config.json"))
    model = of[config["task_type"]].from_pretrained(sys.argv[1], attn_implementation="eager",
                                                    **({"num_labels": job["labels"]} if job["labels"] else {}))
    model.config.pad_token_id = 0
    model = PeftModel.from_pretrained(model, job["folder"]).double().eval()
    with torch.no_grad():
        all.append([numbers(model, job, ids) for ids in rows])
print(json.dumps(all))
`

// pythonWith returns the Python of TRAINER_PYTHON, and skips the test if that lacks one of the modules.
func pythonWith(t *testing.T, modules string) string {
	t.Helper()
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		t.Skip("TRAINER_PYTHON is not set")
	}
	if exec.Command(python, "-c", "import "+modules).Run() != nil {
		t.Skipf("%s cannot import %s", python, modules)
	}
	return python
}

// runPython runs a script and decodes the JSON that it prints.
func runPython(t *testing.T, python, script string, to any, args ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.py")
	if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(python, append([]string{path}, args...)...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	if err := json.Unmarshal(out, to); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// samePassages compares the numbers of a model's passages with those of another program.
func samePassages(t *testing.T, what string, got [][]float32, want [][]float64, tolerance float64) {
	t.Helper()
	for i := range want {
		if len(got[i]) != len(want[i]) {
			t.Fatalf("%s, text %d: %d numbers, want %d", what, i, len(got[i]), len(want[i]))
		}
		for k, x := range want[i] {
			if d := math.Abs(float64(got[i][k]) - x); !(d <= tolerance) {
				t.Fatalf("%s, text %d, number %d: %v, want %v", what, i, k, got[i][k], x)
			}
		}
	}
}

// TestPredictionsEqualPEFT compares scores and vectors with those of transformers and PEFT.
func TestPredictionsEqualPEFT(t *testing.T) {
	python := pythonWith(t, "torch, transformers, peft")
	runs := headRuns(t)
	var ids [][]int32
	for _, p := range passages(0) {
		ids = append(ids, p.IDs)
	}
	data := filepath.Join(t.TempDir(), "ids.json")
	raw, err := json.Marshal(ids)
	if err == nil {
		err = os.WriteFile(data, raw, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	var jobs []map[string]any
	var got [][][]float32
	names := slices.Sorted(maps.Keys(runs))
	for _, name := range names {
		p := predictorOf(t, runs, name)
		m := p.Models()[0]
		jobs = append(jobs, map[string]any{"folder": runs[name].OutputDir, "labels": m.Task.Labels,
			"last": m.Pooling.Last, "unit": m.Pooling.Normalise})
		got = append(got, predict(t, p, passages(0)))
		if m.Task.Type == adapter.FeatureExtraction && m.Pooling != (adapter.Pooling{Last: name == "last",
			Normalise: name == "mean"}) {
			t.Errorf("%s: pooling %+v", name, m.Pooling)
		}
	}
	text, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	var want [][][]float64
	runPython(t, python, headNumbers, &want, golden.StoriesDir(t), data, string(text))
	for i, name := range names {
		samePassages(t, name, got[i], want[i], 1e-4)
	}
}
