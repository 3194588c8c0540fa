package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/families"
)

// inspected is what inspect model says of a folder.
func inspected(t *testing.T, folder string) (m modelJSON) {
	t.Helper()
	code, out, errOut := trainer(t, t.TempDir(), nil, "", "inspect", "model", folder, "--json")
	if err := json.Unmarshal([]byte(out), &m); code != 0 || err != nil {
		t.Fatalf("%s: exit code %d, %v: %s", folder, code, err, errOut)
	}
	return m
}

// configAlone is a folder with config.json alone.
func configAlone(t *testing.T, folder string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), golden.ReadFile(t, folder, "config.json"),
		0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestInspectEveryFamily: family, context, special tokens and parameters of a model of each family; config.json alone
// says the same parameters. Of a folder with images they are the language model's.
func TestInspectEveryFamily(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, m := range golden.FamilyModels(t) {
		dir := m.Dir(t)
		whole, alone := inspected(t, dir), inspected(t, configAlone(t, dir))
		seen[whole.Family] = true
		if whole.Parameters != alone.Parameters || whole.Active != alone.Active ||
			whole.ActiveLess != alone.ActiveLess || whole.Quantised != alone.Quantised {
			t.Errorf(
				"%s: %d parameters, %d and %d active, %d weights quantised; from config.json alone %d, %d and %d, %d",
				m.Name, whole.Parameters, whole.Active,
				whole.ActiveLess, whole.Quantised, alone.Parameters, alone.Active, alone.ActiveLess, alone.Quantised)
		}
		if whole.Config.MaxPositions != 64 || whole.Tokenizer == nil || whole.Problem != "" {
			t.Errorf("%s: %d positions, tokens %+v %s", m.Name, whole.Config.MaxPositions,
				whole.Tokenizer, whole.Problem)
		}
		code, out, errOut := trainer(t, t.TempDir(), nil, "", "inspect", "model", dir, "--no-tensors")
		for _, line := range []string{"family      " + whole.Family + ", ", "context     at most 64 tokens\n",
			`BOS "<s>" (1)`, `EOS "</s>" (2)`, "template    none\n"} {
			if code != 0 || !strings.Contains(out, line) {
				t.Errorf("%s: exit code %d, %s: %q is not in\n%s", m.Name, code, errOut, line, out)
			}
		}
	}
	for family := range families.Table {
		if !seen[family] {
			t.Errorf("%s: no model", family)
		}
	}
}

// TestInspectQuantisedByConfig: config.json alone says of a folder of bitsandbytes' how it is stored.
func TestInspectQuantisedByConfig(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]string{
		"nf4": "stored      7 weights in 4 bits (nf4, double_quant false); its bnb_4bit_compute_dtype is " +
			"float32, a run's training.precision here\n",
		"nf4_nested": "stored      7 weights in 4 bits (nf4, double_quant true); its bnb_4bit_compute_dtype is " +
			"bfloat16, a run's training.precision here\n",
		"nf4_dynamic": "stored      2 weights in 4 bits (nf4, double_quant true); its bnb_4bit_compute_dtype is " +
			"float32, a run's training.precision here\n",
		"fp4": "stored      7 weights in 4 bits (fp4, double_quant false); its bnb_4bit_compute_dtype is float32, a " +
			"run's training.precision here\n",
		"int8": "stored      7 weights in 8 bits (int8, double_quant false)\n",
	} {
		dir := golden.Path(t, "prequantised/"+name)
		whole, alone := inspected(t, dir), inspected(t, configAlone(t, dir))
		if whole.Parameters != alone.Parameters || whole.Quantised != alone.Quantised {
			t.Errorf("%s: %d parameters, %d weights quantised; from config.json alone %d, %d", name, whole.Parameters,
				whole.Quantised, alone.Parameters, alone.Quantised)
		}
		for _, folder := range []string{dir, configAlone(t, dir)} {
			if code, out, errOut := trainer(t, t.TempDir(), nil, "", "inspect", "model", folder,
				"--no-tensors"); code != 0 || !strings.Contains(out, stored) {
				t.Errorf("%s: exit code %d, %s: %q is not in\n%s", name, code, errOut, stored, out)
			}
		}
	}
}
