package train

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// tokensReader prints the ids that transformers' tokenizer of a folder has for a text.
const tokensReader = `
import json, sys
from transformers import AutoTokenizer
print(json.dumps(AutoTokenizer.from_pretrained(sys.argv[1])(sys.argv[2], add_special_tokens=False).input_ids))
`

// TestAddedTokensLoadInPEFT checks that adapters with added tokens load in PEFT and transformers, key by key, over the
// base model with as many rows as the folder's tokenizer has tokens, and give the loss that the run's last evaluation
// had. The folder's tokenizer gives transformers the ids that it gives here.
func TestAddedTokensLoadInPEFT(t *testing.T) {
	python := pythonWithPEFT(t)
	var specs []Spec
	for _, c := range tokensCases {
		s := c.spec(t, 4)
		s.Adapter, s.Quantization = "lora", nil
		idRows(t, &s)
		mustStart(t, s, oneWorker)
		specs = append(specs, s)
	}
	checkLossesInPEFT(t, python, specs)
	script := filepath.Join(t.TempDir(), "tokens.py")
	if err := os.WriteFile(script, []byte(tokensReader), 0o644); err != nil {
		t.Fatal(err)
	}
	const text = "Once <think>upon</think> a time<|done|>"
	out, err := exec.Command(python, script, specs[0].OutputDir, text).Output()
	if err != nil {
		t.Fatal(err)
	}
	var ids []int32
	if err := json.Unmarshal(out, &ids); err != nil {
		t.Fatal(err)
	}
	own, err := tokenizer.Load(specs[0].OutputDir)
	if err != nil {
		t.Fatal(err)
	}
	if got := own.IDs(text, false); !slices.Equal(got, ids) {
		t.Errorf("%q is %v, transformers has %v", text, got, ids)
	}
}

// TestSelectionLoadsInPEFT checks that adapters of some layers load in PEFT and transformers, key by key, and give the
// loss that the run's last evaluation had.
func TestSelectionLoadsInPEFT(t *testing.T) {
	python := pythonWithPEFT(t)
	var specs []Spec
	for _, edit := range []func(l *adapter.LoRA){
		func(l *adapter.LoRA) {
			l.TargetModules = adapter.Targets{adapter.AllLinear}
			l.ExcludeModules = adapter.Targets{"o_proj", "mlp.up_proj"}
		},
		func(l *adapter.LoRA) {
			l.TargetModules = adapter.Targets{`(?=.*layers).*(q|down)_proj`}
			l.ExcludeModules = adapter.Targets{`.*layers\.1\..*`}
		},
		func(l *adapter.LoRA) { l.LayersToTransform, l.LayersPattern = []string{"1", "3"}, []string{"layers"} },
	} {
		s := savedCases[0].spec(t, 3)
		s.LoRA.ModulesToSave = nil
		edit(&s.LoRA)
		idRows(t, &s)
		mustStart(t, s, oneWorker)
		specs = append(specs, s)
	}
	checkLossesInPEFT(t, python, specs)
}
