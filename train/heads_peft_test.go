package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/objective"
)

// headReader loads an adapter with a head in PEFT over the base model in transformers, in float64, checks that PEFT has
// taken every tensor of the file, and prints the loss over rows of token ids.
const headReader = `
import json, sys, torch
import torch.nn.functional as F
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer
base, folder, data, labels = sys.argv[1:5]
config = json.load(open(folder + "/adapter_config.json"))
of = {"SEQ_CLS": AutoModelForSequenceClassification, "TOKEN_CLS": AutoModelForTokenClassification,
      "FEATURE_EXTRACTION": AutoModel}[config["task_type"]]
model = of.from_pretrained(base, attn_implementation="eager", **({"num_labels": int(labels)} if int(labels) else {}))
model.config.pad_token_id = 0
model = PeftModel.from_pretrained(model, folder).double().eval()
file, own = load_file(folder + "/adapter_model.safetensors"), get_peft_model_state_dict(model)
assert file.keys() == own.keys(), file.keys() ^ own.keys()
assert all(torch.equal(file[k].double(), own[k]) for k in file)
total, rows = 0.0, [json.loads(line) for line in open(data)]
tokenizer = AutoTokenizer.from_pretrained(folder) if int(labels) == 0 else None
vector = lambda text: model(input_ids=tokenizer(text, return_tensors="pt").input_ids).last_hidden_state[0].mean(0)
scores = lambda ids: model(input_ids=torch.tensor([ids])).logits
with torch.no_grad():
    for r in rows:
        if "chosen_input_ids" in r:
            total -= F.logsigmoid(scores(r["chosen_input_ids"]) - scores(r["rejected_input_ids"])).item()
        elif "anchor" in r:
            total += F.cosine_similarity(vector(r["anchor"]), vector(r["positive"]), dim=0).item()
        elif "label" in r:
            total += F.cross_entropy(scores(r["input_ids"]), torch.tensor([r["label"]])).item()
        else:
            total += F.cross_entropy(scores(r["input_ids"])[0], torch.tensor(r["labels"])).item()
print(json.dumps(total / len(rows)))
`

// headTokens are token ids of a row, deterministic and of different lengths.
func headTokens(seed, length int) string {
	ids := make([]string, length)
	for t := range ids {
		ids[t] = fmt.Sprint(3 + (seed*131+t*(7+seed%5)*29)%500)
	}
	return strings.Join(ids, ", ")
}

// TestHeadsLoadInPEFT checks that adapters with heads load in PEFT and transformers, key by key, and give the loss that
// the run's last evaluation had.
func TestHeadsLoadInPEFT(t *testing.T) {
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		t.Skip("TRAINER_PYTHON is not set")
	}
	if exec.Command(python, "-c", "import torch, transformers, peft").Run() != nil {
		t.Skipf("%s has no torch, transformers and peft", python)
	}
	three := &objective.ClassificationConfig{NumLabels: 3}
	for _, c := range []struct {
		task, objective string
		labels          int
		row             func(i int) string
	}{
		{"sequence_classification", "reward", 1, func(i int) string {
			chosen, rejected := headTokens(i, 5+i%4), headTokens(i+7, 4+i%3)
			const row = `{"chosen_input_ids": [%s], "chosen_labels": [%s], ` +
				`"rejected_input_ids": [%s], "rejected_labels": [%s]}`
			return fmt.Sprintf(row, chosen, chosen, rejected, rejected)
		}},
		{"sequence_classification", "classification", 3, func(i int) string {
			return fmt.Sprintf(`{"input_ids": [%s], "label": %d}`, headTokens(i, 4+i%5), i%3)
		}},
		{"token_classification", "token_classification", 3, func(i int) string {
			return fmt.Sprintf(`{"input_ids": [%s], "labels": [%d, %d, %d, 2]}`, headTokens(i, 4), i%3, (i+1)%3, i%2)
		}},
		{"embedding", "contrastive", 0, pairRow},
	} {
		s := headSpec(t, 6, c.task, c.objective, c.row)
		s.Adapter, s.Quantization, s.Dataset.ValSplit, s.Dataset.ValPath = "lora", nil, 0, s.Dataset.Path+"l"
		s.LoRA.TargetModules = adapter.Targets{adapter.AllLinear}
		if c.labels > 1 {
			s.Objectives.Classification = three
		}
		var rows strings.Builder
		for i := range 9 {
			rows.WriteString(c.row(100+i) + "\n")
		}
		if err := os.WriteFile(s.Dataset.ValPath, []byte(rows.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		mustStart(t, s, oneWorker)
		number := "eval_loss"
		if c.labels == 0 {
			number = "eval_similarity" // unlike the loss it does not depend on which rows share a batch
		}
		evals := linesWith(t, s.OutputDir, "eval_loss", number)
		script := filepath.Join(t.TempDir(), "read.py")
		if err := os.WriteFile(script, []byte(headReader), 0o644); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		cmd := exec.Command(python, script, golden.StoriesDir(t), s.OutputDir, s.Dataset.ValPath, fmt.Sprint(c.labels))
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.objective, err, said.String())
		}
		var loss float64
		if err := json.Unmarshal(out, &loss); err != nil {
			t.Fatal(err)
		}
		if ours := evals[len(evals)-1][0]; !(math.Abs(ours-loss) <= 1e-4*loss) {
			t.Errorf("%s: the evaluation had %s %v, transformers has %v", c.objective, number, ours, loss)
		}
	}
}
