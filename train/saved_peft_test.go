package train

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
)

// savedReader loads an adapter with whole modules in PEFT over the base model in transformers, in float64, checks that
// PEFT has taken every tensor of the file, and prints the mean loss over rows of token ids, for each three arguments.
const savedReader = `
import json, os, sys, torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
losses = []
for base, folder, data in zip(*[iter(sys.argv[1:])] * 3):
    model = AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager", dtype=torch.float32)
    has_tokenizer = os.path.exists(folder + "/tokenizer.json")
    tokens = len(AutoTokenizer.from_pretrained(folder)) if has_tokenizer else 0
    if tokens > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(tokens, mean_resizing=False)
    model = PeftModel.from_pretrained(model, folder).double().eval()
    file = load_file(folder + "/adapter_model.safetensors")
    own = get_peft_model_state_dict(model, save_embedding_layers=False)
    assert file.keys() == own.keys(), file.keys() ^ own.keys()
    assert all(torch.equal(file[k].double(), own[k]) for k in file)
    total, count = 0.0, 0
    with torch.no_grad():
        for line in open(data):
            ids = torch.tensor([json.loads(line)["input_ids"]])
            n = ids.shape[1] - 1
            total += model(input_ids=ids, labels=ids).loss.item() * n
            count += n
    losses.append(total / count)
print(json.dumps(losses))
`

// checkLossesInPEFT compares the loss of each run's last evaluation, over the rows of its validation file, with PEFT's.
func checkLossesInPEFT(t *testing.T, python string, specs []Spec) {
	t.Helper()
	script := filepath.Join(t.TempDir(), "read.py")
	if err := os.WriteFile(script, []byte(savedReader), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{script}
	for _, s := range specs {
		args = append(args, s.BaseModel, s.OutputDir, s.Dataset.ValPath)
	}
	var said bytes.Buffer
	cmd := exec.Command(python, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	var losses []float64
	if err := json.Unmarshal(out, &losses); err != nil {
		t.Fatal(err)
	}
	for i, s := range specs {
		evals := linesWith(t, s.OutputDir, "eval_loss", "eval_loss")
		if ours := evals[len(evals)-1][0]; !(math.Abs(ours-losses[i]) <= 1e-4*losses[i]) {
			t.Errorf("%v: the evaluation had the loss %v, transformers has %v", s.LoRA, ours, losses[i])
		}
	}
}

// pythonWithPEFT returns the interpreter with PEFT and transformers of TRAINER_PYTHON.
func pythonWithPEFT(t *testing.T) string {
	t.Helper()
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		t.Skip("TRAINER_PYTHON is not set")
	}
	if exec.Command(python, "-c", "import torch, transformers, peft").Run() != nil {
		t.Skipf("%s has no torch, transformers and peft", python)
	}
	return python
}

// TestSavedModulesLoadInPEFT checks that adapters with whole modules load in PEFT and transformers, key by key, and
// give the loss that the run's last evaluation had. PEFT before 0.18 does not know ensure_weight_tying.
func TestSavedModulesLoadInPEFT(t *testing.T) {
	python := pythonWithPEFT(t)
	const ties = "from peft import LoraConfig; LoraConfig(ensure_weight_tying=True)"
	knowsTies := exec.Command(python, "-c", ties).Run() == nil
	var specs []Spec
	for _, c := range savedCases {
		if c.four || c.ties && !knowsTies {
			continue
		}
		s := c.spec(t, 4)
		s.LoRA.TargetModules = adapter.Targets{adapter.AllLinear}
		idRows(t, &s)
		mustStart(t, s, oneWorker)
		specs = append(specs, s)
	}
	checkLossesInPEFT(t, python, specs)
}

// idRows gives a run rows of token ids to train and to evaluate on, whose tokens are all trained.
func idRows(t *testing.T, s *Spec) {
	t.Helper()
	for name, first := range map[string]int{"train.jsonl": 0, "val.jsonl": 100} {
		var rows strings.Builder
		for i := range 9 {
			ids := headTokens(first+i, 5+i%4)
			if s.Tokenizer.Any() {
				ids += ", 512, 4, 513, 9, 514"
			}
			rows.WriteString(`{"input_ids": [` + ids + `], "labels": [` + ids + "]}\n")
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(rows.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		if first == 0 {
			s.Dataset.Path = path
		} else {
			s.Dataset.ValPath = path
		}
	}
	s.Dataset.ValSplit, s.Dataset.Format, s.Dataset.Fields = 0, "", nil
}
